"""What passes between calls: which call makes a value, and which ones read or hold it."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsdp_capture.recorder import Tensor
from fsdp_capture.structure import Structure

Key = tuple[int, int]  # part and place among what it makes; part -1: of the batch


@dataclass(frozen=True)
class Place:
    """Where a storage goes."""

    call: int
    op: int
    is_backward: bool
    position: int  # event


@dataclass
class Value:
    key: Key
    maker: int  # call; -1: the batch
    readers: set[int] = field(default_factory=set)  # calls


class Storages:
    """The storages of one recording by their keys, which are those of every other recording of the step."""

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
            where[event.number] = Place(call, op, event.window >= 0, position)

    def maker(self, key: Key) -> int:
        return self.structure.call_of(key[0]) if key[0] >= 0 else -1

    def holders(self, number: int) -> set[int]:
        """Calls that read a storage, keep it for their backward, or let it go."""
        calls = {self.structure.call_of(part) for part in self.structure.readers.get(number, ())}
        calls |= {self.structure.call_of(part) for part in self.structure.saved_at.get(number, ())}
        gone = self.gone.get(number)
        return calls | ({gone.call} if gone is not None else set())

    def first_read(self, key: Key, call: int) -> tuple[int, int]:
        """The op of a call that reads a value first, and the place among what it reads; behind all others where none does."""
        number = self.number[key]
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


def find_values(recordings: list[Storages]) -> list[Value]:
    """The values that pass between calls in any of the recordings, in the order in which they are made."""
    values: dict[Key, Value] = {}
    for storages in recordings:
        for key, number in storages.number.items():
            maker = storages.maker(key)
            readers = {call for call in storages.holders(number) if call > maker}
            is_loss = number == storages.structure.recording.loss
            if readers or is_loss or key[0] < 0:
                values.setdefault(key, Value(key, maker)).readers.update(readers)
    return [values[key] for key in sorted(values)]
