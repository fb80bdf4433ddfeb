"""The allocator's events as text, for tests and for people: one event on each line.

`action bytes stream number`: bytes as requested (for segments, as taken from the device), streams numbered in the order of
their first appearance; the number links a free to its allocation. `phase NAME` begins a phase, `step NUMBER` ends a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsdp_rehearsal.meter import Cut
from fsdp_rehearsal.history import Mark

_COUNTED = ("alloc", "free_requested", "free_completed")


def text(entries: Sequence[dict[str, Any]], cuts: Sequence[Cut], marks: Sequence[Mark]) -> str:
    """The whole trace. `entries` is the history from its start."""
    calls = (c for c in cuts if c.name == "step")
    notes = [(c.position, 0, f"step {n}") for n, c in enumerate(calls, 1)]
    notes += [(m.position, 1, f"phase {m.phase}") for m in marks]
    notes.sort(key=lambda note: note[:2])
    streams: dict[int, int] = {}
    numbers: dict[int, int] = {}
    lines: list[str] = []
    position = allocations = 0
    for entry in entries:
        action = entry["action"]
        counted = action in _COUNTED
        if not counted and not action.startswith("segment"):
            continue
        while notes and notes[0][0] <= position:
            lines.append(notes.pop(0)[2])
        stream = streams.setdefault(entry["stream"], len(streams))
        line = f"{action} {entry['size']} {stream}"
        if counted:
            position += 1
            if action == "alloc":
                numbers[entry["addr"]] = allocations
                allocations += 1
            line += f" {numbers.get(entry['addr'], -1)}"
        lines.append(line)
    lines += [note[2] for note in notes]
    return "\n".join(lines) + "\n"
