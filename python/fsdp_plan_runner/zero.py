"""ZeRO of DeepSpeed: what its configuration says for a plan, and the engine that trains it.

The model is whole on every rank when the engine takes it. With mixed precision its parameters are in 16 bits by then, as
`torch_dtype=torch.bfloat16` makes them; the engine keeps the master weights in fp32. Where it is, by "initialization":

    device   made on the GPU at once, as under `with torch.device("cuda")`
    cpu      made on the host, as `from_pretrained` does; the engine moves it to the GPU, parameter by parameter
    meta     made without memory, then `to_empty` on the GPU

The engine makes its flat copy of all parameters while they are still there.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any

import torch

from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.kernels import dtype_of
from fsdp_plan_runner.modules import PlannedModule, untied
from fsdp_plan_runner.plan import Plan
from fsdp_plan_runner.sharding import fill_with_numbers, make_buffers

if TYPE_CHECKING:
    from fsdp_plan_runner.training import Batch


def parameter_dtype_of(plan: Plan) -> torch.dtype | None:
    """Of the model that the engine is given; None: as the checkpoint has it."""
    named = plan.mixed_precision.param_dtype or plan.parameter_dtype
    return dtype_of(named) if named else None


def configuration_of(plan: Plan) -> dict[str, Any]:
    """What a user writes into ds_config.json."""
    given = plan.zero
    zero: dict[str, Any] = {"stage": plan.zero_stage, "reduce_bucket_size": given.reduce_bucket_size,
                            "overlap_comm": given.overlap_comm}
    return {
        # DeepSpeed counts samples with it and nothing else.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": plan.accumulation,
        "gradient_clipping": plan.optimizer.clip_grad_norm or 0.0,
        "bf16": {"enabled": plan.mixed_precision.param_dtype == "bfloat16"},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "steps_per_print": None,
    }


def place(root: PlannedModule, model: ExpandedModel, plan: Plan, device: torch.device) -> None:
    """Gives the model memory and values, where a user's would be before the engine takes it."""
    if plan.initialization == "meta":
        with untied(model, root):
            root.to_empty(device=device)
    make_buffers(root, torch.device("cpu") if plan.initialization == "cpu" else device)
    with torch.no_grad():
        for parameter in root.parameters():
            fill_with_numbers(parameter)


def start_engine(root: PlannedModule, optimizer: torch.optim.Optimizer, plan: Plan) -> None:
    """Hands the model and its optimizer to DeepSpeed: `root.wrapper` is the engine. REQUIRES: a process group."""
    # Its logger writes to what is stdout while it is imported.
    with contextlib.redirect_stdout(sys.stderr):
        import deepspeed

        deepspeed.utils.logger.setLevel(logging.WARNING)
        engine, *_ = deepspeed.initialize(model=root, optimizer=optimizer, config=configuration_of(plan),
                                          dist_init_required=False)
    # A list, so that torch.nn.Module does not take the wrapper for a child of what it wraps.
    root.wrapper = [engine]


def run_engine_step(root: PlannedModule, batch: Batch, plan: Plan) -> None:
    """The loop that DeepSpeed asks for: the engine divides the loss, and its step does nothing before the last micro-batch."""
    from fsdp_plan_runner.training import run_forward

    engine = root.wrapper[0]
    for _ in range(plan.accumulation):
        batch.load()
        result = run_forward(root, batch.values)
        loss = result[0] if isinstance(result, tuple) else result
        engine.backward(loss)
        del result, loss
        engine.step()
