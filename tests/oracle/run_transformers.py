"""Trains a model of Hugging Face transformers as a plan says, under the real FSDP2 and the fake process group."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.kernel_table import dtype_of
from fsdp_plan_runner.kernels_attention import choose_backends
from fsdp_plan_runner.plan import Plan
from fsdp_plan_runner.sharding import make_mesh, policy_of
from fsdp_plan_runner.training import make_optimizer
from memory_history import evaluate
from recorder import Recorder
from run_case import STEPS, describe, start, watch
from torch.distributed.fsdp import fully_shard


def run(request: dict[str, Any]) -> dict[str, Any]:
    """The same as run_case.run_planned, of a model that other people wrote."""
    model, plan, given = ExpandedModel(request["model"]), Plan(request["plan"]), request["transformers"]
    device = start(request["rank"], plan.world_size)
    _see_one_sequence_per_row()
    use = plan.implementations
    choose_backends(use.attention, use.prefer_cudnn_attention)
    recorder = Recorder()
    root = _build(model, plan, given, device)
    for unit in plan.units:
        modules = [root.get_submodule(name) for name in unit.modules]
        fully_shard(modules if len(modules) > 1 else modules[0], mesh=request.setdefault("mesh", make_mesh(plan, "cuda")),
                    mp_policy=policy_of(plan), reshard_after_forward=unit.reshard_after_forward)
    optimizer = make_optimizer(root, plan)
    watch(recorder, root, [(root.get_submodule(unit.modules[0]), unit.modules[0]) for unit in plan.units], optimizer)
    for _ in range(STEPS):
        recorder.begin_step()
        for micro_batch in range(plan.accumulation):
            recorder.phase = "forward"
            recorder.hook()
            root.set_requires_gradient_sync(plan.sync_every_micro_batch or micro_batch + 1 == plan.accumulation)
            root(**_batch(model, plan, device)).loss.backward()
        if plan.optimizer.clip_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(root.parameters(), plan.optimizer.clip_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
    recorder.hook()
    peaks = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    return {**describe(recorder, evaluate(recorder)), "allocator": peaks}


def _see_one_sequence_per_row() -> None:
    """transformers asks the positions whether a row holds several sequences, and makes a mask if so. A stub GPU has no
    values to ask; these positions are 0, 1, 2, ..., so a real one would say no."""
    from transformers import masking_utils

    find = masking_utils.find_packed_sequence_indices

    def found(*args: Any, **kwargs: Any) -> None:
        find(*args, **kwargs)

    masking_utils.find_packed_sequence_indices = found


def _build(model: ExpandedModel, plan: Plan, given: dict[str, Any], device: torch.device) -> torch.nn.Module:
    config = getattr(transformers, given["config"])(**given["sizes"], use_cache=False)
    with device:
        root = getattr(transformers, given["class"])(config)
    root.train()
    expected = {parameter.name: parameter for parameter in model.parameters}
    for name, parameter in root.named_parameters():
        trains = expected[name].trainable and parameter.requires_grad
        parameter.requires_grad_(trains)
        # A plan's parameter_dtype is that of what is trained.
        parameter.data = parameter.data.to(dtype_of(plan.parameter_dtype if trains else expected[name].dtype))
    if given["full"]:
        root.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return root


def _batch(model: ExpandedModel, plan: Plan, device: torch.device) -> dict[str, torch.Tensor]:
    batch = {}
    for number in model.inputs:
        tensor = model.tensors[number]
        dtype = dtype_of(tensor.dtype or plan.mixed_precision.param_dtype or plan.parameter_dtype)
        batch[tensor.name] = torch.zeros(tensor.shape, dtype=dtype, device=device)
    return batch
