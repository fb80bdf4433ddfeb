"""Values that pass between calls: the call that makes each, and the calls that read or save it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any

from fsdp_capture.op_watch import Tensor
from fsdp_capture.structure import Structure

Key = tuple[int, int]  # part, and index among its allocations; part -1 for the batch

MISSING: Key = (-2, 0)


@dataclass(frozen=True)
class Place:
    """The path of a storage between calls."""

    call: int
    op: int
    is_backward: bool


@dataclass
class Value:
    key: Key
    maker: int  # call; -1 for the batch
    readers: set[int] = field(default_factory=set)  # calls


class Storages:
    """The storages of one recording by their keys, which are equal in every other recording of the step."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.number: dict[Key, int] = {}
        self.key: dict[int, Key] = {}
        for number, part in enumerate(structure.parts):
            for place, made in enumerate(part.made):
                self.number[number, place], self.key[made] = made, (number, place)
        read = sorted(made for made in structure.before_root if structure.readers.get(made))
        for place, made in enumerate(read):
            self.number[-1, place], self.key[made] = made, (-1, place)
        self.born: dict[int, Place] = {}
        self.gone: dict[int, Place] = {}
        for position, event in enumerate(structure.recording.events):
            part = structure.part_of_event[position]
            if part < 0 or event.what not in ("alloc", "free") or event.number < 0:
                continue
            call, op = structure.parts[part].place
            where = self.born if event.what == "alloc" else self.gone
            where[event.number] = Place(call, op, event.window >= 0)

    def maker(self, key: Key) -> int:
        return self.structure.call_of(key[0]) if key[0] >= 0 else -1

    def holders(self, number: int) -> set[int]:
        """Calls that read a storage, save it for their backward, or free it."""
        calls = {self.structure.call_of(part) for part in self.structure.readers.get(number, ())}
        calls |= {self.structure.call_of(part) for part in self.structure.saved_at.get(number, ())}
        gone = self.gone.get(number)
        return calls | ({gone.call} if gone is not None else set())

    def first_read(self, key: Key, call: int) -> tuple[int, int]:
        """The op of a call that reads a value first, and the value's place among the op's reads; a place after all others if
        no op reads it."""
        number = self.number.get(key, -1)
        parts = [p for p in self.structure.readers.get(number, ()) if self.structure.call_of(p) == call]
        if not parts:
            return len(self.structure.parts), 0
        reads = [read for op in self.structure.parts[min(parts)].dispatched for read in self.structure.recording.reads[op]]
        return min(parts), reads.index(number)

    def tensor(self, number: int) -> Tensor:
        """The largest tensor that an op made in a storage."""
        recording = self.structure.recording
        key = self.key[number]
        found = []
        ops = self.structure.parts[key[0]].dispatched if key[0] >= 0 else range(len(recording.ops))
        for op in ops:
            found += [t for t, made in zip(recording.ops[op].outputs, recording.makes[op]) if made == number]
            if key[0] < 0:
                found += [t for t, read in zip(recording.ops[op].inputs, recording.reads[op]) if read == number]
        size = recording.sizes[number]
        fitting = [t for t in found if t.bytes <= size]
        return max(fitting, key=lambda t: t.bytes) if fitting else Tensor(0, size, (size,), "uint8", False)


def find_values(storages: Storages) -> list[Value]:
    """The values that pass between calls of one recording, in the order of their allocation."""
    values: dict[Key, Value] = {}
    for key, number in storages.number.items():
        maker = storages.maker(key)
        readers = {call for call in storages.holders(number) if call > maker}
        if readers or number in storages.structure.recording.losses or key[0] < 0:
            values[key] = Value(key, maker, readers)
    return [values[key] for key in sorted(values)]


def aligned_values(recordings: list[Storages]) -> list[list[Value]]:
    """[num recordings][num values] The values of all recordings, each at the same place in all lists. A value that a recording
    does not have (a cache that nothing uses with checkpointing) has the key `MISSING` there."""
    slots: dict[int, list[tuple[Any, set[int], dict[int, Key]]]] = {}  # maker -> signature, readers, key per recording
    for r, storages in enumerate(recordings):
        own: dict[int, list[Value]] = {}
        for value in find_values(storages):
            own.setdefault(value.maker, []).append(value)
        for maker, values in own.items():
            slots[maker] = _merged(slots.get(maker, []), values, r, storages)
    result: list[list[Value]] = [[] for _ in recordings]
    for maker in sorted(slots):
        for _, readers, keys in slots[maker]:
            for r in range(len(recordings)):
                result[r].append(Value(keys.get(r, MISSING), maker, readers))
    return result


def _merged(slots: list[Any], values: list[Value], r: int, storages: Storages) -> list[Any]:
    """The slots of one maker with the values of another recording in their places."""

    def signature(value: Value) -> Any:
        number = storages.number[value.key]
        where = storages.structure.parts[value.key[0]].place[1] if value.key[0] >= 0 else -1
        return where, storages.tensor(number).shape, number in storages.structure.recording.losses

    new = [(signature(value), value.readers, {r: value.key}) for value in values]
    result: list[Any] = []
    matcher = difflib.SequenceMatcher(None, [s[0] for s in slots], [s[0] for s in new], autojunk=False)
    for what, a, b, c, d in matcher.get_opcodes():
        if what == "equal":
            for old, fresh in zip(slots[a:b], new[c:d]):
                result.append((old[0], old[1] | fresh[1], old[2] | fresh[2]))
        else:
            result += slots[a:b] + new[c:d]
    return result
