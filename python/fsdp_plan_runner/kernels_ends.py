"""Losses. Source: transformers loss/loss_utils.py (ForCausalLMLoss)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.kernels import KernelContext, Tensors, kernel


@kernel("cross_entropy")
def cross_entropy(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    logits, labels = inputs
    if context.implementations.upcast_logits:
        logits = logits.float()
    if op.attributes["shift"]:
        labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=-100)


@kernel("mse_loss")
def mse_loss(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return F.mse_loss(inputs[0], inputs[1])
