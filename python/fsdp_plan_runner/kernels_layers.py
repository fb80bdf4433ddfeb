"""Linear layers, embeddings, convolutions, parameters that are read directly, normalization, experts and losses.

A mixture of experts distributes its tokens evenly. The destination of a token depends on values, and a stub GPU has none. So
the router runs unchanged, and expert e receives tokens * k / experts rows, with the remainder going to the first experts: the
share that a prediction assumes. A real GPU does the same, so that the two can be compared.

Sources: transformers 4.57 models/llama and gemma2 /modeling_*.py (the order of the calls), models/mixtral/modeling_mixtral.py
(MixtralSparseMoeBlock), loss/loss_utils.py (ForCausalLMLoss); aten/src/ATen/native/layer_norm.cpp (rms_norm_composite of
PyTorch before 2.9); flash_attn/losses/cross_entropy.py.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
import torch.nn.functional as F

from fsdp_plan_runner import kernels_float8, kernels_liger, losses
from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.kernel_table import KernelContext, Tensors, kernel


@kernel("linear")
def linear(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    weight, bias = parameters[0], parameters[1] if len(parameters) > 1 else None
    if op.attributes["float8"]:
        return kernels_float8.linear(op, inputs[0], weight, bias)
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


@kernel("low_rank")
def low_rank(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    from nemo_automodel.components._peft.lora import apply_memory_efficient_lora

    return apply_memory_efficient_lora(inputs[1], *parameters, op.attributes["scale"], True, inputs[0])


def _normalized(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


@kernel("rms_norm")
def rms_norm(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    x = inputs[0]
    weight = parameters[0] if parameters else None
    if op.attributes["liger"]:
        return kernels_liger.rms_norm(op, x, weight)
    if op.attributes["one_op"]:
        from nemo_automodel.components.models.common.utils import Float32RMSNorm

        return Float32RMSNorm.forward(SimpleNamespace(weight=weight, eps=op.attributes["eps"]), x)  # type: ignore[arg-type]
    which = context.implementations.rms_norm
    if which == "fused" and not op.attributes["unit_offset"] and not op.attributes["wide_weight"]:
        return F.rms_norm(x, (x.shape[-1],), weight, op.attributes["eps"])
    if op.attributes["brief"] and weight is not None:
        return _normalized(x.float(), op.attributes["eps"]).type_as(x) * weight
    y = _normalized(x.to(torch.float32), op.attributes["eps"])
    if weight is None:
        return y.to(x.dtype)
    if op.attributes["unit_offset"]:
        y = y * (1.0 + weight.float())
        return y.type_as(x)
    if op.attributes["wide_weight"]:
        return (weight * y).to(x.dtype)
    if which == "written_out":
        return weight * y.to(x.dtype)
    y = y * weight
    return y.to(x.dtype)


def _layer_norm_in_fp32(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """transformers 5.24 models/cohere/modeling_cohere.py, CohereLayerNorm."""
    dtype = x.dtype
    x = x.to(torch.float32)
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    x = (x - mean) * torch.rsqrt(variance + eps)
    x = weight.to(torch.float32) * x
    return x.to(dtype)


@kernel("layer_norm")
def layer_norm(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    if op.attributes["wide_weight"]:
        return _layer_norm_in_fp32(inputs[0], parameters[0], op.attributes["eps"])
    if op.attributes["unit_offset"]:
        # transformers 5.24 models/nemotron/modeling_nemotron.py, NemotronLayerNorm1P.
        return F.layer_norm(inputs[0], (inputs[0].shape[-1],), parameters[0] + 1.0, *parameters[1:], eps=op.attributes["eps"])
    return F.layer_norm(inputs[0], (inputs[0].shape[-1],), *parameters, eps=op.attributes["eps"])


@kernel("group_norm")
def group_norm(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return F.group_norm(inputs[0], op.attributes["groups"], *parameters, eps=op.attributes["eps"])


@kernel("batch_norm")
def batch_norm(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    """PyTorch's own kernels: only cuDNN knows the size of its reserve space."""
    buffers = [context.buffer(f"{op.module}.{name}") for name in ("running_mean", "running_var")]
    if context.training:
        context.buffer(f"{op.module}.num_batches_tracked").add_(1)
    with torch.backends.cudnn.flags(enabled=False):
        return F.batch_norm(inputs[0], *buffers, *parameters, training=context.training,
                            momentum=op.attributes["momentum"], eps=op.attributes["eps"])


def _sigmoid_router(op: Op, context: KernelContext, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """transformers 5.24 models/glm4_moe/modeling_glm4_moe.py, Glm4MoeTopkRouter."""
    a = op.attributes
    groups, experts = a["groups"], weight.shape[0]
    logits = F.linear(x.type(torch.float32), weight.type(torch.float32))
    scores = logits.sigmoid()
    name = f"{op.module}.e_score_correction_bias"
    corrected = scores + context.buffer(name) if name in context.buffers else scores + 0.0
    best = corrected.view(-1, groups, experts // groups).topk(2, dim=-1)[0].sum(dim=-1)
    best_groups = torch.topk(best, k=a["topk_groups"], dim=-1, sorted=False)[1]
    group_mask = torch.zeros_like(best)
    group_mask.scatter_(1, best_groups, 1)
    mask = group_mask.unsqueeze(-1).expand(-1, groups, experts // groups).reshape(-1, experts)
    corrected = corrected.masked_fill(~mask.bool(), float("-inf"))
    chosen = torch.topk(corrected, k=a["experts_per_token"], dim=-1, sorted=False)[1]
    weights = scores.gather(1, chosen)
    if a["norm_topk_prob"]:
        total = weights.sum(dim=-1, keepdim=True) + 1e-20
        weights /= total
    return weights * a["scale"], chosen


def _wide_softmax_router(op: Op, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """transformers 5.24 models/deepseek_v2/modeling_deepseek_v2.py, DeepseekV2TopkRouter."""
    a = op.attributes
    groups, experts = a["groups"], weight.shape[0]
    logits = F.linear(x.type(torch.float32), weight.type(torch.float32))
    scores = logits.softmax(dim=-1, dtype=torch.float32)
    if groups:
        best = scores.view(-1, groups, experts // groups).max(dim=-1).values
        best_groups = torch.topk(best, k=a["topk_groups"], dim=-1, sorted=False)[1]
        group_mask = torch.zeros_like(best)
        group_mask.scatter_(1, best_groups, 1)
        mask = group_mask.unsqueeze(-1).expand(-1, groups, experts // groups).reshape(-1, experts)
        scores = scores.masked_fill(~mask.bool(), 0.0)
    weights, chosen = torch.topk(scores, k=a["experts_per_token"], dim=-1, sorted=False)
    return weights * a["scale"], chosen


def _narrow_sigmoid_router(op: Op, context: KernelContext, logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """transformers 5.24 models/minimax_m2/modeling_minimax_m2.py, MiniMaxM2TopKRouter."""
    scores = F.sigmoid(logits.float())
    name = f"{op.module}.e_score_correction_bias"
    corrected = scores + context.buffer(name) if name in context.buffers else scores + 0.0
    _, chosen = torch.topk(corrected, op.attributes["experts_per_token"], dim=-1, sorted=False)
    weights = scores.gather(1, chosen)
    weights /= weights.sum(dim=-1, keepdim=True)
    return weights, chosen


@kernel("router")
def router(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> tuple[torch.Tensor, ...]:
    if op.attributes["sigmoid"] and not parameters:
        return _narrow_sigmoid_router(op, context, inputs[0])
    if op.attributes["sigmoid"]:
        return _sigmoid_router(op, context, inputs[0], parameters[0])
    if parameters:
        return _wide_softmax_router(op, inputs[0], parameters[0])
    if op.attributes["top_first"]:
        best, chosen = torch.topk(inputs[0], op.attributes["experts_per_token"], dim=-1)
        return F.softmax(best, dim=1, dtype=best.dtype), chosen
    weights = F.softmax(inputs[0], dim=1, dtype=torch.float)
    weights, chosen = torch.topk(weights, op.attributes["experts_per_token"], dim=-1)
    if op.attributes["norm_topk_prob"]:
        weights /= weights.sum(dim=-1, keepdim=True)
    return weights if op.attributes["wide"] else weights.to(inputs[0].dtype), chosen


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


def _clamped_gate(op: Op, both: torch.Tensor) -> torch.Tensor:
    """transformers 5.24 models/gpt_oss/modeling_gpt_oss.py, GptOssExperts._apply_gate."""
    limit = op.attributes["limit"]
    gate, up = both[..., ::2], both[..., 1::2]
    gate = gate.clamp(min=None, max=limit)
    up = up.clamp(min=-limit, max=limit)
    glu = gate * torch.sigmoid(gate * op.attributes["scale"])
    return (up + 1) * glu


@kernel("grouped_experts")
def grouped_experts(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    """transformers 5.24 integrations/moe.py, grouped_mm_experts_forward."""
    x, weights, chosen = inputs
    is_clamped = len(parameters) == 4
    both_bias, both, down_bias, down = parameters if is_clamped else (None, parameters[0], None, parameters[1])
    tokens, per_token = chosen.shape
    shares, experts = weights.reshape(-1), chosen.reshape(-1)
    sorted_experts, order = torch.sort(experts)
    rows = x[order // per_token]
    shares = shares[order]
    on_host = x.device.type in ("cpu", "meta")
    counted = sorted_experts.float() if on_host else sorted_experts.int()
    counts = torch.histc(counted, bins=both.shape[0], min=0, max=both.shape[0] - 1)
    offsets = torch.cumsum(counts, dim=0, dtype=torch.int32)
    if is_clamped:
        bias = both_bias[sorted_experts]
        y = _clamped_gate(op, F.grouped_mm(rows, both, offs=offsets).add_(bias))
        bias = down_bias[sorted_experts]
        y = F.grouped_mm(y, down, offs=offsets).add_(bias)
    else:
        y = F.grouped_mm(rows, both.transpose(-2, -1), offs=offsets)
        gate, up = y.chunk(2, dim=-1)
        y = F.silu(gate) * up
        y = F.grouped_mm(y, down.transpose(-2, -1), offs=offsets)
    weighted = y * shares.unsqueeze(-1)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(order.shape[0], device=x.device)
    weighted = weighted[inverse]
    result = weighted.view(tokens, per_token, -1).sum(dim=1)
    return result.to(x.dtype)


def _best_sigmoids(scores: torch.Tensor, per_token: int) -> torch.Tensor:
    best, indices = torch.topk(scores, per_token, dim=1)
    factors = torch.full_like(scores, float("-inf")).scatter_(1, indices, best)
    factors = torch.sigmoid(factors.float()).to(factors.dtype)
    return factors


@kernel("dense_experts")
def dense_experts(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> tuple[torch.Tensor, ...]:
    """transformers 5.24 models/llama4/modeling_llama4.py, Llama4TextMoe."""
    x, scores = inputs
    experts = op.attributes["num_experts"]
    factors = _best_sigmoids(scores, op.attributes["experts_per_token"])
    rows = x.repeat(experts, 1)
    rows = rows * factors.transpose(0, 1).reshape(-1, 1)
    both = torch.bmm(rows.view(experts, -1, x.shape[1]), parameters[0])
    gate, up = both.chunk(2, dim=-1)
    results = torch.bmm(up * F.silu(gate), parameters[1])
    return results.view(-1, x.shape[1]), rows, factors


@kernel("cross_entropy")
def cross_entropy(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    logits, labels = inputs
    if context.implementations.loss == "verl":
        return losses.verl(logits.view(-1, logits.shape[-1]), labels.view(-1))
    if context.implementations.upcast_logits:
        logits = logits.float()
    if op.attributes["shift"]:
        labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    rows, targets = logits.view(-1, logits.shape[-1]), labels.view(-1)
    if context.implementations.loss == "flash_attn":
        from flash_attn.losses.cross_entropy import CrossEntropyLoss

        return CrossEntropyLoss(ignore_index=-100)(rows, targets)
    return F.cross_entropy(rows, targets, ignore_index=-100)


@kernel("mse_loss")
def mse_loss(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    return F.mse_loss(inputs[0], inputs[1])
