"""Peaks of PyTorch's caching allocator and of the device, for each stretch of the run.

A peak for each stretch needs a reset at its end, which the script must not notice. So we replace the two functions through
which all of PyTorch reads and resets these figures by ones with two sets of books: ours, which a reset by the script does not
affect, and the script's, which our resets do not affect.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Optional

from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.stub import Stub

KINDS = ("requested", "allocated", "active", "reserved")


@dataclass
class Cut:
    """The stretch from the previous cut to this one."""

    name: str
    position: int  # allocator events so far
    collectives: int  # collectives so far
    seconds: float  # since the start of the process
    allocated: int  # bytes at the cut
    peaks: dict[str, int] = field(default_factory=dict)  # KINDS and "device", within the stretch


class Meter:
    """The books. Empty until the program initializes CUDA."""

    def __init__(self, stub: Stub, began: float) -> None:
        self.cuts: list[Cut] = []
        self._stub = stub
        self._began = began
        self._torch: Any = None
        self._read: Any = None
        self._reset: Any = None
        self._stretch: dict[str, int] = {}
        self._whole: dict[str, int] = {}
        self._of_script: dict[tuple, int] = {}  # peaks since the script's last reset that our resets have cleared
        self._device = 0

    def install(self, torch: Any) -> None:
        """Replaces the functions of torch._C."""
        c = torch._C
        self._torch = torch
        self._read, self._reset = c._cuda_memoryStats, c._cuda_resetPeakMemoryStats
        c._cuda_memoryStats = self._script_reads
        c._cuda_resetPeakMemoryStats = self._script_resets
        c._cuda_resetAccumulatedMemoryStats = lambda device: None  # these statistics count events
        if hasattr(c, "_accelerator_getDeviceStats"):
            c._accelerator_getDeviceStats = self._script_reads
            c._accelerator_resetPeakStats = self._script_resets
            c._accelerator_resetAccumulatedStats = lambda device: None

    @property
    def running(self) -> bool:
        """Whether there is a device."""
        return self._torch is not None and self._torch.cuda.is_initialized()

    @property
    def device(self) -> int:
        """The device of the figures: the one with the most reserved memory so far."""
        return self._device

    def stats(self) -> dict[str, Any]:
        """The allocator's current figures, as nested dictionaries."""
        return self._read(self._device)

    def launches(self) -> int:
        """The number of kernels that the process has launched, including those of libraries."""
        return sum(self._stub.counter(name) for name in ("kernel", "gemm", "lt_matmul", "cudnn", "fft"))

    def collectives(self) -> list[dict[str, Any]]:
        """All that have been issued so far."""
        return self._stub.collectives()

    def position(self) -> int:
        """The number of events in the allocator's history: allocations, requested frees, completed frees."""
        if not self.running:
            return 0
        s = self.stats()
        allocation, active = s["allocation"]["all"], s["active"]["all"]
        return allocation["allocated"] + allocation["freed"] + active["freed"]

    @guarded("The allocator's figures")
    def cut(self, name: str) -> Optional[Cut]:
        """Ends a stretch, and names it."""
        seconds = time.perf_counter() - self._began
        if not self.running:
            return None
        self._choose_device()
        self._fold()
        cut = Cut(
            name,
            self.position(),
            self._stub.collective_count(),
            seconds,
            self.stats()["allocated_bytes"]["all"]["current"],
            self._stretch,
        )
        self.cuts.append(cut)
        self._stretch = {}
        return cut

    def peaks(self) -> dict[str, int]:
        """The highest of the whole run, KINDS and "device"."""
        if self.running:
            self._fold()
        return {kind: self._whole.get(kind, 0) for kind in (*KINDS, "device")}

    def _choose_device(self) -> None:
        count = self._torch.cuda.device_count()
        reserved = [self._read(d)["reserved_bytes"]["all"]["current"] for d in range(count)]
        best = max(range(count), key=lambda d: reserved[d], default=0)
        if reserved and reserved[best] > reserved[self._device]:
            self._device = best

    def _fold(self) -> None:
        """Moves the peaks since the last reset into the books, and resets them."""
        stats = self.stats()
        now = {kind: stats[kind + "_bytes"]["all"]["peak"] for kind in KINDS}
        now["device"] = self._stub.counter("peak_used_bytes")
        for book in (self._stretch, self._whole):
            for kind, value in now.items():
                book[kind] = max(book.get(kind, 0), value)
        for path, stat in _with_peaks(stats):
            self._of_script[path] = max(self._of_script.get(path, 0), stat["peak"])
        self._reset(self._device)
        self._stub.reset_peak()

    def _script_reads(self, device: int) -> dict[str, Any]:
        stats = self._read(device)
        if device == self._device:
            for path, stat in _with_peaks(stats):
                stat["peak"] = max(stat["peak"], self._of_script.get(path, 0))
        return stats

    def _script_resets(self, device: int) -> None:
        if device == self._device and self.running:
            self._fold()
            self._of_script = {}
        else:
            self._reset(device)


def _with_peaks(stats: dict[str, Any], path: tuple = ()):
    """Every figure that has a peak, with the path of keys to it."""
    for key, value in stats.items():
        if isinstance(value, dict):
            if "peak" in value:
                yield (*path, key), value
            else:
                yield from _with_peaks(value, (*path, key))
