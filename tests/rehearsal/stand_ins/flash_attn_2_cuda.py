"""The compiled part of flash-attn, which no test compiles: it allocates what csrc/flash_attn/flash_api.cpp of 2.8.3 allocates
(mha_fwd, mha_bwd, mha_varlen_fwd, mha_varlen_bwd), and computes nothing. Its Python, which decides what is saved and when, is the package's own.
"""

from __future__ import annotations

from typing import Any

import torch


def fwd(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: None, alibi_slopes: None, p_dropout: float,
        *others: Any) -> tuple[torch.Tensor, ...]:
    batch, queries, heads, head_dim = q.shape
    result = torch.empty_like(q)
    softmax_lse = torch.empty(batch, heads, queries, dtype=torch.float32, device=q.device)
    p = torch.empty(0, dtype=q.dtype, device=q.device)
    splits = _splits(q, k) if p_dropout == 0 else 1
    parts = [torch.empty(splits, batch, heads, queries, width, dtype=torch.float32, device=q.device)
             for width in ((1, _rounded(head_dim)) if splits > 1 else ())]
    rng_state = torch.empty(2, dtype=torch.int64, device=q.device)
    del parts
    return result, softmax_lse, p, rng_state


def _splits(q: torch.Tensor, k: torch.Tensor) -> int:
    """set_params_splitkv and num_splits_heuristic."""
    processors = torch.cuda.get_device_properties(q.device).multi_processor_count * 2
    key_blocks = -(-k.shape[1] // (256 if q.shape[3] <= 64 else 128 if q.shape[3] <= 128 else 64))
    most = min(128, processors, key_blocks)
    blocks = q.shape[0] * q.shape[2] * -(-q.shape[1] // 64)
    if blocks >= 0.8 * processors:
        return 1

    def is_eligible(number: int) -> bool:
        return number == 1 or -(-key_blocks // number) != -(-key_blocks // (number - 1))

    efficiency = {}
    for number in range(1, most + 1):
        waves = blocks * number / processors
        efficiency[number] = waves / -(-waves // 1) if is_eligible(number) else 0.0
    best = max(efficiency.values())
    return next(number for number in range(1, most + 1) if is_eligible(number) and efficiency[number] >= 0.85 * best)


def bwd(dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, softmax_lse: torch.Tensor,
        dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, *others: Any) -> tuple[torch.Tensor, ...]:
    batch, queries, heads, head_dim = q.shape
    rows = (queries + 127) // 128 * 128
    softmax_d = torch.empty(batch, heads, rows, dtype=torch.float32, device=q.device)
    dq_accum = torch.empty(batch, rows, heads, _rounded(head_dim), dtype=torch.float32, device=q.device)
    expanded = [torch.empty(batch, k.shape[1], heads, head_dim, dtype=q.dtype, device=q.device)
                for _ in range(2 if k.shape[2] != heads else 0)]
    del dq_accum, expanded
    return dq, dk, dv, softmax_d


def varlen_fwd(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: None, *others: Any) -> tuple[torch.Tensor, ...]:
    result = torch.empty_like(q)
    softmax_lse = torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
    p = torch.empty(0, dtype=q.dtype, device=q.device)
    rng_state = torch.empty(2, dtype=torch.int64, device=q.device)
    return result, softmax_lse, p, rng_state


def _rounded(head_dim: int) -> int:
    return (head_dim + 31) // 32 * 32 if head_dim <= 192 else 256


def varlen_bwd(dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, softmax_lse: torch.Tensor,
               dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, cu_seqlens_q: torch.Tensor,
               *others: Any) -> tuple[torch.Tensor, ...]:
    rows = q.shape[0] + 128 * (cu_seqlens_q.numel() - 1)
    softmax_d = torch.empty(q.shape[1], rows, dtype=torch.float32, device=q.device)
    dq_accum = torch.empty(rows, q.shape[1], _rounded(q.shape[2]), dtype=torch.float32, device=q.device)
    # For grouped heads, gradients of K and V by query heads, summed in place.
    expanded = [torch.empty(k.shape[0], q.shape[1], q.shape[2], dtype=q.dtype, device=q.device)
                for _ in range(2 if k.shape[1] != q.shape[1] else 0)]
    del dq_accum, expanded
    return dq, dk, dv, softmax_d
