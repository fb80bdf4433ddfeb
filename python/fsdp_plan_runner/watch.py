"""PyTorch's profile of a stretch of a run: collectives, and on the CPU the bytes of tensors.

PyTorch's CPU allocator counts the bytes that tensors request while FLAGS_caffe2_report_cpu_memory_usage is set
(c10/core/CPUAllocator.cpp, ProfiledCPUMemoryReporter): every later allocation and release of all threads, including DDP's
reducer and Gloo's. The profiler writes the sum next to each allocation that it sees. The flag has no name in Python, so we set
it through its symbol in libc10.

Not modeled: tensors from before the flag was set; a library's own allocations (oneDNN's scratch memory). Without the symbol
the run is refused.
"""

from __future__ import annotations

import ctypes
import dataclasses
import pathlib
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from fsdp_measure.profiled_step import collectives_of
from fsdp_plan_runner.job_file import Refused
from fsdp_plan_runner.plan import Plan

_FLAG = "FLAGS_caffe2_report_cpu_memory_usage"


def count_bytes() -> None:
    """Counts bytes from now on. Raises Refused if this PyTorch does not support it."""
    library = pathlib.Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        ctypes.c_bool.in_dll(ctypes.CDLL(str(library)), _FLAG).value = True
    except (OSError, ValueError):
        raise Refused(f"{library} has no {_FLAG}, by which PyTorch's wheels count the bytes of tensors. Use a wheel of PyTorch.") from None


@dataclasses.dataclass
class Seen:
    """`live`: time in ns, and the bytes of all tensors before or after each allocation and release, whichever is larger,
    without the tensors that Gloo's threads make for themselves."""

    live: list[tuple[int, int]]
    marks: dict[str, int]  # The first time that each was reached.
    collectives: list[dict[str, Any]]

    def peak(self, begin: int | None = None, end: int | None = None) -> int | None:
        """The maximum from `begin` until `end`, including the bytes at `begin`. None if no event was recorded."""
        before = [size for at, size in self.live if begin is not None and at < begin][-1:]
        return max((*before, *(size for at, size in self.live if (begin is None or at >= begin) and (end is None or at < end))),
                   default=None)


class Watch:
    """`with Watch(plan) as watch:`, then `watch.seen`."""

    seen: Seen

    def __init__(self, plan: Plan, on_cuda: bool = False, looks_at_tensors: bool = True) -> None:
        """Without `looks_at_tensors` it sees no collectives. Looking at a tensor keeps a reference to it, and PyTorch cannot
        swap such a tensor, as Module._apply does under SimpleFSDP."""
        # The profiler does not show the dimension of a two-dimensional mesh over which a reduction goes.
        is_hybrid = plan.replicate > 1 and plan.shard > 1
        self._groups = (0 if is_hybrid else plan.world_size, plan.shard)
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_cuda
        self._profiler = profile(activities=activities, record_shapes=looks_at_tensors, profile_memory=not on_cuda, acc_events=True)
        self._looks_at_tensors = looks_at_tensors

    def __enter__(self) -> Watch:
        self._profiler.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._profiler.stop()
        if raised[0] is None:
            self.seen = _seen(self._profiler.profiler.kineto_results.experimental_event_tree(),
                              self._groups if self._looks_at_tensors else None)


def mark(name: str) -> None:
    """Marks a moment for the watch."""
    with record_function(_MARK + name):
        pass


_MARK = "fsdp_plan_runner: "


def _seen(roots: list[Any], groups: tuple[int, int] | None) -> Seen:
    allocations: list[tuple[int, Any, bool]] = []
    marks: dict[str, int] = {}
    waiting = [(root, False) for root in roots]
    while waiting:
        event, is_in_gloo = waiting.pop()
        is_in_gloo = is_in_gloo or event.name.startswith("gloo:")
        waiting += ((child, is_in_gloo) for child in event.children)
        if type(event.typed[1]).__name__ == "_ExtraFields_Allocation":
            if event.typed[1].device.type == "cpu":
                allocations.append((event.start_time_ns, event.typed[1], is_in_gloo))
        elif event.name.startswith(_MARK):
            name = event.name.removeprefix(_MARK)
            marks[name] = min(event.start_time_ns, marks.get(name, event.start_time_ns))
    collectives = collectives_of(roots, *groups) if groups else []
    return Seen(_live(allocations), marks, collectives)


def _live(allocations: list[tuple[int, Any, bool]]) -> list[tuple[int, int]]:
    """`Seen.live`, without the tensors that Gloo's threads make for themselves: a gather into a list uses one of its size."""
    live: list[tuple[int, int]] = []
    of_gloo: dict[int, int] = {}
    for at, change, is_in_gloo in sorted(allocations, key=lambda each: each[0]):
        before = change.total_allocated - change.alloc_size - sum(of_gloo.values())
        if change.alloc_size < 0:
            of_gloo.pop(change.ptr, None)
        elif is_in_gloo:
            of_gloo[change.ptr] = change.alloc_size
        live.append((at, max(before, change.total_allocated - sum(of_gloo.values()))))
    return live
