"""Wraps a model in the units of a plan with FullyShardedDataParallel (FSDP1), each with its own flat parameter."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
)

from fsdp_plan_runner.expanded_model import ExpandedModel, last_part, parent_name
from fsdp_plan_runner.kernel_table import dtype_of
from fsdp_plan_runner.modules import PlannedModule, call_in_place
from fsdp_plan_runner.plan import Plan
from fsdp_plan_runner.sharding import connect, give_values, make_mesh

_BACKWARD_PREFETCH = {"pre": BackwardPrefetch.BACKWARD_PRE, "post": BackwardPrefetch.BACKWARD_POST, "none": None}


def strategy_of(plan: Plan) -> ShardingStrategy:
    """The strategy of the mesh and the units' reshard_after_forward. FSDP1 has one strategy for all units."""
    if plan.shard == 1:
        return ShardingStrategy.NO_SHARD
    below = [unit for unit in plan.units if unit.modules != ("",)] or plan.units
    keeps = all(unit.reshard_after_forward is False for unit in below)
    if plan.replicate == 1:
        return ShardingStrategy.SHARD_GRAD_OP if keeps else ShardingStrategy.FULL_SHARD
    return ShardingStrategy._HYBRID_SHARD_ZERO2 if keeps else ShardingStrategy.HYBRID_SHARD


def options_of(plan: Plan, device: torch.device) -> dict[str, Any]:
    given, precision = plan.fsdp1, plan.mixed_precision
    options: dict[str, Any] = {
        "sharding_strategy": strategy_of(plan), "device_id": device,
        "backward_prefetch": _BACKWARD_PREFETCH[given.backward_prefetch], "forward_prefetch": given.forward_prefetch,
        "limit_all_gathers": given.limit_all_gathers, "use_orig_params": given.use_orig_params}
    if precision.param_dtype or precision.reduce_dtype or given.buffer_dtype:
        options["mixed_precision"] = MixedPrecision(
            param_dtype=dtype_of(precision.param_dtype) if precision.param_dtype else None,
            reduce_dtype=dtype_of(precision.reduce_dtype) if precision.reduce_dtype else None,
            buffer_dtype=dtype_of(given.buffer_dtype) if given.buffer_dtype else None,
            cast_forward_inputs=precision.cast_forward_inputs,
            cast_root_forward_inputs=given.cast_root_forward_inputs)
    if plan.cpu_offload:
        options["cpu_offload"] = CPUOffload(offload_params=True)
    if plan.replicate > 1 and plan.shard > 1:
        options["device_mesh"] = make_mesh(plan, device.type)
    else:
        connect()
    return options


class _Maker:
    """Allocates the parameters and buffers of a module that are on the meta device: `param_init_fn`. Makes a shared one
    once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._made: dict[torch.nn.Parameter, torch.nn.Parameter] = {}

    def __call__(self, module: torch.nn.Module) -> None:
        for name, parameter in module._parameters.items():
            if parameter is None or not parameter.is_meta:
                continue
            if parameter not in self._made:
                tensor = torch.empty_like(parameter, device=self._device)
                self._made[parameter] = torch.nn.Parameter(tensor, requires_grad=parameter.requires_grad)
            module._parameters[name] = self._made[parameter]
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                module._buffers[name] = torch.empty_like(buffer, device=self._device)
        for name, tensor in vars(module).items():
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                module.__dict__[name] = torch.empty_like(tensor, device=self._device)

    def forget(self) -> None:
        self._made.clear()


def wrap(root: PlannedModule, model: ExpandedModel, plan: Plan, device: torch.device) -> None:
    """One FullyShardedDataParallel for each unit, in the order of the plan. That of the root is `root.wrapper`."""
    options = options_of(plan, device)
    maker = _Maker(device)
    if plan.initialization == "meta":
        options["param_init_fn"] = maker
    for unit in plan.units:
        name = unit.modules[0]
        module = root.get_submodule(name)
        wrapper = FullyShardedDataParallel(module, **options)
        maker.forget()
        if name:
            setattr(root.get_submodule(parent_name(name)), last_part(name), wrapper)
            call_in_place(root, module, wrapper)
        else:
            # A list, so that torch.nn.Module does not register the wrapper as a child of its own contents.
            root.wrapper = [wrapper]
    give_values(root, device)
