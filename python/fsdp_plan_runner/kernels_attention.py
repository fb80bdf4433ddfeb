"""Rotary embeddings and attention.

Sources: transformers models/llama/modeling_llama.py (apply_rotary_pos_emb, LlamaRotaryEmbedding,
eager_attention_forward), integrations/sdpa_attention.py and modeling_flash_attention_utils.py (_flash_attention_forward); torchtitan
models/llama3 (apply_rotary_emb) and models/common/attention.py (VarlenAttention).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from fsdp_plan_runner import kernels_liger
from fsdp_plan_runner.constants import rotary_frequencies
from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.flex import flex_attention_over
from fsdp_plan_runner.kernel_table import KernelContext, Tensors, kernel


# ---- Rotary embeddings: q and k are [batch, seq, heads, dim]; the tables [batch or 1, seq, dim].

def _inverse_frequencies(op: Op, context: KernelContext) -> torch.Tensor:
    """The model's buffer of frequencies; computed if there is none."""
    name = f"{op.module}.inv_freq"
    return context.buffer(name) if name in context.buffers else rotary_frequencies(op.attributes).to(context.device)


def _rows_of_cache(op: Op, context: KernelContext, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """torchtitan 0.3.0 models/common/rope.py, _maybe_check_max_pos and _reshape_for_broadcast. Tables are [batch or 1, seq, width]."""
    cache = context.buffer(f"{op.module}.cache")
    torch._assert_async(torch.all(positions <= cache.shape[0] - 1))
    if op.attributes["as_complex"]:
        cache = torch.view_as_complex(cache.view(cache.shape[0], -1, 2))
    if positions.shape[0] == 1:
        rows = cache[positions.squeeze(0)][None]
    else:
        wide = cache[None].expand(positions.shape[0], -1, -1)
        rows = torch.gather(wide, 1, positions[..., None].expand(*positions.shape, cache.shape[-1]))
    if op.attributes["as_complex"]:
        return rows, rows
    half = rows.shape[-1] // 2
    return rows[..., :half], rows[..., half:]


def _rows_by_position(op: Op, context: KernelContext, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """nemo-automodel 0.7.0 components/models/llama/rope_utils.py, LlamaRotaryEmbedding.forward."""
    if positions.device.type != "meta":
        int(positions.max().item())
    cos = context.buffer(f"{op.module}._cos_cache")[positions]
    return cos, context.buffer(f"{op.module}._sin_cache")[positions]


@kernel("rotary_table")
@torch.no_grad()
def rotary_table(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> tuple[torch.Tensor, ...]:
    positions = inputs[0]
    if op.attributes["from_cache"]:
        return _rows_of_cache(op, context, positions)
    if op.attributes["of_positions"]:
        return _rows_by_position(op, context, positions)
    if op.attributes["by_halves"]:
        angles = positions[..., None].float() * _inverse_frequencies(op, context).float()
        factor = op.attributes["attention_factor"]
        cos, sin = angles.cos() * factor, angles.sin() * factor
        return cos.to(dtype=context.activation), sin.to(dtype=context.activation)
    if op.attributes["written_out"]:
        angles = positions[..., None].float() * _inverse_frequencies(op, context).float()
    else:
        frequencies = _inverse_frequencies(op, context)[:, None].float().expand(*positions.shape[:-1], -1, 1)
        rows = positions.unsqueeze(-2).float()
        # Not the tensor's own device: shapes are checked on "meta", which has no autocast.
        with torch.autocast("cuda", enabled=False):
            angles = (frequencies @ rows).transpose(-2, -1)
    if context.implementations.rotary == "complex" or op.attributes["as_complex"]:
        # One table of complex numbers has the bytes of cos and sin; torchtitan makes it once, before training.
        table = torch.polar(torch.ones_like(angles), angles)
        if op.attributes["attention_factor"] != 1:
            table = table * op.attributes["attention_factor"]
        return table, table
    both = torch.repeat_interleave(angles, 2, dim=-1) if op.attributes["interleaved"] else torch.cat((angles, angles), dim=-1)
    factor = op.attributes["attention_factor"]
    cos, sin = both.cos() * factor, both.sin() * factor
    if op.attributes["wide"]:
        return cos, sin
    return cos.to(dtype=context.activation), sin.to(dtype=context.activation)


def _rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
    return torch.cat((-second, first), dim=-1)


def _rotate_pairs(x: torch.Tensor) -> torch.Tensor:
    first, second = x[..., 0::2], x[..., 1::2]  # In this order: the backward goes through them in reverse.
    return torch.stack((-second, first), dim=-1).flatten(-2)


def _rotate_complex(q: torch.Tensor, k: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    wide_q = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
    wide_k = torch.view_as_complex(k.float().reshape(*k.shape[:-1], -1, 2))
    turned_q = torch.view_as_real(wide_q * table).flatten(3)
    turned_k = torch.view_as_real(wide_k * table).flatten(3)
    return turned_q.type_as(q), turned_k.type_as(k)


def _rotate_by_halves(op: Op, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = (x[..., 0::2], x[..., 1::2]) if op.attributes["interleaved"] else torch.chunk(x, 2, dim=-1)
    cos, sin = cos[..., :a.shape[-1]], sin[..., :a.shape[-1]]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def _rotate_in_fp32(op: Op, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, heads: int) -> tuple[torch.Tensor, ...]:
    """transformers 5.24 models/cohere/modeling_cohere.py, apply_rotary_pos_emb: the table has each number twice already."""
    dtype = q.dtype
    q, k = q.float(), k.float()
    turn = _rotate_pairs if op.attributes["interleaved"] else _rotate_half
    turned_q = (q * cos) + (turn(q) * sin)
    turned_k = (k * cos) + (turn(k) * sin)
    return turned_q.to(dtype).transpose(heads, 2), turned_k.to(dtype).transpose(heads, 2)


def _rotate_neighbors(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """By tables wider than x, as in transformers 5.24 models/ernie4_5/modeling_ernie4_5.py: it casts before each product."""
    return (x.to(cos.dtype) * cos) + (_rotate_pairs(x).to(sin.dtype) * sin)


@kernel("rotary")
def rotary(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> tuple[torch.Tensor, ...]:
    q, k, cos, sin = inputs
    if op.attributes["in_float"]:
        wide = [x.float() for x in (q, k)]
        cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
        turned = [(x * cos) + (_rotate_half(x) * sin) for x in wide]
        return turned[0].type_as(q), turned[1].type_as(k)
    if op.attributes["liger"]:
        return kernels_liger.rotary(q, k, cos, sin)
    if cos.is_complex():
        return _rotate_complex(q, k, cos.unsqueeze(2))
    # Whether heads come first determines the memory order of gradients.
    heads = 1 if context.implementations.rotary == "halves" else 2
    q, k, cos, sin = q.transpose(heads, 2), k.transpose(heads, 2), cos.unsqueeze(heads), sin.unsqueeze(heads)
    if op.attributes["by_halves"]:
        turned_q, turned_k = (_rotate_by_halves(op, x, cos, sin) for x in (q, k))
        return turned_q.transpose(heads, 2), turned_k.transpose(heads, 2)
    turn = _rotate_half
    if op.attributes["wide"]:
        return _rotate_in_fp32(op, q, k, cos, sin, heads)
    if op.attributes["interleaved"]:
        cos, sin = (table[..., :table.shape[-1] // 2].repeat_interleave(2, dim=-1) for table in (cos, sin))
        turn = _rotate_pairs
    if not op.attributes["partial_rotary"]:
        if op.attributes["interleaved"]:
            q_turned, k_turned = _rotate_neighbors(q, cos, sin), _rotate_neighbors(k, cos, sin)
        else:
            q_turned, k_turned = (q * cos) + (turn(q) * sin), (k * cos) + (turn(k) * sin)
        if context.autocast is None:
            q_turned, k_turned = q_turned.to(q.dtype), k_turned.to(k.dtype)
        return q_turned.transpose(heads, 2), k_turned.transpose(heads, 2)
    width = cos.shape[-1]
    parts = []
    for x in (q, k):
        turned, kept = x[..., :width], x[..., width:]
        parts.append(torch.cat(((turned * cos) + (turn(turned) * sin), kept), dim=-1).transpose(heads, 2))
    return parts[0], parts[1]


# ---- Attention: the input is [batch, seq, heads, dim] and the output [batch, seq, heads * dim].

def _repeat(x: torch.Tensor, copies: int) -> torch.Tensor:
    """[batch, kv_heads, seq, dim] copied to all query heads."""
    if copies == 1:
        return x
    batch, heads, seq, dim = x.shape
    return x[:, :, None, :, :].expand(batch, heads, copies, seq, dim).reshape(batch, heads * copies, seq, dim)


def _causal_mask(op: Op, queries: int, keys: int, like: torch.Tensor) -> torch.Tensor:
    """[queries, keys] The lowest number at positions that a query may not see."""
    lowest = torch.finfo(like.dtype).min
    mask = torch.full((queries, keys), lowest, dtype=like.dtype, device=like.device).triu_(1)
    if 0 < op.attributes["window"] < keys:
        mask.add_(torch.full_like(mask, lowest).tril_(-op.attributes["window"]))
    return mask


def _softmax_with_sinks(scores: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    """transformers 5.24 models/gpt_oss/modeling_gpt_oss.py, eager_attention_forward."""
    wide = sinks.reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[-2], -1)
    combined = torch.cat([scores, wide], dim=-1)
    combined = combined - combined.max(dim=-1, keepdim=True).values
    return F.softmax(combined, dim=-1, dtype=combined.dtype)[..., :-1]


def _eager(op: Op, context: KernelContext, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
           mask: torch.Tensor | None, sinks: torch.Tensor | None) -> torch.Tensor:
    copies = q.shape[1] // k.shape[1]
    k, v = _repeat(k, copies), _repeat(v, copies)
    weights = torch.matmul(q, k.transpose(2, 3)) * (op.attributes["score_scale"] or q.shape[-1] ** -0.5)
    if op.attributes["softcap"] > 0:
        weights = weights / op.attributes["softcap"]
        weights = torch.tanh(weights)
        weights = weights * op.attributes["softcap"]
    if mask is not None:
        weights = weights + mask
    elif op.attributes["causal"]:
        weights = weights + _causal_mask(op, q.shape[2], k.shape[2], weights)
    if sinks is not None:
        weights = _softmax_with_sinks(weights, sinks)
    else:
        weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    if op.attributes["probability"] > 0:
        weights = F.dropout(weights, p=op.attributes["probability"], training=context.training)
    return torch.matmul(weights, v).transpose(1, 2).contiguous()


def _probability(op: Op, context: KernelContext) -> float:
    return op.attributes["probability"] if context.training else 0.0


def _has_flash(q: torch.Tensor) -> bool:
    return q.is_cuda and q.dtype.itemsize == 2 and torch.cuda.get_device_capability(q.device) >= (8, 0)


def _flash_with_window(op: Op, context: KernelContext, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The flash kernel itself, because scaled_dot_product_attention has no argument for a window."""
    return torch.ops.aten._flash_attention_forward(
        q, k, v, None, None, q.shape[1], k.shape[1], _probability(op, context), op.attributes["causal"], False,
        scale=op.attributes["score_scale"] or None, window_size_left=op.attributes["window"] - 1,
        window_size_right=0)[0]


def _flash_attn(op: Op, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: Tensors, longest: int) -> torch.Tensor:
    from flash_attn import flash_attn_varlen_func

    window = op.attributes["window"]
    sides = {"window_size": (window - 1, window - 1)} if 0 < window < k.shape[0] else {}
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens_q=starts[0], cu_seqlens_k=starts[1], max_seqlen_q=longest, max_seqlen_k=longest,
        dropout_p=op.attributes["probability"], softmax_scale=op.attributes["score_scale"] or None, causal=True, **sides)


def _rows_of_flash_attn(op: Op, context: KernelContext, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As transformers' flash_attention_2, if no row has padding."""
    from flash_attn import flash_attn_func

    window = op.attributes["window"]
    sides = {"window_size": (window - 1, window - 1)} if 0 < window < k.shape[1] else {}
    return flash_attn_func(
        q, k, v, dropout_p=_probability(op, context), softmax_scale=op.attributes["score_scale"] or None, causal=op.attributes["causal"],
        softcap=op.attributes["softcap"], **sides)


def _varlen(op: Op, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: Tensors, longest: int) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    window = op.attributes["window"]
    left = window - 1 if 0 < window < k.shape[0] else -1
    return varlen_attn(q, k, v, *starts, longest, longest, scale=op.attributes["score_scale"] or None, window_size=(left, 0))


_WITH_BOUNDARIES = {"flash_attn": _flash_attn, "varlen": _varlen}


@kernel("attention")
def attention(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    if op.attributes["packed"] in _WITH_BOUNDARIES:
        flat = (x.reshape(-1, *x.shape[-2:]) for x in inputs[:3])
        y = _WITH_BOUNDARIES[op.attributes["packed"]](op, *flat, inputs[3:], max(op.attributes["documents"]))
        return y.view(1, *y.shape).reshape(context.shapes[op.outputs[0]])
    q, k, v = (x.transpose(1, 2) for x in inputs[:3])
    if op.attributes["packed"] == "flex":
        y = flex_attention_over(inputs[3], q, k, v, op.attributes["score_scale"] or None)
        return y.transpose(1, 2).contiguous().reshape(context.shapes[op.outputs[0]])
    use = context.implementations
    if use.attention == "flash_attn":
        return _rows_of_flash_attn(op, context, *(x.transpose(1, 2) for x in (q, k, v))).reshape(context.shapes[op.outputs[0]])
    mask = inputs[3] if len(inputs) > 3 else None
    is_window = mask is not None and mask.dtype == torch.bool and not op.attributes["documents"]
    if is_window and use.attention in ("flash", "eager"):
        mask = None  # The window itself is enough.
    copies = q.shape[1] // k.shape[1]
    # enable_gqa is used only without a mask.
    if copies > 1 and (use.repeat_kv or mask is not None):
        k, v = _repeat(k, copies), _repeat(v, copies)
    shape = context.shapes[op.outputs[0]]
    windowed = op.attributes["causal"] and mask is None and 0 < op.attributes["window"] < k.shape[2]
    if use.attention == "eager" or op.attributes["softcap"] > 0 or parameters:
        return _eager(op, context, q, k, v, mask, parameters[0] if parameters else None).reshape(shape)
    if windowed and (use.attention == "flash" or use.attention == "automatic" and _has_flash(q)):
        return _flash_with_window(op, context, *(x.transpose(1, 2) for x in (q, k, v))).reshape(shape)
    if windowed:
        mask = _causal_mask(op, q.shape[2], k.shape[2], q)
    y = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=_probability(op, context),
        is_causal=op.attributes["causal"] and mask is None, scale=op.attributes["score_scale"] or None,
        enable_gqa=q.shape[1] != k.shape[1])
    return y.transpose(1, 2).contiguous().reshape(shape)


def choose_backends(attention: str, prefer_cudnn: bool) -> None:
    """Restricts scaled_dot_product_attention to the backends of the plan's runtime."""
    cuda = torch.backends.cuda
    automatic = attention in ("automatic", "eager")
    cuda.enable_flash_sdp(automatic or attention == "flash")
    cuda.enable_mem_efficient_sdp(automatic or attention == "memory_efficient")
    cuda.enable_math_sdp(automatic or attention == "math")
    cuda.enable_cudnn_sdp(attention == "cudnn" or (automatic and prefer_cudnn))
