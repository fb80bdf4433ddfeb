"""The events of each call of a recorded step: its allocations and frees, in its forward and in its backward.

A storage that lives and dies within one call is written as it was recorded. A storage that passes between calls is an output
of the call that makes it, and each call that uses it releases it. The call that freed it releases it at that point. The others
release it after their last use: after the node that saved it, after the recomputation, or after the forward. The gradient of a
value is allocated in one call's backward and freed by an earlier call.

Not modeled: to which of several inputs of equal size from one maker a gradient belongs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Optional

from fsdp_capture.op_costs import COUNTED, PRODUCT, VIEW, Cost
from fsdp_capture.structure import OpPart, Structure
from fsdp_capture.values import Place, Storages, Value, aligned_values

TapeEvent = list  # as in the file
NO_STORAGE = {"parameter": 0, "bytes": 0}  # of a missing output


@dataclass
class CallTape:
    storage_op: list[int] = field(default_factory=list)
    forward: list[list[TapeEvent]] = field(default_factory=list)
    backward: list[list[TapeEvent]] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    work: list[list[int]] = field(default_factory=list)
    arithmetic: list[Optional[str]] = field(default_factory=list)  # [num ops] dtype of most FLOPs


@dataclass
class Interface:
    """The facts that all recordings of a step share."""

    values: list[Value]
    inputs: list[list[int]]  # [num calls] in `values`
    outputs: list[list[int]]  # [num calls] in `values`
    parameters: list[list[str]]  # [num calls] names


class TapeWriter:
    def __init__(self, storages: Storages, interface: Interface, is_checkpointed: bool) -> None:
        self._storages, self._interface = storages, interface
        self._structure: Structure = storages.structure
        self._recording = self._structure.recording
        self._is_checkpointed = is_checkpointed
        self._local: dict[int, int] = {}  # allocation -> storage of the call that made it
        self._value_of = {
            storages.number[v.key]: i for i, v in enumerate(interface.values) if v.key in storages.number
        }
        self.unclear: dict[str, int] = {}  # unknown facts of some storages -> bytes of these
        self.tapes = [
            CallTape(forward=[[] for _ in call.ops], backward=[[] for _ in call.ops]) for call in self._structure.calls
        ]
        self._ends: Any = defaultdict(list)  # (call, op, is_backward) -> events after the other events of the op
        self._gradients = dict(self._recording.gradients)
        self._first_of_sum: set[int] = set()  # allocations: gradients whose sum with another one is a new tensor,
        self._second_of_sum: dict[int, str] = {}  # that other one, and its parameter,
        self._sums: dict[int, str] = {}  # and the sum
        self.carried = self._find_carried()
        self._taken: set[tuple[int, int]] = set()
        self._early: set[int] = set()  # allocations: gradients of values that a forward makes
        self._passed: dict[int, int] = {}  # allocation -> value whose gradient it becomes

    def run(self) -> list[CallTape]:
        self._find_shared_gradients()
        self._find_sums()
        self._place_releases()
        dropped = {position: which for which, (_, position) in enumerate(sorted(self.carried.items()))}
        for position, event in enumerate(self._recording.events):
            if position in dropped:
                call, op = self._structure.parts[self._structure.part_of_event[position]].place
                self.tapes[call].forward[op].append(["drop_carried", dropped[position]])
            if self._structure.part_of_event[position] < 0 or event.number < 0:
                continue
            if event.what == "workspace":
                self._want_workspace(position)
            elif event.what == "alloc":
                self._alloc(event.number, event.bytes)
            elif event.what == "free":
                self._free(event.number)
        for call, tape in enumerate(self.tapes):
            for op in range(len(tape.forward)):
                tape.forward[op] += self._ends[call, op, False]
                tape.backward[op] += self._ends[call, op, True]
            self._finish(call, tape)
        return self.tapes

    def _note_unclear(self, number: int, what: str) -> None:
        self.unclear[what] = self.unclear.get(what, 0) + self._recording.sizes[number]

    # ---- allocations ---------------------------------------------------------------------------------------------

    def _list(self, place: Place) -> list[TapeEvent]:
        tape = self.tapes[place.call]
        return (tape.backward if place.is_backward else tape.forward)[place.op]

    def _new(self, call: int, op: int) -> int:
        self.tapes[call].storage_op.append(op)
        return len(self.tapes[call].storage_op) - 1

    def _alloc(self, number: int, size: int) -> None:
        born, gone = self._storages.born[number], self._storages.gone.get(number)
        if number in self._sums:
            self._local[number] = -1
            return self._list(born).append(["add_grad", self._parameter(born.call, self._sums[number])])
        if number in self._second_of_sum:
            self._local[number] = -1
            return self._list(born).append(["param_grad", self._parameter(born.call, self._second_of_sum[number]), size])
        if born.is_backward and number in self._gradients:
            parameter = self._parameter(born.call, self._gradients[number])
            if parameter >= 0:
                self._list(born).append(["param_grad", parameter, size, *([1] if number in self._first_of_sum else [])])
                self._ends[born.call, born.op, True].append(["add_grad", parameter])
                self._local[number] = -1
                return
        storage = self._local[number] = self._new(born.call, born.op)
        self._list(born).append(["alloc", storage, size])
        if number in self._gradients and self._becomes_gradient(number, storage, size):
            self._local[number] = -1
        elif self._is_early_gradient(number):
            self._emit_early(number, storage, size)
        elif gone is None and number not in self._recording.losses:
            if born.is_backward:
                self._behind_backward(born.call, ["free", storage])
            else:
                self._ends[born.call, born.op, False].append(["hold", storage])
                if number in self.carried:
                    left = self._new(born.call, born.op)
                    self._ends[born.call, born.op, False].append(["carry", left, size])
        elif gone is not None and born.is_backward and gone.call != born.call:
            self._emit(number, storage, born, gone)

    def _becomes_gradient(self, number: int, storage: int, size: int) -> bool:
        """A loss that computes its gradients in its forward returns them in its backward; from then on the storage belongs to
        the parameter. The tape frees it there and allocates the same size again."""
        born = self._storages.born[number]
        parameter = self._parameter(born.call, self._gradients[number])
        if born.is_backward or parameter < 0:
            return False
        self._ends[born.call, born.op, True] += [["free", storage], ["param_grad", parameter, size], ["add_grad", parameter]]
        return True

    def _is_early_gradient(self, number: int) -> bool:
        """The same for the gradient of a value: made in the forward of one call, and freed in the backward of an earlier
        one."""
        born, gone = self._storages.born[number], self._storages.gone.get(number)
        if born.is_backward or gone is None or number in self._value_of:
            return False
        return gone.is_backward and gone.call < born.call and self._structure.parts[
            self._structure.calls[born.call].ops[born.op]].has_backward

    def _emit_early(self, number: int, storage: int, size: int) -> None:
        born = self._storages.born[number]
        self._early.add(number)
        handed = self._local[number] = self._new(born.call, born.op)
        self._ends[born.call, born.op, True] += [["free", storage], ["alloc", handed, size]]
        self._emit(number, handed, born, self._storages.gone[number])

    def _want_workspace(self, position: int) -> None:
        event = self._recording.events[position]
        call, op = self._structure.parts[self._structure.part_of_event[position]].place
        self._list(Place(call, op, event.window >= 0)).append(["workspace", event.number])

    def _parameter(self, call: int, name: str) -> int:
        names = self._interface.parameters[call]
        return names.index(name) if name in names else -1

    def _lowest(self, call: int) -> int:
        """The op whose backward runs last, or -1."""
        ops = self._structure.calls[call].ops
        return next((op for op, part in enumerate(ops) if self._structure.parts[part].has_backward), -1)

    def _behind_backward(self, call: int, event: TapeEvent) -> None:
        op = self._lowest(call)
        last = len(self._structure.calls[call].ops) - 1
        self._ends[call, op if op >= 0 else last, op >= 0].append(event)

    def _find_carried(self) -> dict[int, int]:
        """Tensors that a variable of the script keeps alive into the next step (`out = model(x)`: the logits are freed by the
        next assignment to `out`): allocation -> the event that frees the previous step's tensor."""
        recording = self._recording
        left = [
            position
            for position, event in enumerate(recording.events)
            if event.what == "free" and event.number < 0 and event.window < 0 and self._structure.part_of_event[position] >= 0
        ]
        carried: dict[int, int] = {}
        for number, born in sorted(self._storages.born.items()):
            if born.is_backward or number in self._storages.gone or number in recording.losses:
                continue
            same = [position for position in left if recording.events[position].bytes == recording.sizes[number]]
            if same:
                carried[number] = same[0]
                left.remove(same[0])
        return carried

    # ---- values --------------------------------------------------------------------------------------------------

    def _place_releases(self) -> None:
        """Places the releases of values that another call frees, or that nobody frees."""
        for call in range(len(self.tapes)):
            for place, value in enumerate(self._interface.inputs[call]):
                number = self._storages.number.get(self._interface.values[value].key, -1)
                gone = self._storages.gone.get(number)
                if gone is not None and gone.call == call:
                    continue
                self._release(call, number, ["release_input", place])

    def _release(self, call: int, number: int, event: TapeEvent) -> None:
        is_member = self._structure.calls[call].member is not None
        if self._is_checkpointed and is_member and self._lowest(call) >= 0:
            return self._behind_backward(call, event)
        saved = [self._structure.parts[part] for part in self._structure.saved_at.get(number, ())]
        ops = [part.place[1] for part in saved if part.place[0] == call and part.has_backward]
        if ops:
            self._ends[call, min(ops), True].append(event)
        else:
            self._ends[call, len(self._structure.calls[call].ops) - 1, False].append(event)

    def _free(self, number: int) -> None:
        born, gone = self._storages.born.get(number), self._storages.gone[number]
        where = self._list(gone)
        value = self._value_of.get(number, -1)
        if self._local.get(number) == -1:
            return  # the gradient of a parameter: its reduction frees it
        if value >= 0 and value in self._interface.inputs[gone.call]:
            where.append(["release_input", self._interface.inputs[gone.call].index(value)])
        elif born is None:
            return  # made before the step, or outside the recording
        elif born.call == gone.call:
            storage = self._local[number]
            is_output = value >= 0 and value in self._interface.outputs[born.call]
            where.append(["release_output" if is_output and gone.is_backward else "free", storage])
        elif born.is_backward or number in self._early:
            self._use_gradient(number, born, gone)
        else:
            self._note_unclear(number, "outlive the call that made them")
            self._behind_backward(born.call, ["free", self._local[number]])

    # ---- gradients -----------------------------------------------------------------------------------------------

    def _find_shared_gradients(self) -> None:
        """For a parameter that several calls use: the first gradient is freed when the last call accumulates it."""
        made_in: Any = defaultdict(list)
        for number, name in self._recording.gradients.items():
            if number in self._storages.born:
                made_in[self._storages.born[number].call].append((number, name))
        taken: set[tuple[int, str]] = set()
        for number, gone in self._storages.gone.items():
            born = self._storages.born.get(number)
            if born is None or born.call == gone.call or not gone.is_backward:
                continue
            if not born.is_backward and not self._is_early_gradient(number):
                continue
            reads = self._structure.parameter_reads[self._structure.calls[born.call].ops[born.op]]
            fitting = [
                name
                for final, name in made_in[gone.call]
                if name in self._interface.parameters[born.call] and self._recording.sizes[final] == self._recording.sizes[number]
            ]
            # Among parameters of equal size, the one that the op reads; never the same one twice.
            fitting.sort(key=lambda name: (name not in reads, (born.call, name) in taken))
            if fitting:
                self._gradients[number] = fitting[0]
                taken.add((born.call, fitting[0]))

    def _find_sums(self) -> None:
        """Finds sums of two gradients of a parameter in a new tensor, which autograd makes if the first is a view: the new one
        remains, and both others are freed."""
        place = {("alloc", event.number): i for i, event in enumerate(self._recording.events) if event.what == "alloc"}
        place |= {("free", event.number): i for i, event in enumerate(self._recording.events) if event.what == "free"}
        for total, name in self._recording.gradients.items():
            at, born = place.get(("alloc", total), -1), self._storages.born.get(total)
            if born is None or not born.is_backward or self._parameter(born.call, name) < 0:
                continue
            going = [
                number
                for number, gone in self._storages.gone.items()
                if gone.call == born.call
                and gone.is_backward
                and self._recording.sizes[number] == self._recording.sizes[total]
                and place.get(("alloc", number), at) < at < place["free", number]
            ]
            firsts = [number for number in going if self._gradients.get(number) == name]
            others = [n for n in going if n not in self._gradients and self._storages.born[n].call == born.call and self._storages.born[n].is_backward]
            if len(firsts) == 1 and others:
                self._first_of_sum.add(firsts[0])
                self._second_of_sum[min(others, key=lambda n: abs(place["free", n] - place["free", firsts[0]]))] = name
                self._sums[total] = name

    def _candidates(self, call: int, maker: int) -> list[int]:
        """Inputs of a call that `maker` makes and that may have a gradient."""
        result = []
        for place, value in enumerate(self._interface.inputs[call]):
            if self._interface.values[value].maker == maker and self._has_gradient(call, value):
                result.append(place)
        return result

    def _has_gradient(self, call: int, value: int) -> bool:
        """Whether an op with a backward in this call reads the value, and an op with a backward in another call made it."""
        parts = self._structure.parts
        key = self._interface.values[value].key
        number = self._storages.number.get(key, -1)
        if number < 0 or key[0] < 0 or not parts[key[0]].has_backward:
            return False
        readers = self._structure.readers.get(number, ())
        is_read = any(parts[r].place[0] == call and parts[r].has_backward for r in readers)
        return is_read and "float" in self._storages.tensor(number).dtype

    def _sizes(self, call: int, value: int) -> set[int]:
        """The sizes of a value and of the call's reads of it: the gradient of a slice is as large as the slice."""
        number = self._storages.number.get(self._interface.values[value].key, -1)
        if number < 0:
            return {0}
        sizes = {self._recording.sizes[number]}
        for part in self._structure.readers.get(number, ()):
            if self._structure.call_of(part) == call:
                for op in self._structure.parts[part].dispatched:
                    read = zip(self._recording.ops[op].inputs, self._recording.reads[op])
                    sizes |= {tensor.bytes for tensor, storage in read if storage == number}
        return sizes

    def _of_size(self, call: int, places: list[int], number: int) -> list[int]:
        """The unused inputs whose gradients have the size of a storage."""
        inputs, size = self._interface.inputs[call], self._recording.sizes[number]
        return [p for p in places if (call, p) not in self._taken and size in self._sizes(call, inputs[p])]

    def _emit(self, number: int, storage: int, born: Place, gone: Place) -> None:
        """A gradient that one call makes and an earlier one frees belongs to an input that the earlier one made, or that it
        also reads and adds its own gradient to; otherwise the calls between pass it through."""
        call, inputs = born.call, self._interface.inputs[born.call]
        direct = self._candidates(call, gone.call)
        others = set(self._interface.inputs[gone.call])
        shared = [p for p, v in enumerate(inputs) if v in others and self._has_gradient(call, v)]
        for places in (self._of_size(call, direct, number), self._of_size(call, shared, number)):
            if places:
                return self._give(call, born.op, storage, places[0])
        path = self._path(call, gone.call, number)
        if path:
            return self._pass_on(number, storage, born, path)
        for places in (direct, shared):
            if places:
                return self._give(call, born.op, storage, places[0])
        self._note_unclear(number, "of gradients pass in a way that is not understood")
        self._behind_backward(call, ["free", storage])

    def _give(self, call: int, op: int, storage: int, place: int) -> None:
        self._taken.add((call, place))
        self._ends[call, op, True].append(["emit_grad", storage, place])

    def _path(self, call: int, last: int, number: int) -> list[tuple[int, int]]:
        """Calls and their inputs through which a gradient reaches `last`, each through the input that it reads first."""
        path: list[tuple[int, int]] = []
        while call > last:
            all_places = range(len(self._interface.inputs[call]))
            places = [p for p in all_places if self._has_gradient(call, self._interface.inputs[call][p])]
            fitting = self._of_size(call, places, number)
            if not fitting:
                return []
            path.append((call, fitting[0]))
            call = self._interface.values[self._interface.inputs[call][fitting[0]]].maker
        return path if call == last else []

    def _pass_on(self, number: int, storage: int, born: Place, path: list[tuple[int, int]]) -> None:
        through = -1
        for call, place in path:
            if through < 0:
                self._give(call, born.op, storage, place)
            else:
                self._taken.add((call, place))
                output = self._interface.outputs[call].index(through)
                self._behind_backward(call, ["forward_grad", output, place])
                self._behind_backward(call, ["release_grad", output])
            through = self._interface.inputs[call][place]
        self._passed[number] = through

    def _use_gradient(self, number: int, born: Place, gone: Place) -> None:
        where = self._list(gone)
        emitted = [e for e in self._ends[born.call, born.op, True] if e[0] == "emit_grad" and e[1] == self._local[number]]
        value = self._passed.get(number, -1)
        if emitted and value < 0:
            value = self._interface.inputs[born.call][emitted[0][2]]
        if value in self._interface.outputs[gone.call]:
            where.append(["release_grad", self._interface.outputs[gone.call].index(value)])
        elif value in self._interface.inputs[gone.call]:
            where.append(["drop_grad", self._interface.inputs[gone.call].index(value)])

    # ---- the rest of a tape ----------------------------------------------------------------------------------------

    def _finish(self, call: int, tape: CallTape) -> None:
        for value in self._interface.outputs[call]:
            number = self._storages.number.get(self._interface.values[value].key, -1)
            if number < 0:
                tape.outputs.append(dict(NO_STORAGE))
                continue
            gone = self._storages.gone.get(number)
            kept = gone is not None and gone.call == call and gone.is_backward
            size = self._recording.loss_bytes_of.get(number, self._recording.sizes[number])
            tape.outputs.append({"storage": self._local[number], "bytes": size, "kept": kept})
        for part in self._structure.calls[call].ops:
            tape.work.append(self._work(part))
            tape.arithmetic.append(self._arithmetic(part))

    def _work(self, number: int) -> list[int]:
        """FLOPs of products, convolutions and attention, bytes and kernels; forward, then backward."""
        part = self._structure.parts[number]
        work = [0] * 10
        products, alone = 0, []
        for cost in self._costs(part):
            work[3] += cost.moved
            work[4] += cost.kernels
            if cost.kind in COUNTED:
                work[COUNTED.index(cost.kind)] += cost.flops
            if cost.kind == PRODUCT and cost.products == 0:
                alone.append(cost.flops)
            if part.has_backward and (cost.backward_flops or cost.backward_moved):
                if cost.kind in COUNTED:
                    work[5 + COUNTED.index(cost.kind)] += cost.backward_flops
                work[8] += cost.backward_moved
                work[9] += cost.kernels
                products += cost.products
        more = part.products - products
        if more > 0 and alone:  # an autograd function of the script, whose forward does not show the products of its backward
            work[5] += more * (sum(alone) // len(alone))
            work[9] += more
        return work

    def _costs(self, part: OpPart) -> list[Cost]:
        return [self._recording.ops[d].cost for d in part.dispatched if self._recording.ops[d].cost.kind != VIEW]

    def _arithmetic(self, number: int) -> Optional[str]:
        """The dtype in which products, convolutions and attention of an op compute; under autocast it differs from that of the
        activations."""
        ops = [self._recording.ops[d] for d in self._structure.parts[number].dispatched]
        counted = [op for op in ops if op.cost.flops > 0 and op.outputs]
        return max(counted, key=lambda op: op.cost.flops).outputs[0].dtype if counted else None


def interfaces_of(recordings: list[Storages], parameters: dict[str, int]) -> list[Interface]:
    """One for each recording; they differ only in the keys of their values. `parameters`: names in the order of the model."""
    base = recordings[0].structure
    names: list[set[str]] = [set() for _ in base.calls]
    for storages in recordings:
        of = storages.structure
        for number, part in enumerate(of.parts):
            names[part.place[0]] |= of.parameter_reads[number]
        for number, name in of.recording.gradients.items():
            born: Optional[Place] = storages.born.get(number)
            if born is not None:
                names[born.call].add(name)
    ordered = [sorted(n, key=lambda each: parameters[each]) for n in names]
    aligned = aligned_values(recordings)
    inputs: list[list[int]] = [[] for _ in base.calls]
    outputs: list[list[int]] = [[] for _ in base.calls]
    for i, value in enumerate(aligned[0]):
        if value.maker >= 0:
            outputs[value.maker].append(i)
        for call in value.readers:
            inputs[call].append(i)
    for call, of_call in enumerate(inputs):
        of_call.sort(key=lambda i: (recordings[0].first_read(aligned[0][i].key, call), i))
    return [Interface(values, inputs, outputs, ordered) for values in aligned]
