"""Process groups of one real member.

NCCL's stay PyTorch's own, over the stub NCCL. Gloo would look for its peers on the network, so PyTorch's fake group takes
its place; it answers at once, as if every other rank had sent what this one sends. Collectives of Python objects are answered
here, the same way.
"""

from __future__ import annotations

import os
from types import ModuleType, SimpleNamespace
from typing import Any

from fsdp_rehearsal.guard import guarded

backends: list[str] = []  # of the default group and of others, in the order of their first use


def install(dist: ModuleType) -> None:
    """Called after torch.distributed is imported."""
    if not dist.is_available():
        return
    c10d = dist.distributed_c10d
    # The monitor of the real NCCL ends a process whose watchdog is slow, as it is under a debugger or on a busy machine.
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
    _replace_gloo(c10d)
    _answer_objects(c10d)
    _note_backends(c10d)


@guarded("Gloo")
def _replace_gloo(c10d: ModuleType) -> None:
    from torch._C._distributed_c10d import FakeProcessGroup

    real = getattr(c10d, "ProcessGroupGloo", None)
    if real is None:
        return

    class ProcessGroupGloo:
        _Options = getattr(real, "_Options", None)

        def __new__(cls, store: Any, rank: int, size: int, *args: Any, **kwargs: Any):
            return FakeProcessGroup._create_internal(rank, size)

        @staticmethod
        def create_device(*args: Any, **kwargs: Any) -> None:
            return None

    if not hasattr(FakeProcessGroup, "options"):
        FakeProcessGroup.options = property(lambda self: SimpleNamespace())
    c10d.ProcessGroupGloo = ProcessGroupGloo


@guarded("Collectives of objects")
def _answer_objects(c10d: ModuleType) -> None:
    import torch.distributed as dist

    def outside(group: Any) -> bool:
        return bool(c10d._rank_not_in_group(group))

    def all_gather_object(object_list, obj, group=None):
        if not outside(group):
            object_list[:] = [obj] * len(object_list)

    def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
        if object_gather_list is not None and not outside(group):
            object_gather_list[:] = [obj] * len(object_gather_list)

    def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
        """Every rank has what the source has: what this one has."""

    def scatter_object_list(output, inputs=None, src=None, group=None, group_src=None):
        if inputs and not outside(group):
            output[0] = inputs[c10d.get_rank(group)]

    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        pass

    for function in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list, monitored_barrier):
        name = function.__name__
        for module in (c10d, dist):
            if hasattr(module, name):
                setattr(module, name, function)


@guarded("The backends")
def _note_backends(c10d: ModuleType) -> None:
    real = c10d._new_process_group_helper

    def _new_process_group_helper(*args, **kwargs):
        result = real(*args, **kwargs)
        _note(c10d, result[0])
        return result

    c10d._new_process_group_helper = _new_process_group_helper


@guarded("The backends")
def _note(c10d: ModuleType, group: Any) -> None:
    known = c10d._world.pg_map.get(group)
    if known and known[0] not in backends:
        backends.append(str(known[0]))


def members() -> tuple[int, int] | None:
    """Rank and number of ranks of the default group, if there is one."""
    import sys

    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist.get_rank(), dist.get_world_size()
