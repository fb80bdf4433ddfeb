"""Losses. Sources: transformers loss/loss_utils.py (ForCausalLMLoss), flash_attn/losses/cross_entropy.py."""

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
    rows, targets = logits.view(-1, logits.shape[-1]), labels.view(-1)
    if context.implementations.cross_entropy == "flash_attn":
        from flash_attn.losses.cross_entropy import CrossEntropyLoss

        return CrossEntropyLoss(ignore_index=-100)(rows, targets)
    return F.cross_entropy(rows, targets, ignore_index=-100)


@kernel("mse_loss")
def mse_loss(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return F.mse_loss(inputs[0], inputs[1])
