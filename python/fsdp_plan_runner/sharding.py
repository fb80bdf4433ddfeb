"""Wraps a model in the units of a plan with fully_shard, and allocates its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.forward_program import backward_order, forward_order, unit_windows
from fsdp_plan_runner.kernel_table import dtype_of
from fsdp_plan_runner.modules import PlannedModule, untied
from fsdp_plan_runner.plan import Plan


def make_mesh(plan: Plan, device_type: str) -> DeviceMesh:
    """One dimension, or two if there are replicas. Ranks of a shard group are neighbors."""
    if plan.replicate == 1:
        mesh = init_device_mesh(device_type, (plan.shard,), mesh_dim_names=("shard",))
    else:
        mesh = init_device_mesh(device_type, (plan.replicate, plan.shard), mesh_dim_names=("replicate", "shard"))
    for name in mesh.mesh_dim_names or ():
        connect(mesh.get_group(name))
    return mesh


def connect(group: dist.ProcessGroup | None = None) -> None:
    """Makes NCCL create the communicator of a group now, not at its first collective: a plan counts its memory from the
    initialization on, as in a program that passes its device to init_process_group. The group defaults to that of all ranks.
    """
    group = group or dist.group.WORLD
    if group is None or group.size() == 1 or "nccl" not in dist.get_backend_config(group):
        return
    device = torch.device("cuda", torch.cuda.current_device())
    group._get_backend(device).eager_connect_single_device(device)


def policy_of(plan: Plan) -> MixedPrecisionPolicy:
    given = plan.mixed_precision
    return MixedPrecisionPolicy(
        param_dtype=dtype_of(given.param_dtype) if given.param_dtype else None,
        reduce_dtype=dtype_of(given.reduce_dtype) if given.reduce_dtype else None,
        output_dtype=dtype_of(given.output_dtype) if given.output_dtype else None,
        cast_forward_inputs=given.cast_forward_inputs)


def shard(root: PlannedModule, plan: Plan, mesh: DeviceMesh) -> None:
    """Makes the units of the plan, and requests its prefetches, in the order of the model's program."""
    windows = [unit_windows(root.program, unit.modules) for unit in plan.units]
    prefetch(shard_units(root, plan, mesh), plan, forward_order(windows), backward_order(windows))
    set_reductions(root, plan)


def shard_units(root: torch.nn.Module, plan: Plan, mesh: DeviceMesh,
                after_unit: Callable[[], None] | None = None) -> list[FSDPModule]:
    """One call of fully_shard for each unit, in the order of the plan. Returns the first module of each."""
    options: dict[str, Any] = {"mesh": mesh, "mp_policy": policy_of(plan)}
    if plan.cpu_offload:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=mesh.device_type != "cpu")
    for unit in plan.units:
        modules = [root.get_submodule(name) for name in unit.modules]
        fully_shard(modules if len(modules) > 1 else modules[0], reshard_after_forward=unit.reshard_after_forward,
                    **options)
        if after_unit is not None:
            after_unit()
    return [root.get_submodule(unit.modules[0]) for unit in plan.units]


def prefetch(first_modules: list[FSDPModule], plan: Plan, forward: list[int], backward: list[int]) -> None:
    """Requests prefetching of the `forward_prefetch` units that are entered next, and of the `backward_prefetch` units that
    were left before; 0 and 1 leave FSDP2 its own order. `forward`, `backward`: the units in the order in which each pass
    enters them."""

    def holds_parameters(unit: int) -> bool:
        return first_modules[unit]._get_fsdp_state()._fsdp_param_group is not None

    def neighbors(order: list[int], count: int) -> list[tuple[FSDPModule, list[FSDPModule]]]:
        units = [first_modules[unit] for unit in order if holds_parameters(unit)]
        return [(module, units[i + 1:i + 1 + count]) for i, module in enumerate(units) if units[i + 1:]]

    if plan.forward_prefetch > 0:
        for module, others in neighbors(forward, plan.forward_prefetch):
            module.set_modules_to_forward_prefetch(others)
    if plan.backward_prefetch > 1:
        for module, others in neighbors(backward, plan.backward_prefetch):
            module.set_modules_to_backward_prefetch(others)


def set_reductions(root: torch.nn.Module, plan: Plan) -> None:
    """Applies the plan's settings of FSDP2's reductions. REQUIRES: PyTorch 2.13, if there are any."""
    if plan.reduce_scatter_buffers != 1:
        root.set_reduce_scatter_max_input_buffers(plan.reduce_scatter_buffers)
    if plan.separate_reduce_scatter_group:
        root.set_separate_reduce_scatter_group()


def materialize(root: PlannedModule, model: ExpandedModel, plan: Plan, device: torch.device) -> None:
    """Allocates shards that are still on the meta device, and fills all of them with values. Calls no collective."""
    if plan.initialization == "meta":
        with untied(model, root):
            root.to_empty(device="cpu" if plan.cpu_offload else device)
    give_values(root, device)


def give_values(root: PlannedModule, device: torch.device) -> None:
    """Fills all parameters, or this rank's parts of them, and all buffers, which move to the device."""
    make_buffers(root, device)
    with torch.no_grad():
        for parameter in root.parameters():
            fill_with_numbers(parameter.to_local() if isinstance(parameter, DTensor) else parameter)


def make_buffers(root: PlannedModule, device: torch.device) -> None:
    """Makes all of them on the device, filled with zeros."""
    with torch.no_grad():
        for buffer_name, owner in root.context.buffers.items():
            name = buffer_name.rpartition(".")[2]
            setattr(owner, name, getattr(owner, name).to(device).zero_())


def fill_with_numbers(tensor: torch.Tensor) -> None:
    if not tensor.is_floating_point():
        tensor.zero_()
    elif tensor.is_cuda:
        tensor.normal_(std=0.02)
    else:
        tensor.fill_(0.02)  # Random numbers for billions of parameters take minutes on a CPU.
