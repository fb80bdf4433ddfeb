"""FlexAttention over packed rows: the mask's tensors in one, and the compiled kernel.

Sources: torch 2.11 nn/attention/flex_attention.py (create_block_mask, BlockMask); torchtitan 0.3.0 models/common/attention.py
(FlexAttention, get_efficient_causal_mask_mod_for_packed_document). torchtitan also has Inductor try several configurations of its
kernels, which changes neither their results nor their tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

BLOCK = 128  # Rows and columns of a block of the mask.
_PART = 512 // 4  # Each tensor begins at a multiple of the allocator's block.
_TABLES = 4  # Partial and full blocks of rows, and of columns: numbers and indices of each.


def _shapes(rows: int, tokens: int) -> list[tuple[int, ...]]:
    blocks = -(-tokens // BLOCK)
    tables = [shape for _ in range(_TABLES) for shape in ((rows, 1, blocks), (rows, 1, blocks, blocks))]
    documents = [(-(-(tokens + 1) // BLOCK) * BLOCK,), (tokens,)] if rows == 1 else [(rows, tokens)]
    return tables + documents


def _tables(documents: Sequence[int], tokens: int) -> list[torch.Tensor]:
    """Numbers [blocks] and indices [blocks, blocks] of partial blocks of rows, of full ones, and of both in columns."""
    numbers = torch.repeat_interleave(torch.arange(len(documents)), torch.tensor(documents))
    first = torch.arange(0, tokens, BLOCK)
    last = (first + BLOCK - 1).clamp(max=tokens - 1)
    earlier = first[:, None] > first[None, :]
    seen = (numbers[first][:, None] <= numbers[last][None, :]) & (first[:, None] >= first[None, :])
    full = earlier & (numbers[last][:, None] == numbers[first][None, :])
    tables = []
    for part in (seen & ~full, full, (seen & ~full).T, full.T):
        tables += [part.sum(-1), part.int().argsort(dim=-1, descending=True, stable=True)]
    return tables


def block_mask_numbers(documents: Sequence[int], rows: int) -> torch.Tensor:
    """int32, on the host: all tensors of the mask of so many rows, whose documents are alike."""
    tokens = sum(documents)
    starts = torch.tensor([0, *documents]).cumsum(0)
    ids = torch.repeat_interleave(torch.arange(len(documents)), torch.tensor(documents))
    tables = [table.expand(rows, 1, *table.shape) for table in _tables(documents, tokens)]
    if rows == 1:
        room = _shapes(rows, tokens)[-2][0]
        kept = [torch.nn.functional.pad(starts[:-1], (0, room - len(documents)), value=tokens), ids]
    else:
        kept = [(starts[1:][ids] - 1).expand(rows, tokens)]
    parts = [torch.nn.functional.pad(part.flatten(), (0, _room(part.shape) - part.numel())) for part in tables + kept]
    return torch.cat(parts).to(torch.int32)


def _room(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // _PART) * _PART


def _causal_in_document(kept: list[torch.Tensor]) -> Callable[..., torch.Tensor]:
    if len(kept) == 2:
        starts, ids = kept

        def in_one_row(b: Any, h: Any, q: Any, k: Any) -> torch.Tensor:
            return (q >= k) & (k >= starts[ids[q]])

        return in_one_row
    ends = kept[0]

    def in_rows(b: Any, h: Any, q: Any, k: Any) -> torch.Tensor:
        return (q >= k) & (q <= ends[b, k])

    return in_rows


@functools.cache
def _compiled() -> Callable[..., torch.Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, options={"wrap_inductor_compiled_regions": True, "triton.cudagraphs": False})


def flex_attention_over(numbers: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None) -> torch.Tensor:
    """[batch, heads, seq, dim] of the same."""
    from torch.nn.attention.flex_attention import BlockMask

    rows, tokens = q.shape[0], q.shape[2]
    parts, at = [], 0
    for shape in _shapes(rows, tokens):
        parts.append(numbers[at:at + math.prod(shape)].view(shape))
        at += _room(shape)
    mask = BlockMask((tokens, tokens), *parts[:2 * _TABLES], (BLOCK, BLOCK), _causal_in_document(parts[2 * _TABLES:]))
    return _compiled()(q, k, v, block_mask=mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
