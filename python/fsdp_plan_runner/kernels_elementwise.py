"""Elementwise functions and reductions."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.kernels import KernelContext, Tensors, dtype_of, kernel


@kernel("silu")
def silu(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return F.silu(inputs[0])


@kernel("gelu")
def gelu(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    x = inputs[0]
    if op.attributes["written_out"]:  # NewGELUActivation of transformers.
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    return F.gelu(x, approximate="tanh" if op.attributes["approximate"] else "none")


@kernel("relu")
def relu(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return F.relu(inputs[0])


@kernel("sigmoid")
def sigmoid(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return torch.sigmoid(inputs[0])


@kernel("tanh")
def tanh(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return torch.tanh(inputs[0])


@kernel("mul")
def mul(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return inputs[0] * inputs[1]


@kernel("add")
def add(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return inputs[0] + inputs[1]


@kernel("sub")
def sub(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return inputs[0] - inputs[1]


@kernel("scale")
def scale(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    factor = op.attributes["scale"]
    return inputs[0] * (torch.tensor(factor, dtype=inputs[0].dtype).item() if op.attributes["rounded"] else factor)


@kernel("softcap")
def softcap(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    cap = op.attributes["softcap"]
    return torch.tanh(inputs[0] / cap) * cap


@kernel("dropout")
def dropout(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    if op.attributes["probability"] == 0:
        return inputs[0]
    return F.dropout(inputs[0], op.attributes["probability"], training=True)


@kernel("cast")
def cast(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    name = op.attributes["dtype"]
    return inputs[0].to(dtype_of(name) if name else context.activation)


@kernel("softmax")
def softmax(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return F.softmax(inputs[0], dim=op.attributes["dim"])


@kernel("mean")
def mean(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return inputs[0].mean(op.attributes["dim"], keepdim=op.attributes["keep_dim"])


@kernel("sum")
def sum_(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return inputs[0].sum(op.attributes["dim"], keepdim=op.attributes["keep_dim"])


@kernel("std")
def std(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    """Of ECAPA-TDNN's attentive statistics: weighted, with a floor below the root."""
    dim, keep = op.attributes["dim"], op.attributes["keep_dim"]
    if len(inputs) == 2:
        return torch.sqrt((inputs[0] - inputs[1]).pow(2).sum(dim, keepdim=keep).clamp(op.attributes["eps"]))
    return torch.sqrt((inputs[2] * (inputs[0] - inputs[1]).pow(2)).sum(dim, keepdim=keep).clamp(op.attributes["eps"]))


@kernel("max_pool2d")
def max_pool2d(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    a = op.attributes
    return F.max_pool2d(inputs[0], a["kernel"], a["stride"], a["padding"], a["dilation"])


@kernel("adaptive_avg_pool2d")
def adaptive_avg_pool2d(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return F.adaptive_avg_pool2d(inputs[0], op.attributes["length"])
