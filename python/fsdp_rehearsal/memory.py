"""The record's memory: peaks, phases, the moment of the peak and the curve over a steady step."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Optional

from fsdp_rehearsal import frames
from fsdp_rehearsal import ledger as ledgers
from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.history import History
from fsdp_rehearsal.ledger import Label, Ledger
from fsdp_rehearsal.meter import KINDS, Cut, Meter
from fsdp_rehearsal.phases import ASIDE
from fsdp_rehearsal.stub import Stub

_MOST_FRAMES = 40
Shown = Callable[[str], str]  # the name of a module for people


class Timeline:
    """The cuts of a run, joined into its initialization and its steps."""

    def __init__(self, cuts: list[Cut], calls_per_step: Optional[int]) -> None:
        first = 1 if cuts and cuts[0].name == "initialization" else 0
        self.initialization = cuts[:first]
        self.aside: dict[str, list[Cut]] = {}  # phases that are no part of a step
        self.rest: list[Cut] = []
        calls: list[Cut] = []
        for cut in cuts[first:]:
            if cut.name in ASIDE:
                self.aside.setdefault(cut.name, []).append(cut)
            elif cut.name == "step":
                calls.append(_joined([*self.rest, cut]))
                self.rest = []
            else:
                self.rest.append(cut)
        n = calls_per_step or max(1, len(calls))
        self.steps = [calls[i : i + n] for i in range(0, len(calls), n)]
        if self.steps and len(self.steps[-1]) < n:
            self.rest = self.steps.pop() + self.rest

    @property
    def begin(self) -> Optional[Cut]:
        return self.initialization[-1] if self.initialization else None

    def step_at(self, position: int) -> int:
        """The step, from 1, that an allocator event belongs to; 0 for the initialization."""
        if self.begin is None or position < self.begin.position:
            return 0
        return 1 + sum(step[-1].position <= position for step in self.steps)

    def began(self, position: int) -> int:
        """The number of allocator events before the step of an event."""
        ends = ([self.begin.position] if self.begin is not None else []) + [step[-1].position for step in self.steps]
        return max((end for end in ends if end <= position), default=0)

    def phases(self) -> list[dict[str, Any]]:
        """Peaks of the initialization, the first step and all others. An unfinished step belongs to the others."""
        parts = {"initialization": self.initialization, "first_step": self.steps[0] if self.steps else self.rest}
        if self.steps:
            parts["steady_step"] = [c for step in self.steps[1:] for c in step] + (self.rest if len(self.steps) > 1 else [])
        parts.update((name, self.aside[name]) for name in ASIDE if name in self.aside)
        return [
            {"phase": name, **{k: max(c.peaks.get(k, 0) for c in cuts) for k in (*KINDS, "device")}}
            for name, cuts in parts.items()
            if cuts
        ]


def _joined(cuts: list[Cut]) -> Cut:
    """Joins consecutive cuts into one."""
    kinds = {kind for cut in cuts for kind in cut.peaks}
    return replace(cuts[-1], peaks={kind: max(cut.peaks.get(kind, 0) for cut in cuts) for kind in kinds})


@guarded("The memory", {})
def describe(meter: Meter, history: History, stub: Stub, timeline: Timeline, shown: Shown) -> dict[str, Any]:
    """The "memory" part of the record. REQUIRES: the history has been moved into the ledger."""
    peaks = meter.peaks()
    stats = meter.stats() if meter.running else {}
    return {
        "peaks": peaks,
        "device_terms": _device_terms(peaks, stub),
        "phases": timeline.phases(),
        **_at_end(stats),
        "cache_flushes": stats.get("num_alloc_retries", 0),
        "out_of_memory_errors": stats.get("num_ooms", 0),
        "host_pinned_bytes": _pinned(meter),
        **(_moment(history, timeline, shown) or {}),
        "over_step": _over_step(history, timeline) or {"allocated": [], "marks": []},
    }


def _pinned(meter: Meter) -> int:
    """Host memory that PyTorch has pinned, in its blocks; it never frees any."""
    if not meter.running:
        return 0
    return int(sys.modules["torch"].cuda.host_memory_stats().get("allocated_bytes.peak", 0))


def _at_end(stats: dict[str, Any]) -> dict[str, int]:
    """The bytes live at the end. For PyTorch a freed block that still waits for another stream (record_stream) is requested,
    but no longer allocated."""
    kinds = ("requested", "allocated")
    requested, allocated = (stats[f"{kind}_bytes"]["all"]["current"] if stats else 0 for kind in kinds)
    return {"at_end_requested": min(requested, allocated), "at_end_allocated": allocated}


def _device_terms(peaks: dict[str, int], stub: Stub) -> list[dict[str, Any]]:
    if peaks["device"] == 0:  # the driver was called, but never for memory: there is no context, and no bytes
        return []
    terms = [("CUDA context", stub.counter("context_bytes")), ("NCCL", stub.counter("nccl_bytes"))]
    rest = peaks["device"] - peaks["reserved"] - sum(size for _, size in terms)
    if rest > 0:
        terms.append(("other", rest))
    return [{"name": name, "bytes": size} for name, size in terms if size > 0]


@guarded("The moment of the peak")
def _moment(history: History, timeline: Timeline, shown: Shown) -> dict[str, Any]:
    ledger = history.ledger
    if ledger.peak.place < 0:
        return {"peak": None, "at_peak": []}
    peak = ledger.peak
    result: dict[str, Any] = {
        "peak": {"requested": peak.bytes, **_where(ledger, timeline, shown, peak.position, peak.place, peak.label)},
        "at_peak": ledgers.rows_at_peak(ledger),
    }
    if ledger.failures:
        last = ledger.failures[-1]
        result["failed_allocation"] = {
            "bytes": last["size"],
            "device_free": last.get("device_free", 0),
            **_where(ledger, timeline, shown, last["position"], last["place"], last["label"]),
        }
    return result


def _where(ledger: Ledger, timeline: Timeline, shown: Shown, position: int, place: int, label: Label) -> dict[str, Any]:
    """The moment and the code of an allocation; "at" is the frame to name it by, the user's own if there is one."""
    stack = ledgers.stack_of(ledger, place, label)[:_MOST_FRAMES]
    return {
        "phase": label.phase,
        # A phase outside the steps follows the step before it.
        "step": timeline.step_at(position) - (label.phase in ASIDE),
        "module": shown(label.module),
        "at": frames.named(stack),
        "stack": stack,
    }


@guarded("The curve over a step")
def _over_step(history: History, timeline: Timeline) -> Optional[dict[str, Any]]:
    if not timeline.steps:
        return None
    before = timeline.steps[-2][-1] if len(timeline.steps) > 1 else timeline.begin
    if before is None:
        return None
    begin, end = before.position, timeline.steps[-1][-1].position
    points, width = ledgers.curve(history.ledger.rounded, begin, end, before.allocated)
    inside = [{"phase": m.phase, "index": (m.position - begin) // width} for m in history.marks if begin <= m.position < end]
    return {"allocated": points, "marks": inside}
