"""Replays the tapes of a captured model as fsdp-plan does, without sharding, to compare the written file with the recording.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Optional

from fsdp_capture.tapes import CallTape, Interface
from fsdp_capture.values import Storages


class Replay:
    def __init__(self, storages: Storages, interface: Interface, tapes: list[CallTape], carried: Optional[dict[int, int]] = None) -> None:
        """`carried`: TapeWriter.carried."""
        carried = carried or {}
        self._storages, self._interface, self._tapes = storages, interface, tapes
        self._live = 0
        self._carried = [storages.structure.recording.sizes[number] for number in sorted(carried)]
        self.peak = 0
        self._size: dict[Any, int] = {}  # of live storages
        self._references: Any = defaultdict(int)
        self._storage_of: dict[int, Any] = {}  # value -> its storage
        self._gradient_of: dict[int, Any] = {}
        self._views: set[Any] = set()  # gradients that are never added to in place
        self.errors: list[str] = []

    def run(self) -> int:
        """The peak in bytes."""
        values = self._interface.values
        for which, size in enumerate(self._carried):
            self._alloc(("carried", which), size)
        for i, value in enumerate(values):
            if value.key in self._storages.number and value.maker < 0:
                key = ("input", i)
                self._alloc(key, self._storages.structure.recording.sizes[self._storages.number[value.key]])
                self._storage_of[i] = key
                self._references[key] = 1 + len(value.readers)
        calls = self._storages.structure.calls
        for number in range(self._storages.structure.num_passes):
            for call in range(len(calls)):
                if calls[call].number == number:
                    self._forward(call)
            for call in range(len(calls) - 1, -1, -1):
                if (calls[call].backward if calls[call].backward >= 0 else calls[call].number) == number:
                    self._backward(call)
            self._drop_gradients()
        return self.peak

    def _forward(self, call: int) -> None:
        tape = self._tapes[call]
        for events in tape.forward:
            self._play(call, events)
        for place, value in enumerate(self._interface.outputs[call]):
            output = tape.outputs[place]
            if "storage" not in output:
                continue
            key = (call, output["storage"])
            self._storage_of[value] = key
            self._references[key] += len(self._interface.values[value].readers) + output["kept"]
            if self._references[key] == 0 and not self._is_loss(value):
                self._free(key)

    def _backward(self, call: int) -> None:
        for events in reversed(self._tapes[call].backward):
            self._play(call, events)

    def _drop_gradients(self) -> None:
        """For a step of passes, after each backward."""
        for key in [key for key in self._size if key[0] == "gradient"] if self._storages.structure.recording.said else []:
            self._free(key)

    def _is_loss(self, value: int) -> bool:
        number = self._storages.number.get(self._interface.values[value].key, -1)
        return number >= 0 and number in self._storages.structure.recording.losses

    def _alloc(self, key: Any, size: int) -> None:
        if key in self._size:
            self.errors.append(f"{key} is made twice")
        self._size[key] = size
        self._live += size
        self.peak = max(self.peak, self._live)

    def _free(self, key: Any) -> None:
        if key not in self._size:
            self.errors.append(f"{key} is freed twice")
            return
        self._live -= self._size.pop(key)

    def _drop(self, key: Any) -> None:
        if key is None:
            return
        self._references[key] -= 1
        if self._references[key] == 0:
            self._free(key)

    def _play(self, call: int, events: list[list[Any]]) -> None:
        inputs, outputs = self._interface.inputs[call], self._interface.outputs[call]
        for event in events:
            what, rest = event[0], event[1:]
            if what == "alloc":
                self._alloc((call, rest[0]), rest[1])
            elif what == "free":
                self._free((call, rest[0]))
            elif what == "param_grad":
                self._parameter_gradient(call, *rest)
            elif what == "add_grad":
                self._add_gradient(call, *rest)
            elif what == "release_input":
                self._drop(self._storage_of.get(inputs[rest[0]]))
            elif what == "release_output":
                self._drop((call, rest[0]))
            elif what == "hold":
                self._references[call, rest[0]] += 1
            elif what == "drop_carried":
                self._free(("carried", rest[0]))
            elif what == "emit_grad":
                self._references[call, rest[0]] += 1
                self._gradient_of[inputs[rest[1]]] = (call, rest[0])
            elif what == "forward_grad":
                key = self._gradient_of.get(outputs[rest[0]])
                if key is None:
                    self.errors.append(f"call {call} hands on a gradient that is not there")
                    continue
                self._references[key] += 1
                self._gradient_of[inputs[rest[1]]] = key
            elif what in ("release_grad", "drop_grad"):
                value = (outputs if what == "release_grad" else inputs)[rest[0]]
                self._drop(self._gradient_of.pop(value, None))

    def _parameter_gradient(self, call: int, parameter: int, size: int, is_view: int = 0) -> None:
        name = self._interface.parameters[call][parameter]
        first = ("gradient", name)
        if first not in self._size:
            self._alloc(first, size)
            self._views.update([first] if is_view else [])
            return
        # Several calls use this parameter: the first gradient accumulates this one, or a new tensor replaces both.
        second = ("gradient", name, call)
        self._alloc(second, size)
        if first not in self._views:
            self._free(second)

    def _add_gradient(self, call: int, parameter: int) -> None:
        name = self._interface.parameters[call][parameter]
        first, second = ("gradient", name), ("gradient", name, call)
        if first in self._views and second in self._size:
            self._views.discard(first)
            self._alloc(("sum", name), self._size[first])
            self._free(("sum", name))
            self._free(second)


def recorded_peak(storages: Storages, carried: Optional[dict[int, int]] = None) -> int:
    """The events of the tapes, in the order in which they happened."""
    structure = storages.structure
    carried = carried or {}
    live = peak = sum(structure.recording.events[position].bytes for position in carried.values())
    dropped = set(carried.values())
    for number in structure.before_root:
        if number in storages.key:
            live += structure.recording.sizes[number]
    for position, event in enumerate(structure.recording.events):
        if position in dropped:
            live -= event.bytes
        is_ours = structure.part_of_event[position] >= 0 and event.number >= 0
        if event.what == "alloc" and is_ours:
            live += event.bytes
            peak = max(peak, live)
        elif event.what == "free" and is_ours and (event.number in storages.born or event.number in storages.key):
            live -= event.bytes
    return peak
