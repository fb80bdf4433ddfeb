"""Mixture of experts, with the tokens spread evenly.

Where a token goes depends on values, and on a stub GPU there are none. So the router runs as it is, and expert e takes
tokens * k / experts rows, a remainder going to the first experts: the same share that a prediction assumes. On a real
GPU too, so that the two can be compared.

Source: transformers 4.57 models/mixtral/modeling_mixtral.py (MixtralSparseMoeBlock).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.kernels import KernelContext, Tensors, kernel


@kernel("router")
def router(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> tuple[torch.Tensor, ...]:
    weights = F.softmax(inputs[0], dim=1, dtype=torch.float)
    weights, chosen = torch.topk(weights, op.attributes["experts_per_token"], dim=-1)
    if op.attributes["norm_topk_prob"]:
        weights /= weights.sum(dim=-1, keepdim=True)
    return weights.to(inputs[0].dtype), chosen


@kernel("experts")
def experts(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    x, weights, chosen = inputs
    num_experts = op.attributes["num_experts"]
    tokens, total = x.shape[0], chosen.numel()
    result = torch.zeros_like(x)
    mask = F.one_hot(chosen, num_classes=num_experts).permute(2, 1, 0)
    first = 0
    for e in range(num_experts):
        count = total // num_experts + (1 if e < total % num_experts else 0)
        if count == 0:
            continue
        # torch.where gives slot and row of each hit as two parts of one tensor.
        slots, rows = torch.zeros((2, count), dtype=torch.int64, device=x.device).unbind(0)
        rows.copy_(torch.arange(first, first + count, device=x.device).remainder_(tokens))
        first += count
        gate, up, down = parameters[3 * e:3 * e + 3]
        current = x[None, rows].reshape(-1, x.shape[1])
        current = F.linear(F.silu(F.linear(current, gate)) * F.linear(current, up), down)
        current = current * weights[rows, slots, None]
        result.index_add_(0, rows, current.to(x.dtype))
    del mask
    return result
