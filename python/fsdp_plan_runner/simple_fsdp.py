"""SimpleFSDP of torchtitan, without a compiler: each parameter is a DTensor, and each read gathers it.

The order is that of torchtitan's trainers: a model on the meta device, data_parallel, memory, values. data_parallel makes a
new trained parameter for each name. So tied parameters are tied again afterwards, as torchtitan's models do when they make
their values, and frozen ones are frozen again.
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh

from fsdp_plan_runner.expanded_model import ExpandedModel, last_part, parent_name
from fsdp_plan_runner.kernel_table import dtype_of
from fsdp_plan_runner.modules import PlannedModule
from fsdp_plan_runner.plan import Plan
from fsdp_plan_runner.sharding import connect, give_values, make_mesh


def mode_of(plan: Plan) -> str:
    """The mode of the mesh. A single GPU is a shard group, as in torchtitan."""
    if plan.shard > 1:
        return "hybrid_shard" if plan.replicate > 1 else "fully_shard"
    return "replicate" if plan.replicate > 1 else "fully_shard"


def parametrize(root: PlannedModule, model: ExpandedModel, plan: Plan, device: torch.device) -> None:
    """Replaces each parameter by a DTensor, and allocates it. REQUIRES: the model is on the meta device."""
    from torchtitan.experiments.graph_trainer.simple_fsdp import (
        MixedPrecisionPolicy,
        data_parallel,
        disable_active_parametrization,
    )

    given, mode = plan.mixed_precision, mode_of(plan)
    policy = MixedPrecisionPolicy(param_dtype=dtype_of(given.param_dtype) if given.param_dtype else None,
                                  reduce_dtype=dtype_of(given.reduce_dtype) if given.reduce_dtype else None)
    is_replicated = mode == "replicate"
    mesh = init_device_mesh(device.type, (plan.replicate,), mesh_dim_names=("replicate",)) if is_replicated else make_mesh(plan, device.type)
    connect(mesh.get_group(mesh.mesh_dim_names[0]))
    data_parallel(root, mesh, mode, mp_policy=policy)
    root.to_empty(device=device)
    with disable_active_parametrization():  # Otherwise setting a name reads it first, which gathers.
        for parameter in model.parameters:
            first = getattr(root.get_submodule(parent_name(parameter.tied_to or parameter.name)), last_part(parameter.tied_to or parameter.name))
            first.requires_grad_(parameter.trainable)
            if parameter.tied_to is not None:
                setattr(root.get_submodule(parent_name(parameter.name)), last_part(parameter.name), first)
    give_values(root, device)
