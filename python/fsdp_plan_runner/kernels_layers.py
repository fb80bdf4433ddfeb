"""Linear layers, embeddings, convolutions, and parameters that are read as they are."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.kernels import KernelContext, Tensors, kernel


@kernel("linear")
def linear(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    weight, bias = parameters[0], parameters[1] if len(parameters) > 1 else None
    if not op.attributes["transposed_weight"]:
        return F.linear(inputs[0], weight, bias)
    # Conv1D of transformers (pytorch_utils.py): the weight lies [in, out].
    x = inputs[0].view(-1, inputs[0].shape[-1])
    y = torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)
    return y.view(context.shapes[op.outputs[0]])


@kernel("embedding")
def embedding(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    row = op.attributes["padding_idx"]
    return F.embedding(inputs[0], parameters[0], padding_idx=None if row < 0 else row)


@kernel("conv1d")
def conv1d(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    a = op.attributes
    return F.conv1d(inputs[0], *parameters, stride=a["stride"], padding=a["padding"], dilation=a["dilation"],
                    groups=a["groups"])


@kernel("conv2d")
def conv2d(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    a = op.attributes
    return F.conv2d(inputs[0], *parameters, stride=a["stride"], padding=a["padding"], dilation=a["dilation"],
                    groups=a["groups"])


@kernel("parameter")
def parameter(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return parameters[0]
