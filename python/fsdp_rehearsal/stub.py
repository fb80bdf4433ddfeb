"""The C functions of the stub GPU, as rehearsal/stub_gpu.h declares them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from fsdp_rehearsal.guard import warn

_READBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64)


class _Collective(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_char * 16),
        ("dtype", ctypes.c_char * 16),
        ("elements", ctypes.c_uint64),
        ("payload_bytes", ctypes.c_uint64),
        ("group_size", ctypes.c_int32),
        ("communicator", ctypes.c_int32),
        ("group_rank", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("sequence", ctypes.c_uint64),
    ]


def loaded() -> bool:
    """Whether this process loads the stub before the real libraries."""
    return hasattr(ctypes.CDLL(None), "stub_gpu_counter")


class Stub:
    """The stub GPU of this process. A function that this stub does not have returns 0 or None, with a warning."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        number, text = ctypes.c_uint64, ctypes.c_char_p
        self._counter = _function(library, "stub_gpu_counter", number, text)
        self._reset_peak = _function(library, "stub_gpu_reset_peak", None)
        self._collectives = _function(library, "stub_gpu_collectives", number, ctypes.c_void_p, number, number)
        self._on_readback = _function(library, "stub_gpu_on_readback", None, _READBACK)
        self._answer = _function(library, "stub_gpu_answer_readback", None, text, number)
        self._forget_answers = _function(library, "stub_gpu_forget_answers", None)
        self._missing = _function(library, "stub_gpu_missing", number, text, number)
        self._next_split = _function(library, "stub_gpu_next_split", None, ctypes.c_int32)
        self._version = _function(library, "stub_gpu_version", text)
        self.can_reset_peak = self._reset_peak is not None
        self._callback: Any = None

    def counter(self, name: str) -> int:
        """A counter by its name; 0 if it never moved."""
        return int(self._counter(name.encode())) if self._counter else 0

    def reset_peak(self) -> None:
        """Sets the peak of used device memory to the current use."""
        if self._reset_peak:
            self._reset_peak()

    def collective_count(self) -> int:
        """The number of collectives issued so far."""
        return int(self._collectives(None, 0, 0)) if self._collectives else 0

    def collectives(self) -> list[dict[str, Any]]:
        """All collectives so far, in the order of issue."""
        count = self.collective_count()
        if count == 0:
            return []
        room = (_Collective * count)()
        count = min(count, int(self._collectives(ctypes.byref(room), 0, count)))
        return [
            {
                "kind": c.kind.decode(),
                "dtype": c.dtype.decode(),
                "elements": c.elements,
                "payload_bytes": c.payload_bytes,
                "group_size": c.group_size,
            }
            for c in room[:count]
        ]

    def on_readback(self, call: Callable[[str, int], None]) -> None:
        """Calls `call(operation, bytes)` when unknown device contents are copied to the host."""
        if self._on_readback:
            self._callback = _READBACK(lambda operation, size: call((operation or b"").decode(), size))
            self._on_readback(self._callback)

    def answer_readbacks(self, values: list[bytes]) -> None:
        """Stores values for the next reads of unknown device contents by this thread, in order."""
        for value in values:
            if self._answer:
                self._answer(value, len(value))

    def forget_answers(self) -> None:
        """Drops the unused answers."""
        if self._forget_answers:
            self._forget_answers()

    def tell_next_split(self, ranks: int) -> None:
        """Sets how many ranks the group of the next split of a communicator has."""
        if self._next_split and ranks:
            self._next_split(ranks)

    def missing_functions(self) -> list[str]:
        """Functions that PyTorch called although the stub does not have them."""
        if not self._missing:
            return []
        room = ctypes.create_string_buffer(1 << 16)
        self._missing(room, len(room))
        return [name for name in room.value.decode().split("\n") if name]

    def version(self) -> str:
        return self._version().decode() if self._version else ""


def _function(library, name: str, result, *arguments):
    function = getattr(library, name, None)
    if function is None:
        warn("probe", f"The stub GPU has no function {name}.")
        return None
    function.restype = result
    function.argtypes = list(arguments)
    return function
