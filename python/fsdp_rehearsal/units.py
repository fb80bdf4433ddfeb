"""Assigns collectives to units: FSDP2's parameter groups, FSDP1's handles, DDP's buckets.

The stub counts collectives in the order of issue. We wrap the functions that issue them for a unit; the counts before and
after identify the unit's collectives.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.modules import Modules, clean
from fsdp_rehearsal.phases import Phases
from fsdp_rehearsal.stub import Stub


ROOT = "(root)"  # the name of the unit of the root module


class Units:
    def __init__(self, stub: Stub, phases: Phases, modules: Modules) -> None:
        self._stub, self._phases, self._modules = stub, phases, modules
        self._starts: list[int] = [0]  # the first collective number of each stretch ...
        self._names: list[str] = [""]  # ... and the unit that issues it
        self._open: list[str] = []

    def name_of(self, collective: int) -> str:
        """The unit of a collective, by its number."""
        return self._modules.shown(self._names[bisect_right(self._starts, collective) - 1], ROOT)

    @guarded("The unit of a collective")
    def _enter(self, name: str) -> None:
        self._open.append(name)
        self._set(name)

    @guarded("The unit of a collective")
    def _leave(self) -> None:
        self._open.pop()
        self._set(self._open[-1] if self._open else "")

    def _set(self, name: str) -> None:
        now = self._stub.collective_count()
        if self._starts[-1] == now:
            self._names[-1] = name
        else:
            self._starts.append(now)
            self._names.append(name)

    def during(self, real: Callable, name_of: Callable, backward: bool = False) -> Callable:
        """Wraps `real` so that its collectives count for the unit `name_of(*arguments)`."""

        @functools.wraps(real)
        def call(*args, **kwargs):
            name = _try(name_of, args)
            if backward:
                self._phases.enter_backward_of(name)
            self._enter(name)
            try:
                return real(*args, **kwargs)
            finally:
                self._leave()

        return call

    @guarded("FSDP2's units")
    def install_fsdp2(self, module: ModuleType) -> None:
        """After torch.distributed.fsdp._fully_shard._fsdp_param_group."""
        group = module.FSDPParamGroup
        group.unshard = self.during(group.unshard, self._name_of_group)
        group.post_backward = self.during(group.post_backward, self._name_of_group)
        group.pre_backward = self.during(group.pre_backward, self._name_of_group, backward=True)

    @guarded("FSDP1's units")
    def install_fsdp1(self, module: ModuleType) -> None:
        """After torch.distributed.fsdp._runtime_utils."""
        handle = module.FlatParamHandle
        handle.unshard = self.during(handle.unshard, self._name_of_handle)
        for name in ("_reduce_grad", "_reduce_grad_no_shard"):
            setattr(module, name, self.during(getattr(module, name), lambda state, handle: self._name_of_handle(handle)))
        module._pre_backward_hook = self.during(
            module._pre_backward_hook,
            lambda state, root, handle, *rest: self._name_of_handle(handle) if handle else "",
            backward=True,
        )

    def _name_of_group(self, group: Any, *args: Any) -> str:
        """FSDP2 knows names below a root, and the modules of a unit determine the root."""
        fqn = clean(group._module_fqn or "")
        first = next(iter(getattr(group, "modules", ())), None)
        return (self._modules.numbered(first, fqn) if first is not None else fqn) or ROOT

    def _name_of_handle(self, handle: Any, *args: Any) -> str:
        return self._modules.name_of(handle._fully_sharded_module) or ROOT


@guarded("The unit of a collective", "")
def _try(name_of: Callable, args: tuple) -> str:
    return name_of(*args)
