"""Runs fsdp-plan and reads what it prints as JSON."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 900  # However busy a machine is, only what hangs takes as long.


class Refused(Exception):
    """fsdp-plan says that the input cannot be, and why."""


def run(*words: str | pathlib.Path, folder: pathlib.Path | None = None, **environment: str) -> tuple[int, str]:
    """The exit status, 0 or 1 ("does not fit" is an answer too), and what was printed. Any program; Refused for 2."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LIMIT_SECONDS, cwd=folder,
                          env={**os.environ, "FSDP_PLAN_MODEL_SPECS": str(ROOT / "model_specs"), **environment})
    if done.returncode == 2:
        raise Refused(done.stderr)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr[-4000:]}")
    return done.returncode, done.stdout


def answer(*words: str | pathlib.Path, **environment: str) -> dict[str, Any]:
    """What a command prints, of which the words ask for JSON."""
    return json.loads(run(*words, **environment)[1])
