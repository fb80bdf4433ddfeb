"""Device contents that the program reads: the stub has none, so later work that depends on them differs from a real GPU's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fsdp_rehearsal import frames
from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.phases import Phases
from fsdp_rehearsal.stub import Stub

_MANY = 500  # reads of one line without a step, after which the progress line names it

# Operations whose result determines the size of a tensor.
_STEERING = {"nonzero", "unique", "masked_select", "repeat_interleave", "bincount"}


class Readbacks:
    def __init__(self, phases: Phases, steps: Callable[[], int], say: Callable[[str], None]) -> None:
        """`steps`: optimizer calls so far; `say` receives a line that reads repeatedly without a step."""
        self._phases, self._steps, self._say = phases, steps, say
        self._rows: dict[tuple[str, str, int, str], int] = {}
        self._step = 0
        self._since: dict[tuple[str, str, int, str], int] = {}  # the same, since the last step
        self._busy = threading.local()

    def install(self, stub: Stub) -> None:
        stub.on_readback(self._note)

    @guarded("A read of device contents")
    def _note(self, operation: str, size: int) -> None:
        if getattr(self._busy, "now", False):
            return
        self._busy.now = True
        try:
            frame = frames.user_frame(2) or {"file": "", "line": 0}
            key = (operation, frame["file"], frame["line"], self._phases.phase)
            self._rows[key] = self._rows.get(key, 0) + 1
            self._look_at_loops(key)
        finally:
            self._busy.now = False

    def _look_at_loops(self, key: tuple[str, str, int, str]) -> None:
        if self._steps() != self._step:
            self._step = self._steps()
            self._since.clear()
        count = self._since[key] = self._since.get(key, 0) + 1
        if count % _MANY == 0:
            self._say(f"{frames.short(key[1])}:{key[2]} reads the device, {count:,} times without a step")

    def rows(self) -> list[dict[str, Any]]:
        """One row for each operation and line, those that determine sizes first."""
        rows = [
            {
                "operation": operation,
                "file": file,
                "line": line,
                "phase": phase,
                "count": count,
                "steers_sizes": operation in _STEERING,
            }
            for (operation, file, line, phase), count in self._rows.items()
        ]
        return sorted(rows, key=lambda r: (not r["steers_sizes"], -r["count"], r["file"], r["line"], r["operation"]))
