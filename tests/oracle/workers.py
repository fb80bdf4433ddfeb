"""Runs many cases in one process tree: torch is imported once, and each case is a child that forks from there.

    python workers.py [transformers] < REQUESTS > ANSWERS      with the stub GPU in front (LD_PRELOAD)

A request is a line of JSON, {"name", "model", "plan", "rank"}; an answer {"name", "seconds", "result"} or {"name",
"error"}. CUDA and autograd's threads begin in the child only. With the word, requests have a member "transformers" too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from typing import Any

LIMIT_SECONDS = 900


def answer(request: dict[str, Any], run: Any) -> dict[str, Any]:
    begin = time.monotonic()
    try:
        result = run(request)
        return {"name": request["name"], "seconds": round(time.monotonic() - begin, 3), "result": result}
    except Exception:
        return {"name": request["name"], "error": traceback.format_exc()}


def in_child(request: dict[str, Any], run: Any) -> str:
    """The answer of a child that ends after this case."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(LIMIT_SECONDS)
        with os.fdopen(write, "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(answer(request, run), separators=(",", ":")))
        os._exit(0)  # Threads of a process group can hold up a normal exit.
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not text:
        return json.dumps({"name": request["name"], "error": f"the process ended with status {status}"})
    return text


def main() -> None:
    if sys.argv[1:] == ["transformers"]:
        from run_transformers import run
    else:
        from run_case import run
    for line in sys.stdin:
        print(in_child(json.loads(line), run), flush=True)


if __name__ == "__main__":
    main()
