"""Processes of a trial: started together, awaited, and ended together."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time

_BETWEEN_LOOKS = 0.05
_GRACE_SECONDS = 30  # For the others after one has failed.


class TrialFailed(Exception):
    """A process of the trial has failed, or did not end; the message has the reason."""


def last_words(log: pathlib.Path) -> str:
    """A program's last message: its line "error: ...", else a Python exception, else its last line."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    for start in ("error: ",):
        found = [line for line in lines if line.startswith(start)]
        if found:
            return found[-1]
    raised = [line for line in lines if "Error: " in line or "Exception: " in line]
    return (raised or lines or ["it said nothing"])[-1]


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def run_together(commands: list[list[str]], environments: list[dict[str, str]], logs: list[pathlib.Path],
                 limit_seconds: float) -> None:
    """Runs each in its own session, which ends with it. Raises TrialFailed with the cause of the first that fails."""
    processes: list[subprocess.Popen[bytes]] = []
    first_failed = None
    try:
        for words, environment, log in zip(commands, environments, logs, strict=True):
            with open(log, "wb") as file:
                processes.append(subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=file,
                                                  stderr=subprocess.STDOUT, start_new_session=True))
        give_up = time.monotonic() + limit_seconds
        while any(process.poll() is None for process in processes):
            if first_failed is None and any(process.poll() for process in processes):
                first_failed = next(i for i, process in enumerate(processes) if process.poll())
                give_up = min(give_up, time.monotonic() + _GRACE_SECONDS)
            if time.monotonic() > give_up:
                break
            time.sleep(_BETWEEN_LOOKS)
    finally:
        late = [i for i, process in enumerate(processes) if process.poll() is None]
        for process in processes:
            _end(process)
    if first_failed is None:
        first_failed = next((i for i, process in enumerate(processes) if process.returncode and i not in late), None)
    if first_failed is not None:
        raise TrialFailed(f"process {first_failed} ended with {processes[first_failed].returncode}: "
                          f"{last_words(logs[first_failed])}")
    if late:
        raise TrialFailed(f"process {late[0]} had not ended after {limit_seconds:.0f} s: {last_words(logs[late[0]])}")
