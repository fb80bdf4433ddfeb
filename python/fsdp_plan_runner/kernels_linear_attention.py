"""Linear attention, as transformers writes it out in PyTorch's own calls.

Sources: transformers 5.24 models/qwen3_5/modeling_qwen3_5.py (causal_conv1d_fn, l2norm, torch_chunk_gated_delta_rule,
Qwen3_5GatedDeltaNet.forward, Qwen3_5RMSNormGated), models/bamba/modeling_bamba.py (BambaRMSNormGated).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.kernel_table import KernelContext, Tensors, kernel


def _causal_conv1d(hidden_states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    _, hidden_size, seq_len = hidden_states.shape
    out = F.conv1d(hidden_states.to(weight.dtype), weight=weight.unsqueeze(1), bias=bias, padding=weight.shape[-1] - 1,
                   groups=hidden_size)[:, :, :seq_len]
    out = F.silu(out)
    return out.to(hidden_states.dtype)


@kernel("causal_conv1d")
def causal_conv1d(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    bias = parameters[1] if len(parameters) > 1 else None
    return _causal_conv1d(inputs[0].transpose(1, 2), parameters[0].squeeze(1), bias).transpose(1, 2)


@kernel("decay_rate")
def decay_rate(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    rate, bias = parameters
    return -rate.float().exp() * F.softplus(inputs[0].float() + bias)


def _l2norm(x: torch.Tensor) -> torch.Tensor:
    inverse = torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)
    return x * inverse


def _chunk_gated_delta_rule(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, decay: torch.Tensor,
                            beta: torch.Tensor, chunk_size: int) -> torch.Tensor:
    initial_dtype = query.dtype
    batch_size, sequence_length, num_k_heads, k_head_dim = key.shape
    num_v_heads, v_head_dim = value.shape[-2:]
    if num_k_heads != num_v_heads:
        query = query.repeat_interleave(num_v_heads // num_k_heads, dim=2)
        key = key.repeat_interleave(num_v_heads // num_k_heads, dim=2)
    query, key, value, beta, decay = [x.transpose(1, 2).to(torch.float32, memory_format=torch.contiguous_format)
                                      for x in (query, key, value, beta, decay)]
    query = _l2norm(query)
    key = _l2norm(key)
    query = query * query.shape[-1] ** -0.5
    pad_size = (chunk_size - sequence_length % chunk_size) % chunk_size
    query, key, value = (F.pad(x, (0, 0, 0, pad_size)) for x in (query, key, value))
    beta, decay = (F.pad(x, (0, pad_size)) for x in (beta, decay))
    num_chunks = (sequence_length + pad_size) // chunk_size
    v_beta = value * beta.unsqueeze(-1)
    k_beta = key * beta.unsqueeze(-1)
    query, key, k_beta, v_beta = [x.reshape(x.shape[0], x.shape[1], -1, chunk_size, x.shape[-1])
                                  for x in (query, key, k_beta, v_beta)]
    decay = decay.reshape(decay.shape[0], decay.shape[1], -1, chunk_size)
    strictly_upper_mask = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=query.device).triu(1)
    cum_decay = decay.cumsum(dim=3)
    pairwise_decay = cum_decay.unsqueeze(4) - cum_decay.unsqueeze(3)
    pairwise_decay = pairwise_decay.masked_fill(strictly_upper_mask, float("-inf"))
    pairwise_decay = pairwise_decay.exp()
    ut_system = (k_beta @ key.transpose(-1, -2)) * pairwise_decay
    intra_chunk_attn = (query @ key.transpose(-1, -2)) * pairwise_decay
    decayed_k_beta = k_beta * cum_decay.exp().unsqueeze(-1)
    new_values = torch.linalg.solve_triangular(ut_system, v_beta, upper=False, unitriangular=True)
    k_cumdecay = torch.linalg.solve_triangular(ut_system, decayed_k_beta, upper=False, unitriangular=True)
    state = torch.zeros((batch_size, num_v_heads, k_head_dim, v_head_dim), dtype=new_values.dtype, device=new_values.device)
    core_attn_out = torch.zeros_like(new_values)
    query = query * cum_decay.exp().unsqueeze(-1)
    key = key * (cum_decay[..., -1:] - cum_decay).exp().unsqueeze(-1)
    chunk_decay = cum_decay[..., -1].exp()[..., None, None]
    for i in range(num_chunks):
        v_new = new_values[:, :, i] - k_cumdecay[:, :, i] @ state
        inter_chunk_attn = query[:, :, i] @ state
        core_attn_out[:, :, i] = inter_chunk_attn + intra_chunk_attn[:, :, i] @ v_new
        state = state * chunk_decay[:, :, i] + key[:, :, i].transpose(-1, -2) @ v_new
    state = None  # type: ignore[assignment]
    core_attn_out = core_attn_out.reshape((batch_size, num_v_heads, -1, v_head_dim))
    core_attn_out = core_attn_out[:, :, :sequence_length]
    core_attn_out = core_attn_out.transpose(1, 2).to(initial_dtype, memory_format=torch.contiguous_format)
    return core_attn_out


@kernel("gated_delta_rule")
def gated_delta_rule(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    mixed, decay, beta = inputs
    a = op.attributes
    rows, seq, _ = mixed.shape
    keys = a["kv_heads"] * a["head_dim"]
    query, key, value = torch.split(mixed, [keys, keys, mixed.shape[-1] - 2 * keys], dim=-1)
    query, key = (x.reshape(rows, seq, -1, a["head_dim"]) for x in (query, key))
    value = value.reshape(rows, seq, a["heads"], -1)
    return _chunk_gated_delta_rule(query, key, value, decay, beta, a["length"])


@kernel("gated_rms_norm")
def gated_rms_norm(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    hidden_states, gate = inputs
    (weight,) = parameters
    groups, eps = op.attributes["groups"], op.attributes["eps"]
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.float32)
    if op.attributes["gate_first"]:
        hidden_states = hidden_states * F.silu(gate.to(torch.float32))
        shape = hidden_states.shape
        grouped = hidden_states.view(*shape[:-1], groups, shape[-1] // groups)
        variance = grouped.pow(2).mean(-1, keepdim=True)
        grouped = grouped * torch.rsqrt(variance + eps)
        hidden_states = grouped.view(shape)
        return weight * hidden_states.to(input_dtype)
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + eps)
    hidden_states = weight * hidden_states.to(input_dtype)
    hidden_states = hidden_states * F.silu(gate.to(torch.float32))
    return hidden_states.to(input_dtype)


def _pad_rows(x: torch.Tensor, pad_size: int) -> torch.Tensor:
    shape = (0, 0, 0, 0, 0, pad_size, 0, 0) if len(x.shape) == 4 else (0, 0, 0, pad_size, 0, 0)
    return F.pad(x, shape, mode="constant", value=0)


def _in_chunks(x: torch.Tensor, pad_size: int, chunk_size: int) -> torch.Tensor:
    x = _pad_rows(x, pad_size)
    return x.reshape(x.shape[0], -1, chunk_size, *x.shape[2:])


def _segment_sum(x: torch.Tensor) -> torch.Tensor:
    size = x.size(-1)
    x = x[..., None].expand(*x.size(), size)
    mask = torch.tril(torch.ones(size, size, device=x.device, dtype=torch.bool), diagonal=-1)
    x = x.masked_fill(~mask, 0)
    sums = torch.cumsum(x, dim=-2)
    mask = torch.tril(torch.ones(size, size, device=x.device, dtype=torch.bool), diagonal=0)
    sums = sums.masked_fill(~mask, -torch.inf)
    return sums


def _chunk_scan(hidden_states: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor,
                chunk_size: int, D: torch.Tensor, dt_bias: torch.Tensor, shortest: float) -> torch.Tensor:
    """transformers 5.24 models/nemotron_h/modeling_nemotron_h.py, mamba2_chunk_scan."""
    _, sequence_length, num_heads, head_dim = hidden_states.shape
    batch_size, num_groups = hidden_states.shape[0], B.shape[2]
    dt = dt + dt_bias.to(dt.dtype)
    dt = F.softplus(dt)
    dt = torch.clamp(dt, min=shortest, max=float("inf"))
    hidden_states = hidden_states.float()
    B = B.float().repeat_interleave(num_heads // num_groups, dim=2, output_size=num_heads)
    C = C.float().repeat_interleave(num_heads // num_groups, dim=2, output_size=num_heads)
    pad_size = (chunk_size - sequence_length % chunk_size) % chunk_size
    D_residual = D[..., None] * _pad_rows(hidden_states, pad_size)
    hidden_states = hidden_states * dt[..., None].float()
    A = A.to(hidden_states.dtype) * dt.float()
    hidden_states, A, B, C = [_in_chunks(tensor, pad_size, chunk_size) for tensor in (hidden_states, A, B, C)]
    A = A.permute(0, 3, 1, 2)
    A_cumsum = torch.cumsum(A, dim=-1)
    L = torch.exp(_segment_sum(A))
    G = torch.einsum("bclhn,bcshn->bclsh", C, B)
    M = G * L.permute(0, 2, 3, 4, 1)
    Y_diag = torch.einsum("bclsh,bcshp->bclhp", M, hidden_states)
    decay_states = torch.exp(A_cumsum[:, :, :, -1:] - A_cumsum)
    B_decay = B * decay_states.permute(0, -2, -1, 1)[..., None]
    states = torch.einsum("bclhn,bclhp->bchpn", B_decay, hidden_states)
    previous_states = torch.zeros_like(states[:, :1])
    states = torch.cat([previous_states, states], dim=1)
    decay_chunk = torch.exp(_segment_sum(F.pad(A_cumsum[:, :, :, -1], (1, 0)))).transpose(1, 3)
    new_states = torch.einsum("bzch,bzhpn->bchpn", decay_chunk, states)
    states = new_states[:, :-1]
    state_decay_out = torch.exp(A_cumsum)
    C_times_states = torch.einsum("bclhn,bchpn->bclhp", C, states)
    Y_off = C_times_states * state_decay_out.permute(0, 2, 3, 1)[..., None]
    output = (Y_diag + Y_off).contiguous()
    output = output.reshape(batch_size, -1, num_heads, head_dim)
    output = output + D_residual
    if pad_size > 0:
        output = output[:, :sequence_length]
    return output


@kernel("state_space")
def state_space(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    mixed, step = inputs
    rate, bias, passed = parameters
    a = op.attributes
    rows, seq, _ = mixed.shape
    inner = a["heads"] * a["head_dim"]
    states = (mixed.shape[-1] - inner) // 2
    values, writes, reads = torch.split(mixed, [inner, states, states], dim=-1)
    decay = -torch.exp(rate.float())
    output = _chunk_scan(values.view(rows, seq, a["heads"], a["head_dim"]), step, decay, writes.view(rows, seq, a["groups"], -1),
                         reads.view(rows, seq, a["groups"], -1), a["length"], passed, bias, a["value"])
    return output.reshape(rows, seq, -1)
