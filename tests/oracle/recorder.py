"""Listens to one training step after another under the real FSDP2: each collective when it is called, and what the memory
is for.

Bytes and their moments are those of the allocator's own history. What a tensor is for is learned from the objects of
FSDP2 that hold it, at hooks: a storage that is seen as the all-gather output of a unit at a hook was that from its
allocation to its free. What no hook knows is an activation or a temporary.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group

# In rising order of weight: a storage that was seen as two of them is the later one.
CATEGORIES = ("Inputs", "Buffer", "All Gather", "Reduce Scatter", "Unsharded Param", "Unsharded Grad", "Sharded Param",
              "Sharded Grad", "OptState")
REST = "Activation or Temp"


@dataclasses.dataclass
class Event:
    """A collective, as it is called."""

    kind: str
    unit: str
    phase: str
    micro_batch: int
    dtype: str
    elements_in: int
    elements_out: int
    ranks: list[int]
    op: str
    hook: int
    live: int = 0
    by_category: dict[str, int] = dataclasses.field(default_factory=dict)


def _address(tensor: torch.Tensor | None) -> int:
    """Where the storage of a tensor lies on the device; 0: nowhere."""
    if tensor is None:
        return 0
    local = getattr(tensor, "_local_tensor", tensor)
    if not local.is_cuda or local.untyped_storage().nbytes() == 0:
        return 0
    return local.untyped_storage().data_ptr()


class Recorder:
    """Hooks into FSDP2 of this process, for good. `begin_step` comes before each step."""

    def __init__(self) -> None:
        self.steps: list[list[Event]] = []
        self.step_begins: list[int] = []  # Numbers of hooks.
        self.phase = ""
        self.micro_batch = 0
        self.unit = ""
        self.units: dict[int, str] = {}  # By id of the parameter group.
        self.groups: list[Any] = []
        self.buffers: list[torch.Tensor] = []
        self.inputs: Callable[[], Iterable[torch.Tensor | None]] = tuple
        self.optimizer: torch.optim.Optimizer | None = None
        self.seen: list[dict[int, str]] = []  # For each hook: what each address is for.
        self.parts: list[str] = []  # For each hook: forward, backward or optimizer.
        torch.cuda.memory._record_memory_history(context=None)
        self._replace()

    # ---- What is listened to.

    def _replace(self) -> None:
        self._collective(dist, "all_gather_into_tensor", "all_gather", ("output_tensor", "input_tensor"))
        self._collective(dist, "reduce_scatter_tensor", "reduce_scatter", ("output", "input"))
        self._collective(dist, "all_reduce", "all_reduce", ("tensor", "tensor"))
        self._collective(functional, "all_reduce", "all_reduce", ("self", "self"))
        group = _fsdp_param_group.FSDPParamGroup
        for name in ("unshard", "post_backward"):
            setattr(group, name, self._of_unit(getattr(group, name)))
        group.wait_for_unshard = self._followed_by_hook(group.wait_for_unshard)
        found = _fsdp_collectives._get_param_all_gather_inputs

        def inputs(parameters: Any) -> Any:
            result = found(parameters)
            self._gathered = [_address(tensor) for tensors in result for tensor in tensors]
            return result

        reduction = _fsdp_collectives.DefaultReduceScatter
        reduction.allocate = self._allocated(reduction.allocate)
        self._gathered: list[int] = []
        _fsdp_collectives._get_param_all_gather_inputs = inputs

    def _collective(self, module: Any, name: str, kind: str, ends: tuple[str, str]) -> None:
        function = getattr(module, name)
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            group = given["group"]
            if module is functional:
                group = dist.distributed_c10d._resolve_process_group(functional._resolve_group_name(group, given["tag"]))
            op = given.get("op", given.get("reduceOp", ""))
            self._issue(kind, given[ends[0]], given[ends[1]], group, str(op).rpartition(".")[2].lower())
            del bound, given
            return function(*args, **kwargs)

        setattr(module, name, call)

    def _of_unit(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(group: Any, *args: Any) -> Any:
            outer, self.unit = self.unit, self.units.get(id(group), "?")
            if method.__name__ == "post_backward":
                self.hook()
            try:
                return method(group, *args)
            finally:
                self.unit = outer

        return call

    def _allocated(self, method: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> torch.Tensor:
            made = method(*args, **kwargs)
            self.hook({_address(made): "Reduce Scatter"})
            return made

        return call

    def _followed_by_hook(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(group: Any) -> None:
            method(group)
            self.hook()

        return call

    # ---- What is written down.

    def begin_step(self) -> None:
        self.step_begins.append(self.hook())
        self.steps.append([])

    def _issue(self, kind: str, output: torch.Tensor, given: torch.Tensor, group: Any, op: str) -> None:
        here: dict[int, str] = {}
        if kind == "all_gather":
            here = {address: "All Gather" for address in (*self._gathered, _address(output))}
            self._gathered = []
        ranks = dist.get_process_group_ranks(group) if group is not None else list(range(dist.get_world_size()))
        number = self.hook(here)
        if not self.steps:
            return
        self.steps[-1].append(Event(kind, self.unit, self.phase, self.micro_batch, str(given.dtype).rpartition(".")[2],
                                    given.numel(), output.numel(), ranks, op, number))

    def hook(self, here: dict[int, str] | None = None) -> int:
        """Notes what the memory is for now; returns the hook's number."""
        found = here or {}
        for address, category in self._known():
            if address and (address not in found or _weight(category) > _weight(found[address])):
                found[address] = category
        found.pop(0, None)
        self.seen.append(found)
        self.parts.append(self.phase)
        # Written into the history with each event that follows.
        torch._C._cuda_setMemoryMetadata(str(len(self.seen)))
        return len(self.seen) - 1

    def _known(self) -> Iterator[tuple[int, str]]:
        for tensor in self.inputs():
            yield _address(tensor), "Inputs"
        for tensor in self.buffers:
            yield _address(tensor), "Buffer"
        for group in self.groups:
            if group._all_gather_result is not None:
                yield _address(group._all_gather_result.all_gather_output), "All Gather"
            if group._all_reduce_state is not None:
                yield _address(group._all_reduce_state.all_reduce_input), "Reduce Scatter"
            for parameter in group.fsdp_params:
                yield from _of_parameter(parameter)
        if self.optimizer is not None:
            for state in self.optimizer.state.values():
                for value in state.values():
                    if isinstance(value, torch.Tensor):
                        yield _address(value), "OptState"


def _weight(category: str) -> int:
    return CATEGORIES.index(category)


def _of_parameter(parameter: Any) -> Iterator[tuple[int, str]]:
    yield _address(parameter._sharded_param_data), "Sharded Param"
    yield _address(getattr(parameter, "_sharded_post_forward_param_data", None)), "Sharded Param"
    for output in parameter.all_gather_outputs:
        yield _address(output), "Unsharded Param"
    unsharded = getattr(parameter, "_unsharded_param", None)
    if unsharded is not None:
        yield _address(unsharded.grad), "Unsharded Grad"
    yield _address(parameter.unsharded_accumulated_grad), "Unsharded Grad"
    yield _address(parameter.sharded_param.grad), "Sharded Grad"
