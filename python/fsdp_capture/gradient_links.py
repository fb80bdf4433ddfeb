"""Finds the gradient flow between the ops of a step: the values that ops read and make within a call. If these would cut off
an op that has a backward, we add a link of no bytes to the next op that has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fsdp_capture.op_costs import VIEW
from fsdp_capture.structure import Structure
from fsdp_capture.tapes import Interface
from fsdp_capture.values import Storages


class Flow:
    def __init__(
        self,
        structure: Structure,
        storages: Storages,
        interface: Interface,
        parameters: list[dict[str, Any]],
        activation: str,
    ) -> None:
        self._structure, self._storages, self._interface = structure, storages, interface
        self._activation = activation
        self._trainable = {p["name"] for p in parameters if p["trainable"]}
        self._asked_for = self._find_asked_for()
        self._links: list[tuple[int, int]] = []  # between parts
        self._crossing: list[tuple[int, int, int]] = []  # call, call, number of the link
        self._find_links()
        for number, (maker, reader) in enumerate(self._links):
            calls = structure.call_of(maker), structure.call_of(reader)
            if calls[0] != calls[1]:
                self._crossing.append((*calls, number))

    @property
    def num_links(self) -> int:
        """The number of links between calls, which are values of the model after all others."""
        return len(self._crossing)

    def inputs_of(self, call: int) -> list[int]:
        first = len(self._interface.values)
        return [first + i for i, (_, reader, _) in enumerate(self._crossing) if reader == call]

    def outputs_of(self, call: int) -> list[int]:
        first = len(self._interface.values)
        return [first + i for i, (maker, _, _) in enumerate(self._crossing) if maker == call]

    def num_output_links(self, call: int) -> int:
        return len(self.outputs_of(call))

    # ---- reads and writes of an op ----------------------------------------------------------------------------------

    def _reads(self, part: int) -> list[int]:
        """Allocations that the op reads and did not make."""
        recording = self._structure.recording
        found = {read for d in self._structure.parts[part].dispatched for read in recording.reads[d] if read >= 0}
        found -= self._structure.casts.keys()
        return sorted(found - set(self._structure.parts[part].made))

    def _is_floating(self, number: int) -> bool:
        return number in self._storages.key and "float" in self._storages.tensor(number).dtype

    def _find_asked_for(self) -> set[int]:
        """Allocations that require a gradient although none of their inputs does. The script requests this, for example if
        checkpoints follow a frozen embedding (enable_input_require_grads)."""
        recording, parts = self._structure.recording, self._structure.parts
        passed_on = {made for part in parts if part.has_backward for made in part.made}
        return {
            read
            for part in parts
            if part.has_backward
            for d in part.dispatched
            for tensor, read in zip(recording.ops[d].inputs, recording.reads[d])
            if read >= 0 and tensor.requires_grad and read not in passed_on
        }

    def _find_links(self) -> None:
        """Follows gradients as the readers of the file do, and links ops that would not be reached."""
        losses = self._structure.recording.losses
        for number in range(self._structure.num_passes):
            of_pass = [i for i, part in enumerate(self._structure.parts) if part.has_backward and part.backward == number]
            self._find_links_of(of_pass, losses[number] if number < len(losses) else -1)

    def _find_links_of(self, with_backward: list[int], loss: int) -> None:
        """Links within one backward; no gradient passes from one backward to another."""
        parts = self._structure.parts
        requires = set(self._asked_for)
        for place, part in enumerate(with_backward):
            reads = self._reads(part)
            has = bool(self._structure.parameter_reads[part] & self._trainable) or any(r in requires for r in reads)
            if not has and place > 0:
                self._links.append((with_backward[place - 1], part))
            requires |= {made for made in parts[part].made if self._is_floating(made)}
        reached: set[int] = {loss}
        own = set(with_backward)
        linked = {reader: maker for maker, reader in self._links if reader in own}
        makers = set(linked.values())
        for place in range(len(with_backward) - 1, -1, -1):
            part = with_backward[place]
            reaches = any(made in reached for made in parts[part].made) or part in makers
            if not reaches and place + 1 < len(with_backward):
                self._links.append((part, with_backward[place + 1]))
            reached |= {read for read in self._reads(part) if self._is_floating(read)}
            if part in linked:
                makers.add(linked[part])

    # ---- blocks ------------------------------------------------------------------------------------------------------

    def block(self, call: int, module_of: Callable[[int], int]) -> tuple[list[Any], list[Any], list[int]]:
        """Values, ops and outputs of the block of a call."""
        step = self._structure.calls[call]
        inputs, outputs = self._interface.inputs[call], self._interface.outputs[call]
        rows: list[dict[str, Any]] = []
        place: dict[Any, int] = {}

        def add(key: Any, number: int) -> None:
            place[key] = len(rows)
            tensor = self._storages.tensor(number) if number >= 0 else None
            is_own = tensor is None or tensor.dtype == self._activation
            shape = list(tensor.shape) if tensor is not None else [0]
            row = {"name": f"v{len(rows)}", "shape": shape, "dtype": None if is_own else tensor.dtype}
            # At the op that makes it, and for the batch at the op that reads it.
            if number in self._asked_for and (len(rows) >= len(inputs) or self._storages.key[number][0] < 0):
                row["requires_grad"] = True
            rows.append(row)

        for value in inputs:
            number = self._number(value)
            add(number if number >= 0 else ("value", value), number)
        for value in self.inputs_of(call):
            add(("link", value), -1)
        for part in step.ops:
            for number in self._structure.parts[part].made:
                if self._is_value(number, part, call, outputs):
                    add(number, number)
        for value in outputs:
            if self._number(value) < 0:
                add(("value", value), -1)
        for link, (maker, _) in enumerate(self._links):
            if self._structure.call_of(maker) == call:
                add(("own", link), -1)
        ops = [self._op(part, module_of, call, place) for part in step.ops]
        given = [place[self._number(v) if self._number(v) >= 0 else ("value", v)] for v in outputs]
        crossing = [number for maker, _, number in self._crossing if maker == call]
        return rows, ops, given + [place["own", link] for link in crossing]

    def _number(self, value: int) -> int:
        return self._storages.number.get(self._interface.values[value].key, -1)

    def _is_value(self, number: int, part: int, call: int, outputs: list[int]) -> bool:
        if any(self._number(v) == number for v in outputs):
            return True
        readers = self._structure.readers.get(number, ())
        return any(r != part and self._structure.call_of(r) == call for r in readers)

    def _op(self, part: int, module_of: Callable[[int], int], call: int, place: dict[Any, int]) -> dict[str, Any]:
        of = self._structure.parts[part]
        recording = self._structure.recording
        names = self._interface.parameters[call]
        read = self._structure.parameter_reads[part]
        inputs = [place[n] for n in self._reads(part) if n in place]
        outputs = [place[n] for n in of.made if n in place]
        for link, (maker, reader) in enumerate(self._links):
            if maker == part:
                outputs.append(place["own", link])
            if reader == part:
                crossing = [i for i, (_, _, number) in enumerate(self._crossing) if number == link]
                inputs.append(place[("link", len(self._interface.values) + crossing[0])] if crossing else place["own", link])
        heavy = max((recording.ops[d] for d in of.dispatched if recording.ops[d].cost.kind != VIEW), key=lambda o: o.cost.flops, default=None)
        saved = any(part in parts for parts in self._structure.saved_at.values())
        return {
            "name": heavy.name if heavy is not None else "view",
            "module": module_of(part),
            "inputs": inputs,
            "outputs": outputs,
            "parameters": [i for i, name in enumerate(names) if name in read],
            "backward": of.has_backward,
            "saves": saved or bool(read),
        }
