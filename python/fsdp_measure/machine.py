"""The real machine, as a replacement of the stub GPU for the parts of fsdp_rehearsal."""

from __future__ import annotations

import sys
import time
from typing import Optional

from fsdp_rehearsal.history import Mark
from fsdp_rehearsal.meter import Cut, Meter

_MOST_CUTS = 1024


class Machine:
    """Queries of a real GPU, by the names of the stub's counters."""

    def counter(self, name: str) -> int:
        """peak_used_bytes: the memory of this process's GPU that all processes use now; a real card stores no peak. 0 for
        other names."""
        torch = sys.modules.get("torch")
        if name != "peak_used_bytes" or torch is None or not torch.cuda.is_initialized():
            return 0
        free, total = torch.cuda.mem_get_info()
        return total - free

    def reset_peak(self) -> None:
        return

    def collective_count(self) -> int:
        return 0

    def meter(self, began: float) -> Meter:
        return _Meter(self, began)


class _Meter(Meter):
    """Divides a run on CPUs, too, which has times but no peaks; divides a long run into a bounded number of parts."""

    def cut(self, name: str) -> Optional[Cut]:
        if self.running:
            cut = super().cut(name)
        else:
            cut = Cut(name, 0, 0, time.perf_counter() - self._began, 0, {})
            self.cuts.append(cut)
        if len(self.cuts) > _MOST_CUTS and self.cuts[-1].name == self.cuts[-2].name:
            before = self.cuts.pop(-2).peaks
            peaks = self.cuts[-1].peaks
            peaks.update({kind: max(size, before.get(kind, 0)) for kind, size in peaks.items()})
        return cut


class NoHistory:
    """Replaces the allocator's history, which would slow the run by a few percent."""

    def begin_phase(self, mark: Mark) -> None:
        return

    def in_module(self, name: str) -> None:
        return

    def drain_if_long(self) -> None:
        return
