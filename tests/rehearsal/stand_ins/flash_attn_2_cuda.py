"""The compiled part of flash-attn, which no test compiles: it allocates what csrc/flash_attn/flash_api.cpp of 2.8.3 allocates
(mha_varlen_fwd, mha_varlen_bwd), and computes nothing. Its Python, which decides what is saved and when, is the package's own.
"""

from __future__ import annotations

from typing import Any

import torch


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
