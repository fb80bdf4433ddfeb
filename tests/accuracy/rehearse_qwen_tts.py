"""Rehearses the published Qwen3-TTS model code in every setting, and writes what was measured into a golden file.

    rehearse_qwen_tts.py --command PATH --golden FILE [NAME...]       NAME is a setting or a pattern; all when there is none
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from qwen_tts_settings import Setting, settings  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
FRAMEWORKS = ROOT / "tests" / "rehearsal" / "frameworks"
PYTHON = ROOT / "build" / "python" / "qwen-tts" / "bin"
LARGE, SMALL = "320GiB", "16GiB"
KEYS = ("live", "allocated", "reserved")


def rehearse(command: pathlib.Path, setting: Setting, memory: str) -> dict[str, Any]:
    environment = {**os.environ, "PATH": f"{PYTHON}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1",
                   "PYTORCH_CUDA_ALLOC_CONF": setting.allocator}  # fmt: skip
    if not setting.allocator:
        del environment["PYTORCH_CUDA_ALLOC_CONF"]
    words = setting.command(str(FRAMEWORKS / "qwen_tts_step.py"), str(FRAMEWORKS / "models" / "qwen3-tts-1.7b"))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([command, "rehearse", "--json", "--gpu", setting.gpu, "--mem", memory, "--cudnn-workspace", "0B", "--", *words], cwd=folder,
                              env=environment, capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{setting.name}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def measure(command: pathlib.Path, setting: Setting) -> dict[str, Any]:
    """Peaks where there is room, and whether it runs in 16 GiB."""
    report = rehearse(command, setting, LARGE)
    memory = report["memory"]
    phases = {name: {key: phase[f"{key}_peak_bytes"] for key in KEYS} for name, phase in memory["phases"].items()}
    rows = [(row["kind"], row["elements"], row["dtype"], row["group_size"]) for row in report["traffic"]["collectives"]]
    # What never fills 16 GiB runs there in the same way.
    runs = memory["device_peak_bytes"] < 16 << 30
    flushes = 0
    if not runs:
        small = rehearse(command, setting, SMALL)
        runs, flushes = small["verdict"] == "fits", small["memory"]["cache_flushes"]
    return {"name": setting.name, "command": " ".join(setting.command("qwen_tts_step.py", "CONFIG")), "gpu": setting.gpu,
            "phases": phases, "device": memory["device_peak_bytes"], "collectives": summary(rows), "runs_in_16_gib": runs,
            "cache_flushes_in_16_gib": flushes}  # fmt: skip


def summary(rows: list[tuple[Any, ...]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for kind, elements, dtype, group in rows:
        total = found.setdefault(f"{kind} {dtype} {group}", [0, 0])
        total[0] += 1
        total[1] += elements
    return found


def write(golden: pathlib.Path, known: dict[str, Any]) -> None:
    """A reader finds the whole file or the one before."""
    rows = [known[setting.name] for setting in settings() if setting.name in known]
    unfinished = golden.with_suffix(".part")
    unfinished.write_text("".join(json.dumps(row) + "\n" for row in rows))
    unfinished.replace(golden)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", type=pathlib.Path, required=True)
    parser.add_argument("--golden", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    known = {}
    if arguments.golden.is_file():
        known = {row["name"]: row for row in map(json.loads, arguments.golden.read_text().splitlines())}
    wanted = [s for s in settings() if not arguments.names or any(fnmatch.fnmatch(s.name, n) for n in arguments.names)]
    if not wanted:
        sys.exit(f"No setting is called {' or '.join(arguments.names)}.")
    failed = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        runs = {pool.submit(measure, arguments.command.resolve(), setting): setting for setting in wanted}
        for number, run in enumerate(concurrent.futures.as_completed(runs), 1):
            try:
                known[runs[run].name] = run.result()
                write(arguments.golden, known)
                print(f"[{number}/{len(wanted)}] {runs[run].name}", file=sys.stderr, flush=True)
            except RuntimeError as error:
                failed.append(str(error))
                print(f"[{number}/{len(wanted)}] FAILED {error}", file=sys.stderr, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
