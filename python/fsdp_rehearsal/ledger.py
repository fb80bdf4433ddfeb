"""Replays the allocator's history, to find the time of the peak, its code, and the blocks that were live then.

Sizes are as requested, so the peak here is that of requested bytes. The curve over a step rounds each allocation up to 512
bytes as the allocator does, but does not include the remainders of blocks that it left unsplit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

from fsdp_rehearsal import frames as frames_of

_MOST_POINTS_KEPT = 20_000_000
_COUNTED = ("alloc", "free_requested", "free_completed")


@dataclass(frozen=True)
class Label:
    """The work of the program at an allocation."""

    phase: str
    module: str = ""
    backward_at: Optional[tuple[str, int, str]] = None  # file, line, function of the backward call, during a backward


Resolve = Callable[[str, int], Label]  # the metadata of an entry, and the number of events before it


class Block(NamedTuple):
    """An allocation that has not been freed."""

    size: int
    place: int
    label: Label
    position: int  # event number


@dataclass
class Peak:
    bytes: int = 0
    position: int = -1  # event number
    place: int = -1
    label: Label = Label("initialization")
    alive: dict[tuple[int, Label], list[int]] = field(default_factory=dict)  # (place, label) -> count, bytes
    blocks: dict[int, Block] = field(default_factory=dict)  # the same, by address


class Ledger:
    """Receives the entries of one device's history, in order, in one or more pieces."""

    def __init__(self) -> None:
        self.peak = Peak()
        self.position = 0
        self.rounded = array("q")  # rounded bytes after each event
        self.places: list[tuple[dict[str, Any], ...]] = []  # stacks, innermost frame first
        self.failures: list[dict[str, Any]] = []  # allocations that ended in an out-of-memory error
        self._numbers: dict[tuple, int] = {}
        self._alive: dict[int, Block] = {}  # by address
        self._requested = 0
        self._rounded = 0

    def feed(self, entries: Sequence[dict[str, Any]], resolve: Resolve) -> None:
        """Adds the next piece of the history; `resolve` returns the program's work at an entry."""
        before, began, requested = dict(self._alive), self.position, self._requested
        places = _Places(self)
        highest, top = self.peak.bytes, -1
        for entry in entries:
            action = entry["action"]
            if action == "alloc":
                size = entry["size"]
                label = resolve(entry.get("user_metadata", ""), self.position)
                self._alive[entry["addr"]] = Block(size, places.of(entry), label, self.position)
                self._requested += size
                self._rounded += _rounded(size)
                if self._requested > highest:
                    highest, top = self._requested, self.position
            elif action == "free_requested":
                size = self._alive.pop(entry["addr"], (0,))[0]
                self._requested -= size
                self._rounded -= _rounded(size)
            elif action == "oom":
                label = resolve(entry.get("user_metadata", ""), self.position)
                self.failures.append({**entry, "place": places.of(entry), "label": label, "position": self.position})
                continue
            elif action != "free_completed":
                continue
            self.position += 1
            if len(self.rounded) < _MOST_POINTS_KEPT:
                self.rounded.append(self._rounded)
        if top >= 0:
            self._note_peak(entries, before, began, requested, top, resolve)

    def alive_since(self, position: int) -> dict[int, Block]:
        """By address: blocks that were allocated before an event and are not freed."""
        return {address: block for address, block in self._alive.items() if block.position < position}

    def _note_peak(self, entries, alive: dict, position: int, requested: int, top: int, resolve: Resolve) -> None:
        """Replays the piece up to the event number `top`, which begins at `position` with `alive`."""
        places = _Places(self)
        for entry in entries:
            action = entry["action"]
            if action == "alloc":
                label = resolve(entry.get("user_metadata", ""), position)
                alive[entry["addr"]] = Block(entry["size"], places.of(entry), label, position)
                requested += entry["size"]
                if position == top:
                    self.peak = Peak(requested, top, places.of(entry), label, blocks=alive)
                    break
            elif action == "free_requested":
                requested -= alive.pop(entry["addr"], (0,))[0]
            position += action in _COUNTED
        for size, place, label, _ in alive.values():
            row = self.peak.alive.setdefault((place, label), [0, 0])
            row[0] += 1
            row[1] += size


class _Places:
    """Numbers of stacks. A stack that occurred in the same piece of history is found by the identity of its frames."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._by_identity: dict[tuple[int, ...], int] = {}

    def of(self, entry: dict[str, Any]) -> int:
        frames = entry.get("frames") or ()
        identity = tuple(map(id, frames))
        known = self._by_identity.get(identity)
        if known is None:
            known = self._by_identity[identity] = self._number(frames)
        return known

    def _number(self, frames: Iterable[dict[str, Any]]) -> int:
        stack = tuple((f["filename"], f["line"], f["name"]) for f in frames)
        numbers, places = self._ledger._numbers, self._ledger.places
        if stack not in numbers:
            numbers[stack] = len(places)
            places.append(tuple({"file": f, "line": line, "function": name} for f, line, name in stack))
        return numbers[stack]


def _rounded(size: int) -> int:
    return max(512, (size + 511) // 512 * 512)


def stack_of(ledger: Ledger, place: int, label: Label) -> list[dict[str, Any]]:
    """The stack of a place, innermost first. The autograd engine's thread has no Python frames except those of hooks, so we
    add the call of backward, where the program waits meanwhile."""
    stack = frames_of.without_plumbing(ledger.places[place])
    if label.backward_at is not None and not any(frames_of.kind_of(f["file"]) == frames_of.USER for f in stack):
        file, line, function = label.backward_at
        stack.append({"file": file, "line": line, "function": function})
    return stack or list(ledger.places[place])


def rows_at_peak(ledger: Ledger, most: int = 20) -> list[dict[str, Any]]:
    """The bytes live at the peak by line of Python, largest first; all after `most` rows are one row with file ""."""
    rows: dict[tuple, list[int]] = {}
    for (place, label), (count, size) in ledger.peak.alive.items():
        stack = stack_of(ledger, place, label)
        frame = frames_of.named(stack) or {"file": "", "line": 0, "function": label.phase}
        framework = ""
        if stack and stack[0] is not frame:
            framework = f"{frames_of.short(stack[0]['file'])}:{stack[0]['line']} {stack[0]['function']}"
        elif not ledger.places[place] and label.backward_at is not None:
            framework = "autograd"
        key = (frame["file"], frame["line"], frame["function"], framework)
        row = rows.setdefault(key, [0, 0])
        row[0] += count
        row[1] += size
    ordered = sorted(rows.items(), key=lambda item: (-item[1][1], item[0]))
    result = [
        {"file": f, "line": line, "function": name, "framework": framework, "count": count, "bytes": size}
        for (f, line, name, framework), (count, size) in ordered[:most]
    ]
    rest = ordered[most:]
    if rest:
        count, size = (sum(row[i] for _, row in rest) for i in (0, 1))
        result.append({"file": "", "line": 0, "function": "", "framework": "", "count": count, "bytes": size})
    return result


def curve(points: Sequence[int], begin: int, end: int, at_begin: int, most: int = 512) -> tuple[list[int], int]:
    """Bytes over the events [begin, end), at most `most` points, each the highest of its events; and the number of events per
    point.

    `at_begin` is the allocator's own value at `begin`; the whole curve is shifted to match it.
    """
    end = min(end, len(points))
    if end <= begin:
        return [], 1
    shift = at_begin - (points[begin - 1] if begin > 0 else 0)
    width = -(-(end - begin) // most)
    return [max(points[i : min(i + width, end)]) + shift for i in range(begin, end, width)], width
