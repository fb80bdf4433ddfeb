"""torch.distributed.checkpoint with one rank of many: it plans, writes and reads its own part.

The real coordinator, rank 0, gathers every rank's plan, checks that together they cover each tensor, and writes the metadata.
A plan lists the shards of a rank, so the others' plans cannot be copies of this one's. Here they are empty, the check is left
out, and the simulated rank is its own coordinator. One process can read what it has written.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fsdp_rehearsal.guard import guarded


@guarded("torch.distributed.checkpoint")
def install(utils: ModuleType) -> None:
    """After torch.distributed.checkpoint.utils."""
    wrapper = utils._DistWrapper

    def all_of(self: Any, mine: Any) -> list[Any]:
        """The plans of all ranks: this rank's own, and empty ones for the others."""
        if not dataclasses.is_dataclass(mine) or not hasattr(mine, "items"):
            return [mine] * self.get_world_size()
        empty = dataclasses.replace(mine, items=[])
        return [mine if rank == self.rank else empty for rank in range(self.get_world_size())]

    def reduce_scatter(self: Any, step: str, map_fun: Callable[[], Any], reduce_fun: Callable[[list[Any]], list[Any]]) -> Any:
        return reduce_fun(all_of(self, map_fun()))[self.rank]

    def all_reduce(self: Any, step: str, map_fun: Callable[[], Any], reduce_fun: Callable[[list[Any]], Any]) -> Any:
        return reduce_fun([map_fun()])

    def all_gather(self: Any, step: str, map_fun: Callable[[], Any]) -> list[Any]:
        return [map_fun()] * self.get_world_size()

    def broadcast(self: Any, step: str, map_fun: Callable[[], Any]) -> Any:
        return map_fun()

    for function in (reduce_scatter, all_reduce, all_gather, broadcast):
        setattr(wrapper, function.__name__, function)


@guarded("The functions of torch.distributed.checkpoint")
def watch(package: ModuleType, names: tuple[str, ...], during: Callable[[str, Callable], Callable]) -> None:
    """Makes saving a separate phase."""
    for name in names:
        if hasattr(package, name):
            setattr(package, name, during("saving", getattr(package, name)))


@guarded("The plans of torch.distributed.checkpoint")
def install_planner(planner: ModuleType) -> None:
    """After torch.distributed.checkpoint.default_planner."""
    if hasattr(planner, "_validate_global_plan"):
        planner._validate_global_plan = lambda global_plan, metadata: True


@guarded("The optimizer states of FSDP1")
def install_fsdp1(utils: ModuleType) -> None:
    """After torch.distributed.fsdp._optim_utils. Rank 0 sends the others the list of states; here, it is this rank's list,
    which equals the merged keys of all ranks."""
    real = utils._map_param_key_to_optim_keys

    @functools.wraps(real)
    def keys_of(optim_state_dict, group, *args, merge_keys=False, **kwargs):
        import torch.distributed as dist

        return real(optim_state_dict, group, *args, merge_keys=merge_keys or dist.get_rank(group) != 0, **kwargs)

    utils._map_param_key_to_optim_keys = keys_of
