"""Process groups of one real member.

NCCL's groups remain PyTorch's own, over the stub NCCL. Gloo would look for its peers on the network, so PyTorch's fake group
replaces it; it answers at once, as if every other rank had sent the same as this one. Collectives of Python objects are
answered here, in the same way.
"""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, Optional

from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.stub import Stub

backends: list[str] = []  # of the default group and of others, in the order of their first use


def install(dist: ModuleType, stub: Stub) -> None:
    """Called after torch.distributed is imported."""
    if not dist.is_available():
        return
    c10d = dist.distributed_c10d
    # The monitor of the real NCCL ends a process whose watchdog is slow, as under a debugger or on a busy machine.
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
    _replace_gloo(c10d)
    _answer_objects(c10d)
    _answer_on_cpu(c10d)
    _note_backends(c10d)
    _split_alone(c10d, stub)


@guarded("Gloo")
def _replace_gloo(c10d: ModuleType) -> None:
    from torch._C._distributed_c10d import FakeProcessGroup

    real = getattr(c10d, "ProcessGroupGloo", None)
    if real is None:
        return

    class Kind(type):
        def __instancecheck__(cls, group: Any) -> bool:
            return isinstance(group, FakeProcessGroup)

    class ProcessGroupGloo(metaclass=Kind):
        _Options = getattr(real, "_Options", None)

        def __new__(cls, store: Any, rank: int, size: int, *args: Any, **kwargs: Any):
            return FakeProcessGroup._create_internal(rank, size)

        @staticmethod
        def create_device(*args: Any, **kwargs: Any) -> None:
            return None

    # The fake group lacks these methods of a Gloo group.
    FakeProcessGroup._set_sequence_number_for_group = lambda self: None
    FakeProcessGroup._get_sequence_number_for_group = lambda self: 0
    FakeProcessGroup._set_default_timeout = lambda self, timeout: None
    if not hasattr(FakeProcessGroup, "options"):
        FakeProcessGroup.options = property(lambda self: SimpleNamespace())
    c10d.ProcessGroupGloo = ProcessGroupGloo

    # A method of the group with the backend, which calls the backend in C++.
    monitored = c10d.ProcessGroup.monitored_barrier

    def monitored_barrier(group: Any, *args: Any, **kwargs: Any) -> None:
        if "gloo" not in str(c10d._world.pg_map.get(group, ("",))[0]):
            monitored(group, *args, **kwargs)

    c10d.ProcessGroup.monitored_barrier = monitored_barrier


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
        """Every rank has the source's objects: this rank's own."""

    def scatter_object_list(
        scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None
    ):
        if scatter_object_input_list and not outside(group):
            scatter_object_output_list[0] = scatter_object_input_list[c10d.get_rank(group)]

    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        pass

    for function in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list, monitored_barrier):
        name = function.__name__
        for module in (c10d, dist):
            if hasattr(module, name):
                setattr(module, name, function)


@guarded("Collectives on the CPU")
def _answer_on_cpu(c10d: ModuleType) -> None:
    """The fake group copies what it gathers, but computes no sums and exchanges. Every rank has the same data as this one: a
    sum is a multiple, and each rank sends this one the part that it would send to itself."""
    import torch.distributed as dist

    reduce, exchange = c10d.all_reduce, c10d.all_to_all_single

    @functools.wraps(reduce)
    def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
        alone = tensor.clone() if tensor.device.type == "cpu" and op == dist.ReduceOp.SUM else None
        work = reduce(tensor, op, group, async_op)  # returns here if a torch function mode is active
        if alone is not None and not c10d._rank_not_in_group(group):
            tensor.copy_(alone.mul_(c10d.get_world_size(group)))
        return work

    @functools.wraps(exchange)
    def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
        work = exchange(output, input, output_split_sizes, input_split_sizes, group, async_op)
        if output.device.type == "cpu" and not c10d._rank_not_in_group(group) and not output_split_sizes:
            size, rank = c10d.get_world_size(group), c10d.get_rank(group)
            part = input.split(input_split_sizes)[rank] if input_split_sizes else input.chunk(size)[rank]
            if part.numel() * size == output.numel():
                output.copy_(part.repeat(size, *[1] * (part.dim() - 1)))
        return work

    for function in (all_reduce, all_to_all_single):
        setattr(c10d, function.__name__, function)
        setattr(dist, function.__name__, function)


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


@guarded("Groups that are split from others")
def _split_alone(c10d: ModuleType, stub: Stub) -> None:
    """NCCL learns the size of a split group from the other ranks, so we pass it to the stub. A group that also has the
    replacement of Gloo, which cannot be split, is made like any new group."""
    color, split = c10d._process_group_color, c10d.split_group

    def _process_group_color(ranks):
        stub.tell_next_split(len(ranks))
        return color(ranks)

    @functools.wraps(split)
    def split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, **kwargs):
        parent = parent_pg or c10d._get_default_group()
        globally = {of_group: of_all for of_all, of_group in c10d._world.pg_group_ranks[parent].items()}
        splits = [sorted(ranks) for ranks in split_ranks or []]
        if "gloo" in str(c10d._world.pg_map[parent][0]) and splits:
            made = [c10d.new_group([globally[r] for r in s], timeout=timeout, group_desc=group_desc) for s in splits]
            return next((m for m in made if m is not c10d.GroupMember.NON_GROUP_MEMBER), None)
        mine = next((s for s in splits if c10d.get_rank(parent) in s), [])
        stub.tell_next_split(len(mine))
        return split(parent_pg, split_ranks, timeout, pg_options, group_desc, **kwargs)

    make = c10d.new_group

    @functools.wraps(make)
    def new_group(ranks=None, *args, **kwargs):
        # Torch 2.15 computes the color elsewhere.
        if ranks and c10d.get_rank() in ranks:
            stub.tell_next_split(len(ranks))
        return make(ranks, *args, **kwargs)

    c10d._process_group_color = _process_group_color
    c10d.new_group = new_group
    sys.modules["torch.distributed"].new_group = new_group
    for name in ("torch.distributed", "torch.distributed.distributed_c10d", "torch.distributed.device_mesh"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "split_group"):
            module.split_group = split_group


def members() -> Optional[tuple[int, int]]:
    """Rank and number of ranks of the default group, if there is one."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist.get_rank(), dist.get_world_size()
