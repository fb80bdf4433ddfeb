"""The allocator's history of a recorded run: live bytes, peaks, and what they were for."""

from __future__ import annotations

import dataclasses

import torch
from recorder import REST, Recorder, _weight


@dataclasses.dataclass
class Allocation:
    bytes: int
    category: str = ""

    @property
    def row(self) -> str:
        return self.category or REST


@dataclasses.dataclass
class Peak:
    live: int
    by_category: dict[str, int]
    parts: dict[str, int] = dataclasses.field(default_factory=dict)  # The highest of forward, backward and optimizer.

    def see(self, part: str, live: int) -> None:
        self.parts[part] = max(self.parts.get(part, 0), live)


def _entries() -> list[tuple[bool, int, int, int]]:
    """(is an allocation, address, bytes, hooks before it) in order. The allocator keeps the number of hooks per thread."""
    entries, hooks = [], 0
    for entry in torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]:
        if entry["action"] not in ("alloc", "free_requested"):
            continue
        hooks = max(hooks, int(entry["user_metadata"] or 0))
        entries.append((entry["action"] == "alloc", entry["addr"], entry["size"], hooks))
    return entries


def evaluate(recorder: Recorder) -> dict[str, Peak]:
    """Fills in live bytes of all collectives; returns the peak of each phase: initialization, then steps by number."""
    entries = _entries()
    made = _categorise(entries, recorder)
    events = {event.hook: event for step in recorder.steps for event in step}
    live: dict[str, int] = {}
    total, hook, at = 0, 0, 0
    peaks = [Peak(0, {})]

    def advance(until: int) -> None:
        nonlocal hook
        for number in range(hook, until):
            if number in recorder.step_begins:
                peaks.append(Peak(total, dict(live)))
            if number in events:
                events[number].live, events[number].by_category = total, _nonzero(live)
        hook = max(hook, until)

    owner: dict[int, Allocation] = {}
    for is_alloc, address, size, hooks in entries:
        advance(hooks)
        part = recorder.parts[hooks - 1] if hooks else ""
        peaks[-1].see(part, total)
        if is_alloc:
            owner[address] = made[at]
            at += 1
            total += size
            live[owner[address].row] = live.get(owner[address].row, 0) + size
            peaks[-1].see(part, total)
            if total > peaks[-1].live:
                peaks[-1].live, peaks[-1].by_category = total, dict(live)
        elif address in owner:
            gone = owner.pop(address)
            total -= gone.bytes
            live[gone.row] -= gone.bytes
    advance(len(recorder.seen))
    names = ["initialization", *(str(number) for number in range(1, len(peaks)))]
    return {name: Peak(peak.live, _nonzero(peak.by_category), peak.parts) for name, peak in zip(names, peaks, strict=True)}


def _nonzero(live: dict[str, int]) -> dict[str, int]:
    return {name: live[name] for name in sorted(live) if live[name]}


def _categorise(entries: list[tuple[bool, int, int, int]], recorder: Recorder) -> list[Allocation]:
    """All allocations in order, with what any hook saw them as."""
    made: list[Allocation] = []
    owner: dict[int, Allocation] = {}
    hook = 0

    def see(until: int) -> None:
        nonlocal hook
        for number in range(hook, until):
            for address, category in recorder.seen[number].items():
                found = owner.get(address)
                if found and (not found.category or _weight(category) > _weight(found.category)):
                    found.category = category
        hook = max(hook, until)

    for is_alloc, address, size, hooks in entries:
        see(hooks)
        if is_alloc:
            made.append(Allocation(size))
            owner[address] = made[-1]
        else:
            owner.pop(address, None)
    see(len(recorder.seen))
    return made
