"""The allocator's own history with Python stacks, from the first allocation on, with labels of the program's work.

The history is PyTorch's (torch.cuda.memory._record_memory_history). It is moved into the ledger from time to time, so that a
long run does not fill the host's memory, unless the user wants all of it for the memory viewer.

A label is a text that the allocator writes into each entry (its "user metadata"): the numbers of the phase and of the module.
PyTorch stores it per thread, and the autograd engine's thread may still have that of an earlier phase. Then the module is
unknown, and the entry's position in the history gives the phase.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Optional

from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.ledger import Label, Ledger
from fsdp_rehearsal.meter import Meter

_EVENTS_BETWEEN_DRAINS = 400_000
_NO_LIMIT = 1 << 40


@dataclass(frozen=True)
class Mark:
    """The beginning of a phase."""

    phase: str
    position: int  # allocator events before it
    collectives: int  # collectives before it
    backward_at: Optional[tuple[str, int, str]] = None  # file, line, function of the call, for a backward


class History:
    def __init__(self, meter: Meter, keep_all: bool) -> None:
        self.ledger = Ledger()
        self.marks = [Mark("initialization", 0, 0)]
        self.snapshot: dict[str, Any] = {}
        self._positions = [0]  # of the marks
        self._labels: dict[str, Label] = {}
        self._modules: dict[str, int] = {"": 0}
        self._meter = meter
        self._keep_all = keep_all
        self._record: Any = None
        self._set_metadata: Any = None
        self._recording = False
        self._drained_at = 0  # allocator events
        self._fed = 0  # entries of the stored history

    def install(self, torch: Any) -> None:
        """Makes the recording start when CUDA is initialized, before the first allocation."""
        memory = torch.cuda.memory
        self._record, self._snapshot = memory._record_memory_history, memory._snapshot
        self._set = getattr(torch._C, "_cuda_setMemoryMetadata", None)
        # A script that records, too, gets our history, which includes everything that it requests.
        memory._record_memory_history = torch.cuda._record_memory_history = lambda *args, **kwargs: None
        torch.cuda._lazy_call(self._begin)

    @guarded("The history of the allocator")
    def _begin(self) -> None:
        self._start(clear=False)
        self._recording = True
        self._set_metadata = self._set

    def _start(self, clear: bool) -> None:
        self._record("all", context="alloc", stacks="python", max_entries=_NO_LIMIT, clear_history=clear)

    def begin_phase(self, mark: Mark) -> None:
        """All later events belong to a new phase."""
        self.marks.append(mark)
        self._positions.append(mark.position)

    def in_module(self, name: str) -> None:
        """Labels later allocations of this thread with the phase and the running module."""
        if self._set_metadata is None:
            return
        number = self._modules.setdefault(name, len(self._modules))
        text = f"{len(self.marks) - 1}.{number}"
        if text not in self._labels:
            mark = self.marks[-1]
            self._labels[text] = Label(mark.phase, name, mark.backward_at)
        self._set_metadata(text)

    def phase_at(self, position: int) -> int:
        """The number of the mark that an event belongs to."""
        return bisect_right(self._positions, position) - 1

    def _resolve(self, text: str, position: int) -> Label:
        phase = self.phase_at(position)
        label = self._labels.get(text)
        if label is not None and text.startswith(f"{phase}."):
            return label
        mark = self.marks[phase]
        return self._labels.setdefault(f"{phase}.", Label(mark.phase, "", mark.backward_at))

    @guarded("The history of the allocator")
    def drain_if_long(self) -> None:
        """Moves a long history into the ledger."""
        if not self._keep_all and self._meter.position() - self._drained_at > _EVENTS_BETWEEN_DRAINS:
            self.drain()

    @guarded("The history of the allocator")
    def drain(self) -> None:
        """Moves the history into the ledger."""
        if not self._meter.running or not self._recording:
            return
        self.snapshot = self._snapshot()
        self._drained_at = self._meter.position()
        traces = self.snapshot.get("device_traces", [])
        entries = traces[self._meter.device] if self._meter.device < len(traces) else []
        self.ledger.feed(entries[self._fed :], self._resolve)
        if self._keep_all:
            self._fed = len(entries)
        else:
            self._start(clear=True)
