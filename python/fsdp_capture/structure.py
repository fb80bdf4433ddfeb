"""Ops, calls and values of a recorded step.

An op is a stretch of the forward in which one module runs and none inside it: the work of `mlp.gate`, or that of the layer
itself between two of its parts. A call is one run of a repeated module (a decoder layer), or the work between two of them. A
value is a storage that one op makes and another reads.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from fsdp_capture.passes import NotAlike
from fsdp_capture.recorder import Event, Recording


@dataclass
class OpPart:
    """A stretch of the forward."""

    call: int  # module call in the recording; -1 outside the root
    after_root: bool
    dispatched: list[int] = field(default_factory=list)  # in Recording.ops
    made: list[int] = field(default_factory=list)  # allocations, in order
    has_backward: bool = False
    products: int = 0  # matrix products that its backward ran
    member: int = -1  # the module call of its stack's member
    number: int = 0  # of the pass of its forward
    backward: int = -1  # of the pass of its backward
    top: str = ""  # its root, for a step of passes
    is_border: bool = False  # an empty part between two calls of one module
    place: tuple[int, int] = (-1, -1)  # call and op


@dataclass
class StepCall:
    """One run of a block."""

    member: Optional[str]  # the stack's member; None for the work between two members
    after_root: bool
    ops: list[int] = field(default_factory=list)  # in Structure.parts
    number: int = 0  # of its pass
    backward: int = -1  # of the pass of its backward
    top: str = ""


@dataclass
class Structure:
    recording: Recording
    parts: list[OpPart]
    calls: list[StepCall]
    before_root: set[int]  # allocations of the batch
    part_of_event: list[int]  # [num events] -1 if outside
    parameter_reads: list[set[str]] = field(default_factory=list)  # [num parts]
    readers: dict[int, set[int]] = field(default_factory=dict)  # allocation -> parts that read it
    saved_at: dict[int, set[int]] = field(default_factory=dict)  # allocation -> parts whose nodes save it
    # For a step of passes: allocation -> parameter that autocast has cast to it, for all readers inside one autocast. The cast
    # is no argument of a module, so no hook of FSDP2 waits for its gradient: its readers count as readers of the parameter.
    casts: dict[int, str] = field(default_factory=dict)
    is_by_turns: bool = False
    num_passes: int = 1
    # The clearings: (pass, part before it, index in Recording.said). For a step of passes also the optimizers: (pass, index in
    # said).
    clearings: list[tuple[int, int, int]] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)

    def call_of(self, part: int) -> int:
        return self.parts[part].place[0]


def structure_of(
    recording: Recording, stacks: list[list[str]], parameter_names: dict[int, str], tops: Sequence[str] = ()
) -> Structure:
    """`parameter_names`: by the address of their storage; `tops`: models of a step of passes. Raises NotAlike if its backwards
    cannot be told apart."""
    members = {name for stack in stacks for name in stack}
    member_of = _members(recording, members)
    if tops:
        structure = PassCutter(recording, member_of, tops).run()
        structure.is_by_turns = True
    else:
        parts, before_root, part_of_event, clearings = _cut(recording, member_of)
        structure = Structure(recording, parts, [], before_root, part_of_event, clearings=clearings)
    _attribute_backward(structure)
    _drop_empty(structure)
    _separate(structure)
    structure.calls = _calls(recording, structure.parts)
    _find_reads(structure, parameter_names)
    return structure


def _members(recording: Recording, members: set[str]) -> list[int]:
    """For each module call, the call of its stack's member, or -1."""
    result: list[int] = []
    for number, call in enumerate(recording.calls):
        above = result[call.parent] if call.parent >= 0 else -1
        result.append(above if above >= 0 else number if call.name in members else -1)
    return result


def _cut(recording: Recording, member_of: list[int]) -> tuple[list[OpPart], set[int], list[int], list[tuple[int, int, int]]]:
    """Parts, allocations of the batch, the part of each event, and clearings as in Structure."""
    parts: list[OpPart] = []
    clearings: list[tuple[int, int, int]] = []
    before_root: set[int] = set()
    part_of_event = [-1] * len(recording.events)
    roots = {number for number, call in enumerate(recording.calls) if call.name == ""}
    inside, seen_root, is_backward = 0, False, False
    early: list[int] = []  # frees of the script after the root has returned, before its next computation
    for position, event in enumerate(recording.events):
        is_backward = is_backward or event.what in ("end", "window")
        if is_backward:
            continue
        if event.what == "clear":
            clearings.append((0, len(parts), event.number))
            continue
        if event.what in ("enter", "leave") and event.number in roots:
            inside += 1 if event.what == "enter" else -1
            seen_root = True
        if event.what in ("enter", "leave"):
            continue
        if not seen_root:
            if event.what == "alloc":
                before_root.add(event.number)
            continue
        call = event.call
        while call >= 0 and recording.calls[call].name is None:
            call = recording.calls[call].parent
        if event.what == "free" and event.number < 0 and inside == 0 and parts and not parts[-1].after_root:
            early.append(position)
        elif event.what != "free" and not (parts and parts[-1].call == call and parts[-1].after_root == (inside == 0)):
            parts.append(OpPart(call, inside == 0, member=member_of[call] if call >= 0 else -1))
            for each in early:
                part_of_event[each] = len(parts) - 1
            early = []
        if not parts or position in early:
            continue
        part_of_event[position] = len(parts) - 1
        if event.what == "alloc":
            parts[-1].made.append(event.number)
        elif event.what == "op":
            parts[-1].dispatched.append(event.number)
    for each in early:
        part_of_event[each] = len(parts) - 1
    return parts, before_root, part_of_event, clearings


class PassCutter:
    """Cuts a step of passes as `_cut` does, forward by forward. Events after the last backward do not count."""

    def __init__(self, recording: Recording, member_of: list[int], tops: Sequence[str]) -> None:
        self._recording, self._member_of, self._tops = recording, member_of, set(tops)
        self._structure = Structure(recording, [], [], set(), [-1] * len(recording.events), num_passes=len(recording.losses))
        self._number = 0  # of the pass
        self._top = ""  # the running model
        self._early: list[int] = []  # events: frees after a backward, before the first op of the next pass
        self._has_batch = not self._lets_batch_go()

    def _lets_batch_go(self) -> bool:
        """Whether allocations from before the first model are freed in a later forward, if each pass has its own batch.
        Otherwise they are the batch of the step, which exists until the next one."""
        batch: set[int] = set()
        number, is_before = 0, True
        for event in self._recording.events:
            number += event.what == "begin"
            is_before = is_before and not (event.what == "enter" and self._recording.calls[event.number].name in self._tops)
            if is_before and event.what == "alloc":
                batch.add(event.number)
            if event.what == "free" and event.window < 0 and 0 < number < self._structure.num_passes and event.number in batch:
                return True
        return False

    def run(self) -> Structure:
        in_backward = False
        for position, event in enumerate(self._recording.events):
            if event.what == "end":
                in_backward = True
            elif event.what == "begin":
                in_backward = False
                self._number += 1
            elif event.what == "clear":
                self._structure.clearings.append((self._number, len(self._structure.parts), event.number))
            elif event.what == "step":
                self._structure.steps.append((self._number - 1, event.number))
            elif event.what == "gradient":
                continue
            elif not in_backward and self._number < self._structure.num_passes:
                self._take(position, event)
        return self._structure

    def _take(self, position: int, event: Event) -> None:
        parts = self._structure.parts
        if event.what == "window":
            raise NotAlike("The script asks for gradients in a forward, by torch.autograd.grad for one, which is not predicted.")
        if event.what in ("enter", "leave"):
            return self._pass_border(event)
        if self._has_batch and not parts and not self._top:
            if event.what == "alloc":
                self._structure.before_root.add(event.number)
            return None
        call = event.call
        while call >= 0 and self._recording.calls[call].name is None:
            call = self._recording.calls[call].parent
        last = parts[-1] if parts else None
        if event.what == "free" and last is not None and last.number != self._number:
            self._early.append(position)
            return None
        key = (call, not self._top, self._number, self._top)
        is_new = last is None or last.is_border or (last.call, last.after_root, last.number, last.top) != key
        if event.what != "free" and is_new:
            parts.append(self._part(call))
            for early in self._early:
                self._structure.part_of_event[early] = len(parts) - 1
            self._early = []
        if not parts:
            return None
        self._structure.part_of_event[position] = len(parts) - 1
        if event.what == "alloc":
            parts[-1].made.append(event.number)
        elif event.what == "op":
            parts[-1].dispatched.append(event.number)
        return None

    def _part(self, call: int) -> OpPart:
        member = self._member_of[call] if call >= 0 else -1
        return OpPart(call, not self._top, member=member, number=self._number, top=self._top)

    def _pass_border(self, event: Event) -> None:
        name = self._recording.calls[event.number].name
        if name not in self._tops:
            return
        if event.what == "leave":
            self._top = ""
            return
        if self._top:
            raise NotAlike(f"{name} is called within the forward of {self._top}.")
        parts = self._structure.parts
        if parts and (parts[-1].top, parts[-1].number) == (name, self._number):  # otherwise both would be one call of it
            parts.append(self._part(-1))
            parts[-1].is_border = True
        self._top = name or ""


def _calls(recording: Recording, parts: list[OpPart]) -> list[StepCall]:
    calls: list[StepCall] = []
    last: Any = None
    for number, part in enumerate(parts):
        key = (part.member, part.after_root, part.number, part.top)
        is_other = last is not None and part.backward >= 0 and calls[-1].backward not in (-1, part.backward)
        if key != last or is_other:
            member = recording.calls[part.member].name if part.member >= 0 else None
            calls.append(StepCall(member, part.after_root, number=part.number, top=part.top))
            last = key
        calls[-1].backward = max(calls[-1].backward, part.backward)
        part.place = (len(calls) - 1, len(calls[-1].ops))
        calls[-1].ops.append(number)
    return calls


def _attribute_backward(structure: Structure) -> None:
    """Windows of the backward belong to the op that made their node; a window without a node belongs to the previous op. A
    node that runs later than its place belongs to the op that runs then."""
    recording = structure.recording
    part_of_node: dict[int, int] = {}
    for position, event in enumerate(recording.events):
        part = structure.part_of_event[position]
        if event.what == "node" and part >= 0:
            part_of_node[event.number] = part
    current = number = -1
    for position, event in enumerate(recording.events):
        if event.what == "end":
            current, number = -1, number + 1
        if event.what in ("workspace", "product") and event.window >= 0 and not event.recomputed:
            of_node = part_of_node.get(recording.windows[event.window][1], -1)
            structure.parts[of_node].products += of_node >= 0
        if event.what == "window":
            wanted = part_of_node.get(recording.windows[event.number][1], -1)
            if wanted >= 0 and (current < 0 or wanted < current):
                current = wanted
                part = structure.parts[current]
                if part.has_backward and part.backward != number:
                    raise NotAlike("Two backwards run through one forward (retain_graph=True), which is not predicted.")
                part.has_backward, part.backward = True, number
        if event.window >= 0 and current >= 0:
            structure.part_of_event[position] = current


def _drop_empty(structure: Structure) -> None:
    """Joins a part without computation with the previous one."""
    kept: list[OpPart] = []
    number: list[int] = []
    for part in structure.parts:
        if part.dispatched or part.made or part.has_backward or part.is_border or not kept:
            kept.append(part)
        number.append(len(kept) - 1)
    structure.parts = kept
    structure.clearings = [
        (of, number[part] if part < len(number) else len(kept), said) for of, part, said in structure.clearings
    ]
    structure.part_of_event = [number[part] if part >= 0 else -1 for part in structure.part_of_event]


def _separate(structure: Structure) -> None:
    """If a module ends and runs again at once, such as a layer that is called many times, inserts a border: an empty part of
    the enclosing module. FSDP2 gathers a unit for each run of its module, which are the stretches of its parts."""
    kept: list[OpPart] = []
    number: list[int] = []
    around: dict[str, int] = {}
    for part in structure.parts:
        before, around = around, _around(structure.recording, part.call)
        runs_again = any(name and before.get(name, call) != call for name, call in around.items())
        if kept and runs_again and (kept[-1].member, kept[-1].number, kept[-1].top) == (part.member, part.number, part.top):
            both = [call for name, call in around.items() if before.get(name) == call]
            border = OpPart(both[0] if both else -1, part.after_root, member=part.member, number=part.number, top=part.top)
            border.is_border = True
            kept.append(border)
        kept.append(part)
        number.append(len(kept) - 1)
    structure.parts = kept
    structure.clearings = [(of, number[part] if part < len(number) else len(kept), said) for of, part, said in structure.clearings]
    structure.part_of_event = [number[part] if part >= 0 else -1 for part in structure.part_of_event]


def _around(recording: Recording, call: int) -> dict[str, int]:
    """The modules around a call of a module, the innermost first and itself included, each with the number of its call."""
    around: dict[str, int] = {}
    while call >= 0:
        name = recording.calls[call].name
        if name is not None:
            around.setdefault(name, call)
        call = recording.calls[call].parent
    return around


def _find_casts(structure: Structure, parameter_names: dict[int, str]) -> None:
    recording = structure.recording
    for part in structure.parts:
        for op in part.dispatched:
            reads, makes = recording.reads[op], recording.makes[op]
            if recording.ops[op].name == "_to_copy" and len(reads) == len(makes) == 1 and reads[0] < 0 <= makes[0]:
                name = parameter_names.get(recording.older[-1 - reads[0]])
                if name is not None:
                    structure.casts[makes[0]] = name


def _find_reads(structure: Structure, parameter_names: dict[int, str]) -> None:
    recording = structure.recording
    if structure.is_by_turns:
        _find_casts(structure, parameter_names)
    readers: dict[int, set[int]] = defaultdict(set)
    saved_at: dict[int, set[int]] = defaultdict(set)
    for number, part in enumerate(structure.parts):
        parameters: set[str] = set()
        for op in part.dispatched:
            for read in recording.reads[op]:
                if read in structure.casts:
                    parameters.add(structure.casts[read])
                if read >= 0:
                    readers[read].add(number)
                else:
                    name = parameter_names.get(recording.older[-1 - read])
                    if name is not None:
                        parameters.add(name)
        structure.parameter_reads.append(parameters)
    for position, event in enumerate(recording.events):
        if event.what == "save" and event.number >= 0 and structure.part_of_event[position] >= 0 and event.window < 0:
            saved_at[event.number].add(structure.part_of_event[position])
    structure.readers, structure.saved_at = readers, saved_at


def entered_modules(recording: Recording) -> set[str]:
    """Modules that run only when they are called: FSDP2 gathers such a unit in its own forward."""
    entered = {call.name for call in recording.calls if call.name is not None}
    for call in recording.calls:
        around, above = {""}, call.parent
        while above >= 0:
            around.add(recording.calls[above].name or "")
            above = recording.calls[above].parent
        name = call.name or ""
        while name := name.rpartition(".")[0]:
            if name not in around:
                entered.discard(name)
    return entered


def align(base: Structure, other: Structure) -> bool:
    """Gives a recording the parts of another one of the same step: its additional parts join a neighbor, missing ones are
    empty. False if it runs other modules."""
    ours, theirs = _names(base), _names(other)
    if ours == theirs:
        return True
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    if matcher.ratio() < 0.9:
        return False
    place = [-1] * len(theirs)
    for a, b, count in matcher.get_matching_blocks():
        for i in range(count):
            place[b + i] = a + i
    for number, part in enumerate(other.parts):
        if place[number] < 0:
            place[number] = _neighbor(base, place, number, part.has_backward)
            if place[number] < 0:
                return False
    parts = [OpPart(part.call, part.after_root, number=part.number, top=part.top) for part in base.parts]
    for number, part in enumerate(other.parts):
        into = parts[place[number]]
        into.dispatched += part.dispatched
        into.made += part.made
        into.has_backward = into.has_backward or part.has_backward
        into.backward = max(into.backward, part.backward)
    # Each recording numbers its own calls of modules.
    for part, of_base in zip(parts, base.parts):
        part.place, part.member = of_base.place, of_base.member
    other.parts, other.calls = parts, base.calls
    other.part_of_event = [place[part] if part >= 0 else -1 for part in other.part_of_event]
    other.parameter_reads = [
        set().union(*(reads for n, reads in enumerate(other.parameter_reads) if place[n] == number))
        for number in range(len(parts))
    ]
    other.readers = {number: {place[part] for part in of} for number, of in other.readers.items()}
    other.saved_at = {number: {place[part] for part in of} for number, of in other.saved_at.items()}
    return True


def _names(structure: Structure) -> list[Any]:
    calls = structure.recording.calls
    return [(calls[p.call].name if p.call >= 0 else None, p.after_root) for p in structure.parts]


def _neighbor(base: Structure, place: list[int], number: int, has_backward: bool) -> int:
    """The neighboring part of `base` that can absorb a part that `base` does not have."""
    before = next((place[n] for n in range(number - 1, -1, -1) if place[n] >= 0), -1)
    after = next((place[n] for n in range(number + 1, len(place)) if place[n] >= 0), -1)
    fitting = [n for n in (before, after) if n >= 0 and (base.parts[n].has_backward or not has_backward)]
    return fitting[0] if fitting else -1
