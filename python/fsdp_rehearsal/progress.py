"""One short text for the command's line of progress: what this process is at."""

from __future__ import annotations

import os

from fsdp_rehearsal.guard import guarded


class Progress:
    """Overwrites a file whenever the text changes. Without a file, says nothing."""

    def __init__(self, path: str, steps: int) -> None:
        self._path, self._steps = path, steps
        self._process = os.getpid()
        self._last = ""

    def step(self, number: int) -> None:
        """Step `number`, from 1, begins."""
        if self._steps == 0 or number <= self._steps:
            self.say(f"step {number} of {self._steps}" if self._steps else f"step {number}")

    @guarded("The file of the progress")
    def say(self, text: str) -> None:
        if not self._path or text == self._last or os.getpid() != self._process:
            return
        self._last = text
        with open(self._path, "w", encoding="utf-8") as out:
            out.write(text + "\n")
