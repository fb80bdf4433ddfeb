"""Device contents that the program reads: the stub has none to give, so what follows from them is not what a GPU would do."""

from __future__ import annotations

import threading
from typing import Any

from fsdp_rehearsal import frames
from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.stub import Stub

# Operations whose result decides how large a tensor is.
_STEERING = {"nonzero", "unique", "masked_select", "repeat_interleave", "masked_scatter", "bincount", "index_put", "where"}


class Readbacks:
    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, int], int] = {}
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
            key = (operation, frame["file"], frame["line"])
            self._rows[key] = self._rows.get(key, 0) + 1
        finally:
            self._busy.now = False

    def rows(self) -> list[dict[str, Any]]:
        """One row per operation and line, those that decide sizes first."""
        rows = [
            {"operation": op, "file": file, "line": line, "count": count, "steers_sizes": op in _STEERING}
            for (op, file, line), count in self._rows.items()
        ]
        return sorted(rows, key=lambda r: (not r["steers_sizes"], -r["count"], r["file"], r["line"], r["operation"]))
