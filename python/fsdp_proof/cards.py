"""The GPUs of this machine, through NVML: it makes no CUDA context, which would use memory that is to be measured.

Source: nvml.h of the NVML API reference (nvmlDeviceGetMemoryInfo, nvmlDeviceGetUUID).
"""

from __future__ import annotations

import ctypes
import dataclasses
import re

STUB_DRIVER = "stub GPU"  # The stub GPU's answer to the query for the driver (rehearsal/nvml.cpp).


@dataclasses.dataclass
class Card:
    index: int
    name: str
    uuid: str
    memory_bytes: int
    used_bytes: int


@dataclasses.dataclass
class Node:
    driver: str
    cards: list[Card]

    @property
    def is_stub(self) -> bool:
        return self.driver == STUB_DRIVER


class NoCards(Exception):
    """There is no driver, or it does not answer."""


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def _library() -> ctypes.CDLL:
    preloaded = ctypes.CDLL(None)
    if hasattr(preloaded, "nvmlInit_v2"):
        return preloaded
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        raise NoCards("There is no NVIDIA driver: libnvidia-ml.so.1 is not found.") from None


class Nvml:
    def __init__(self) -> None:
        self._nvml = _library()
        self._call("nvmlInit_v2")

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._nvml, name)(*arguments)
        if status != 0:
            self._nvml.nvmlErrorString.restype = ctypes.c_char_p
            raise NoCards(f"{name}: {self._nvml.nvmlErrorString(status).decode(errors='replace')}")

    def _text(self, name: str, *before: object) -> str:
        buffer = ctypes.create_string_buffer(128)
        self._call(name, *before, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode(errors="replace")

    def driver(self) -> str:
        return self._text("nvmlSystemGetDriverVersion")

    def count(self) -> int:
        number = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(number))
        return number.value

    def card(self, index: int) -> Card:
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        return Card(index, self._text("nvmlDeviceGetName", handle), self._text("nvmlDeviceGetUUID", handle), memory.total,
                    memory.used)


def node() -> Node:
    nvml = Nvml()
    return Node(nvml.driver(), [nvml.card(index) for index in range(nvml.count())])


def plain(uuid: str) -> str:
    """A UUID in PyTorch's form, without "GPU-"."""
    return re.sub("[^0-9a-f]", "", uuid.lower().removeprefix("gpu-"))


def used_bytes(here: Node) -> dict[str, int]:
    """By plain UUID, the memory of each card in use by any process."""
    return {plain(card.uuid): card.used_bytes for card in here.cards}
