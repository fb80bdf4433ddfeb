"""The collectives of one step, and on GPUs their durations, from PyTorch's profiler.

Every collective of every wrapper, from Python or from C++ (DDP's reducer), passes through PyTorch's dispatcher as an op of the
namespace c10d, on each backend; the profiler records its tensors. The payload is the bytes of the full tensor: the output of
an all-gather, the input of a reduce-scatter. On GPUs the kernels of NCCL are on the device's timeline; the time that no other
kernel covers is exposed.

Not modeled: two profilers cannot run at once, so a script that profiles that very step itself keeps its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Optional

from fsdp_rehearsal.guard import guarded, warn

_BEFORE = 3  # steps; the first allocates, and the profiler's own warm-up must not be in the profile

# Op of c10d -> kind, and which argument is the full tensor.
_KINDS = {
    "_allgather_base_": ("all_gather", 0),
    "allgather_": ("all_gather", 0),
    "allgather_into_tensor_coalesced_": ("all_gather", 0),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "allreduce_": ("all_reduce", 0),
    "allreduce_coalesced_": ("all_reduce", 0),
    "broadcast_": ("broadcast", 0),
    "reduce_": ("reduce", 0),
    "alltoall_base_": ("all_to_all", 1),
    "send": ("send", 0),
    "recv_": ("recv", 0),
}


class ProfiledStep:
    """Profiles the step after the first `_BEFORE` of them, once."""

    def __init__(self) -> None:
        self.collectives: Optional[list[dict[str, Any]]] = None
        self.communication: Optional[dict[str, float]] = None  # seconds; None without a GPU
        self.seen = -1  # the number of the profiled step, from 0
        self._ended = 0
        self._profiler: Any = None

    def step_ends(self) -> None:
        """Called at the end of each step."""
        self._ended += 1
        if self._profiler is not None:
            self._stop()
        elif self._ended == _BEFORE:
            self._start()

    @guarded("The profiler")
    def _start(self) -> None:
        torch = sys.modules["torch"]
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_initialized()
        profiler = profile(activities=activities, record_shapes=True, acc_events=True)
        profiler.start()
        self._profiler, self.seen = profiler, self._ended

    @guarded("The profiler")
    def _stop(self) -> None:
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # wait for the kernels of this step
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        results = profiler.profiler.kineto_results
        world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        self.collectives = collectives_of(results.experimental_event_tree(), world)
        if torch.cuda.is_initialized():
            on_device = [e for e in results.events() if str(e.device_type()).endswith("CUDA") and e.duration_ns() > 0]
            self.communication = communication_of((e.name(), e.start_ns(), e.end_ns()) for e in on_device)


def collectives_of(roots: Iterable[Any], world: int, gathering: Optional[int] = None) -> list[dict[str, Any]]:
    """The collectives in the profiler's event trees, in the order of issue. If the tensors show the size of a group, that is
    its size; otherwise it is `world`, the size of the job, and left out if `world` is 0. The profiler shows only the input of
    an all-gather into a list; its group has `gathering` ranks, which defaults to `world`."""
    found = []
    waiting = list(roots)
    while waiting:
        event = waiting.pop()
        namespace, _, op = event.name.partition("::")
        is_collective = namespace == "c10d" and op in _KINDS
        # A mode of the dispatcher, as in selective checkpointing, calls the op again inside itself.
        waiting += [] if is_collective else event.children
        if is_collective:
            row = _row(op, [_tensors(each) for each in event.typed[1].inputs], world, gathering or world)
            if row is not None:
                found.append((event.start_time_ns, row))
        elif namespace == "c10d" and op not in ("barrier", "monitored_barrier_"):
            warn("probe", f"{event.name} is not among the collectives that are counted.")
    return [row for _, row in sorted(found, key=lambda pair: pair[0])]


def _row(op: str, inputs: list[list[Any]], world: int, gathering: int) -> Optional[dict[str, Any]]:
    kind, full = _KINDS[op]
    is_list = kind == "all_gather" and not inputs[full]
    tensors = inputs[1 - full] if is_list else inputs[full]
    if not tensors:
        warn("probe", f"A collective c10d::{op} without tensors was left out.")
        return None
    numbers = [_elements(tensor) for tensor in tensors]
    size = world
    if is_list:
        size, numbers = gathering, [n * gathering for n in numbers]
    elif kind in ("all_gather", "reduce_scatter") and inputs[1 - full]:
        size = max(1, sum(numbers) // max(1, sum(_elements(tensor) for tensor in inputs[1 - full])))
    return {
        "kind": kind,
        "dtype": str(tensors[0].dtype).removeprefix("torch."),
        "elements": sum(numbers),
        "payload_bytes": sum(n * tensor.dtype.itemsize for n, tensor in zip(numbers, tensors)),
        **({"group_size": size} if size else {}),
        "unit": "",
        "phase": "",
    }


def _tensors(argument: Any) -> list[Any]:
    """The tensors of an op's argument: one, a list, or none."""
    several = argument if isinstance(argument, (list, tuple)) else [argument]
    return [each for each in several if hasattr(each, "sizes") and each.dtype is not None]


def _elements(tensor: Any) -> int:
    count = 1
    for size in tensor.sizes:
        count *= size
    return count


def communication_of(kernels: Iterable[tuple[str, int, int]]) -> dict[str, float]:
    """From name, begin and end in ns: the time of NCCL's kernels, and the part of it in which no other kernel ran, in
    seconds."""
    nccl, other = [], []
    for name, begin, end in kernels:
        (nccl if "nccl" in name.lower() else other).append((begin, end))
    busy, covering = _union(nccl), _union(other)
    hidden, at = 0, 0
    for begin, end in busy:
        while at < len(covering) and covering[at][1] <= begin:
            at += 1
        for first, last in covering[at:]:
            if first >= end:
                break
            hidden += min(last, end) - max(first, begin)
    total = sum(end - begin for begin, end in busy)
    return {"busy": total * 1e-9, "exposed": (total - hidden) * 1e-9}


def _union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined
