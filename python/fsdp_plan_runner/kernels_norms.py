"""Normalization.

Sources: transformers models/llama and gemma2 /modeling_*.py (the order of the calls), aten/src/ATen/native/
layer_norm.cpp (rms_norm_composite of PyTorch before 2.9).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.kernels import KernelContext, Tensors, kernel


def _normalized(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


@kernel("rms_norm")
def rms_norm(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    x = inputs[0]
    weight = parameters[0] if parameters else None
    which = context.implementations.rms_norm
    if which == "fused" and not op.attributes["unit_offset"]:
        return F.rms_norm(x, (x.shape[-1],), weight, op.attributes["eps"])
    y = _normalized(x.to(torch.float32), op.attributes["eps"])
    if weight is None:
        return y.to(x.dtype)
    if op.attributes["unit_offset"]:
        return (y * (1.0 + weight.float())).type_as(x)
    if which == "written_out":
        return weight * y.to(x.dtype)
    y = y * weight
    return y.to(x.dtype)


@kernel("layer_norm")
def layer_norm(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return F.layer_norm(inputs[0], (inputs[0].shape[-1],), *parameters, eps=op.attributes["eps"])


@kernel("group_norm")
def group_norm(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return F.group_norm(inputs[0], op.attributes["groups"], *parameters, eps=op.attributes["eps"])


@kernel("batch_norm")
def batch_norm(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    """PyTorch's own kernels: how much cuDNN's would keep in reserve is known to cuDNN alone."""
    buffers = [context.buffer(f"{op.module}.{name}") for name in ("running_mean", "running_var")]
    context.buffer(f"{op.module}.num_batches_tracked").add_(1)
    with torch.backends.cudnn.flags(enabled=False):
        return F.batch_norm(inputs[0], *buffers, *parameters, training=True,
                            momentum=op.attributes["momentum"], eps=op.attributes["eps"])
