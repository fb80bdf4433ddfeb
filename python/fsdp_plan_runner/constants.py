"""Numbers in a model's computation that are neither parameters nor data: positions, masks, buckets, frequencies.

Each follows from the model spec. The calls are those of the published code, and those of fsdp-exec
(executor/kernels/constants.cpp), so that the bits are equal.

Sources: transformers 4.57 modeling_rope_utils.py (_compute_default_rope_parameters, _compute_llama3_parameters,
_compute_yarn_parameters),
models/t5/modeling_t5.py (_relative_position_bucket).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch


def rotary_frequencies(attributes: dict[str, Any]) -> torch.Tensor:
    """The inverse frequencies of a rotary table, fp32 [head_dim / 2], on the host."""
    dim = attributes["head_dim"]
    frequencies = 1.0 / (attributes["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim))
    if attributes["rope_scaling"] == "none":
        return frequencies
    if attributes["rope_scaling"] == "linear":
        return frequencies / attributes["rope_factor"]
    if attributes["rope_scaling"] == "yarn":
        return _ramped(frequencies, dim, attributes)
    assert attributes["rope_scaling"] == "llama3", attributes["rope_scaling"]
    low, high = attributes["low_freq_factor"], attributes["high_freq_factor"]
    factor, positions = attributes["rope_factor"], attributes["original_max_positions"]
    waves = 2 * math.pi / frequencies
    divided = torch.where(waves > positions / low, frequencies / factor, frequencies)
    share = (positions / waves - low) / (high - low)
    between = (1 - share) * divided / factor + share * divided
    is_between = (waves >= positions / high) * (waves <= positions / low)
    return torch.where(is_between, between, divided)


def _ramped(frequencies: torch.Tensor, dim: int, attributes: dict[str, Any]) -> torch.Tensor:
    """Yarn: low dimensions as they are, high ones divided, and a ramp between."""
    def dimension_of(turns: float) -> float:
        waves = attributes["original_max_positions"] / (turns * 2 * math.pi)
        return (dim * math.log(waves)) / (2 * math.log(attributes["rope_theta"]))

    low, high = dimension_of(attributes["beta_fast"]), dimension_of(attributes["beta_slow"])
    if attributes["truncate"]:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    kept = 1 - torch.clamp((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low), 0, 1)
    return frequencies / attributes["rope_factor"] * (1 - kept) + frequencies * kept


def _buckets_of_distances(distances: int, num_buckets: int, max_distance: int) -> torch.Tensor:
    """[distances]: the bucket of each distance 0, 1, 2, ... in one direction."""
    exact = num_buckets // 2
    distance = torch.arange(distances)
    shared = exact + (torch.log(distance.float() / exact) / math.log(max_distance / exact) * (num_buckets - exact)).long()
    return torch.where(distance < exact, distance, shared.clamp(max=num_buckets - 1))


def _relative_buckets(attributes: dict[str, Any], queries: int, keys: int) -> torch.Tensor:
    relative = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
    buckets = attributes["num_buckets"]
    in_direction = buckets // 2 if attributes["bidirectional"] else buckets
    table = _buckets_of_distances(max(queries, keys), in_direction, attributes["max_distance"])
    if attributes["bidirectional"]:
        return table[relative.abs()] + (relative > 0) * in_direction
    return table[(-relative).clamp(min=0)]


def _rows(attributes: dict[str, Any], shape: tuple[int, ...]) -> torch.Tensor:
    r = torch.arange(shape[0])
    length = attributes["length"]
    rows = r // length * attributes["stride"] + attributes["start"] + r % length
    return rows.view(-1, *(1,) * (len(shape) - 1)).expand(shape)


def document_starts(documents: Sequence[int]) -> torch.Tensor:
    """[documents + 1] The tokens before each document of a row, and all of them: int32, on the host."""
    return torch.tensor([0, *itertools.accumulate(documents)], dtype=torch.int32)


def document_positions(documents: Sequence[int]) -> torch.Tensor:
    """[1, tokens] int64, on the host: the positions of a packed row, which begin with 0 in each document."""
    return torch.cat([torch.arange(length) for length in documents])[None]


def _is_in_reach(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(queries.shape[2], device=queries.device) + 0
    return (rows[queries] >= rows[keys]).view(1, 1, queries.shape[2], keys.shape[3])


def _document_mask(documents: Sequence[int], device: torch.device) -> torch.Tensor:
    """[1, 1, tokens, tokens] As transformers' sdpa_mask makes it of a packed row: conditions of indices, combined one by one."""
    numbers = torch.repeat_interleave(torch.arange(len(documents)), torch.tensor(documents))[None].to(device)
    tokens = numbers.shape[1]
    batch = torch.arange(1, device=device)[:, None, None, None]
    queries = (torch.arange(tokens, device=device) + 0)[None, None, :, None]
    keys = (torch.arange(tokens, device=device) + 0)[None, None, None, :]
    mask = queries.new_ones((), dtype=torch.bool)
    mask = mask & _is_in_reach(queries, keys)
    return mask & (numbers[batch, queries] == numbers[batch, keys])


def make_constant(attributes: dict[str, Any], shape: tuple[int, ...], dtype: torch.dtype,
                  device: torch.device) -> torch.Tensor:
    """The tensor of a `constant`. Its making needs no device memory beyond the tensor itself, but for a mask of documents."""
    fill = attributes["fill"]
    if fill == "document_mask":
        return _document_mask(attributes["documents"], device)
    if fill == "value":
        value = attributes["value"]
        return torch.full(shape, value, dtype=dtype, device=device) if value else torch.zeros(
            shape, dtype=dtype, device=device)
    if fill == "causal_mask":
        return torch.full(shape, torch.finfo(dtype).min, dtype=dtype, device=device).triu_(1)
    out = torch.empty(shape, dtype=dtype, device=device)
    if fill == "window_mask":
        seen = torch.ones(shape, dtype=torch.bool).tril_(0).triu_(1 - attributes["length"])
        if dtype == torch.bool:
            return out.copy_(seen)
        return out.copy_(torch.zeros(shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min))
    if fill == "chunk_mask":
        chunks = [torch.arange(size) // attributes["length"] for size in shape[-2:]]
        return out.copy_(torch.ones(shape, dtype=torch.bool).tril_(0) & (chunks[0][:, None] == chunks[1]))
    if fill == "positions":
        for row in out.view(-1, shape[-1]):
            torch.arange(shape[-1], out=row)
        return out
    return out.copy_(_relative_buckets(attributes, *shape) if fill == "relative_buckets" else _rows(attributes, shape))
