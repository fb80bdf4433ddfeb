"""Copies of a model on every rank, by DistributedDataParallel; on one GPU the unwrapped model."""

from __future__ import annotations

import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel

from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.modules import PlannedModule, untied
from fsdp_plan_runner.plan import Plan
from fsdp_plan_runner.sharding import give_values


def replicate(root: PlannedModule, model: ExpandedModel, plan: Plan, device: torch.device) -> None:
    """Moves the whole model to the device, and wraps it if there are several ranks: `root.wrapper`."""
    if plan.initialization == "meta":
        with untied(model, root):
            root.to_empty(device=device)
    elif plan.initialization == "cpu":
        root.to(device)
    give_values(root, device)
    if plan.world_size == 1:
        return
    given = plan.ddp
    # A list, so that torch.nn.Module does not register the wrapper as a child of its own contents.
    root.wrapper = [DistributedDataParallel(root, bucket_cap_mb=given.bucket_cap_mb,
                                            broadcast_buffers=given.broadcast_buffers,
                                            gradient_as_bucket_view=given.gradient_as_bucket_view,
                                            find_unused_parameters=given.find_unused_parameters)]


def synchronizing(root: PlannedModule, is_wanted: bool) -> contextlib.AbstractContextManager[None]:
    """Wraps the forward and backward of a micro-batch."""
    return contextlib.nullcontext() if is_wanted or not root.wrapper else root.wrapper[0].no_sync()
