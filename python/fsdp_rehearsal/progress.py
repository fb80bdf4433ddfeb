"""One short text for the command's line of progress: what this process is at.

Those who know say where a step begins; what takes the time between two of them is seen by looking at the stack of the main thread
once a second: an import, a compiler, parameters that are filled with values, or a line of the script.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import FrameType
from typing import Callable, Optional

from fsdp_rehearsal import frames
from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.whole_files import write_whole

_BETWEEN_LOOKS = 1.0  # seconds
_COMPILERS = ("/torch/_dynamo/", "/torch/_inductor/", "/triton/compiler/", "/torch/utils/cpp_extension.py")


class Progress:
    """Overwrites a file whenever the text changes. Without a file, says nothing."""

    def __init__(self, path: str, steps: int) -> None:
        self._path, self._steps = path, steps
        self._process = os.getpid()
        self._last = self._stage = ""

    def step(self, number: int) -> None:
        """Step `number`, from 1, begins."""
        if self._steps == 0 or number <= self._steps:
            self.say(f"step {number} of {self._steps}" if self._steps else f"step {number}")

    def say(self, text: str) -> None:
        self._stage = text
        self._write(text)

    def watch(self, phase: Callable[[], str]) -> None:
        """From now on says what the main thread does. `phase`: of the step."""
        if self._path:
            threading.Thread(target=self._look, args=(threading.main_thread().ident, phase), daemon=True).start()

    def _look(self, thread: int, phase: Callable[[], str]) -> None:
        while True:
            time.sleep(_BETWEEN_LOOKS)
            self._look_once(thread, phase)

    @guarded("What the script is at")
    def _look_once(self, thread: int, phase: Callable[[], str]) -> None:
        frame = sys._current_frames().get(thread)
        if frame is not None:
            self._write(doing(frame, self._stage, phase()))

    @guarded("The file of the progress")
    def _write(self, text: str) -> None:
        if not self._path or text == self._last or os.getpid() != self._process:
            return
        self._last = text
        write_whole(self._path, (text + "\n").encode())


def doing(frame: FrameType, stage: str, phase: str) -> str:
    """What a thread is at, of its stack: "importing transformers", "step 2 of 3, backward, train.py:14"."""
    imported = made_on = ""
    compiles = False
    stack = []
    at: Optional[FrameType] = frame
    while at is not None:
        file, function = at.f_code.co_filename, at.f_code.co_name
        if file == "<frozen importlib._bootstrap>" and function == "_find_and_load":
            imported = str(at.f_locals.get("name", ""))
        if file.endswith("/torch/nn/init.py") and not made_on:
            made_on = _device_of(at.f_locals.get("tensor"))
        compiles = compiles or any(part in file for part in _COMPILERS)
        stack.append({"file": file, "line": at.f_lineno, "function": function})
        at = at.f_back
    if imported:
        return f"importing {imported.partition('.')[0]}"
    named = frames.named(stack)
    place = f", {frames.short(named['file'])}:{named['line']}" if named is not None else ""
    if compiles:
        return f"compiling, {stage}{place}"
    if phase == "initialization":
        # The only part of a rehearsal that computes what a real run does.
        hint = ' (under "with torch.device(\'cuda\'):" it takes no time here)' if made_on == "CPU" else ""
        what = f"making parameters on the {made_on}{hint}" if made_on else "before the first step"
        return f"{what}{place}"
    return f"{stage}, {phase}{place}"


def _device_of(tensor: object) -> str:
    kind = getattr(getattr(tensor, "device", None), "type", "")
    return {"cpu": "CPU", "cuda": "GPU", "meta": "meta device"}.get(kind, kind)
