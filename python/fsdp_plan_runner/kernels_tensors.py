"""Elementwise functions and reductions; views, copies and indexing; and tensors that the forward makes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from fsdp_plan_runner.constants import make_constant
from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.kernel_table import KernelContext, Tensors, dtype_of, kernel


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
    y = F.relu(inputs[0])
    return torch.square(y) if op.attributes["written_out"] else y  # ReLUSquaredActivation of transformers.


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
    if op.attributes["in_place"]:
        return inputs[0].add_(inputs[1])
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
    return F.dropout(inputs[0], op.attributes["probability"], training=context.training)


@kernel("cast")
def cast(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    name = op.attributes["dtype"]
    if op.attributes["unless_autocast"] and torch.is_autocast_enabled():
        return inputs[0]
    if op.attributes["as_trained"]:
        return inputs[0].to(context.trained or context.activation)
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
    """Part of ECAPA-TDNN's attentive statistics: weighted, with a floor below the root."""
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


@kernel("detach")
def detach(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return inputs[0].detach()


@kernel("reshape")
def reshape(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return inputs[0].reshape(context.shapes[op.outputs[0]])


@kernel("transpose")
def transpose(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return inputs[0].transpose(op.attributes["dim"], op.attributes["other_dim"])


@kernel("slice")
def slice_(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return inputs[0].narrow(op.attributes["dim"], op.attributes["start"], op.attributes["length"])


@kernel("select")
def select(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return inputs[0].select(op.attributes["dim"], op.attributes["start"])


@kernel("expand")
def expand(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return inputs[0].expand(context.shapes[op.outputs[0]])


@kernel("split")
def split(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> tuple[torch.Tensor, ...]:
    length, dim = op.attributes["length"], op.attributes["dim"]
    if op.attributes["lengths"]:
        return inputs[0].split(list(op.attributes["lengths"]), dim=dim)
    if length:
        others = len(op.outputs) - 1
        return inputs[0].split([length, *[(inputs[0].shape[dim] - length) // others] * others], dim=dim)
    return inputs[0].chunk(len(op.outputs), dim=dim)


@kernel("contiguous")
def contiguous(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    # The model has a copy here; .contiguous() would not copy a tensor that is contiguous already.
    return inputs[0].clone(memory_format=torch.contiguous_format)


@kernel("set_slice")
def set_slice(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    x, part = inputs
    x.narrow(op.attributes["dim"], op.attributes["start"], part.shape[op.attributes["dim"]]).copy_(part)
    return x


@kernel("kv_cache")
def kv_cache(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> tuple[torch.Tensor, ...]:
    if not context.implementations.use_cache:
        return tuple(inputs)
    key, value = (x.transpose(1, 2) for x in inputs)
    empty = torch.tensor([], dtype=key.dtype, device=key.device)
    key, value = torch.cat([empty, key], dim=-2), torch.cat([empty, value], dim=-2)
    return key.transpose(1, 2), value.transpose(1, 2)


@kernel("cat")
def cat(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return torch.cat(list(inputs), dim=op.attributes["dim"])


@kernel("stack")
def stack(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return torch.stack(list(inputs), dim=op.attributes["dim"])


@kernel("index")
def index(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    dim = op.attributes["dim"] % inputs[0].dim()
    return inputs[0][(slice(None),) * dim + (inputs[1],)]


@kernel("pad")
def pad(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    """Half of the padding before, the rest after, as in convolutions with padding "same"."""
    x = inputs[0]
    dim = op.attributes["dim"] % x.dim()
    missing = op.attributes["length"] - x.shape[dim]
    sizes = [0, 0] * (x.dim() - 1 - dim) + [missing // 2, missing - missing // 2]
    return F.pad(x, sizes, mode="reflect" if op.attributes["reflect"] else "constant")


@kernel("constant")
def constant(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    name = op.attributes["dtype"]
    return make_constant(op.attributes, context.shapes[op.outputs[0]], dtype_of(name) if name else context.activation,
                         context.device)
