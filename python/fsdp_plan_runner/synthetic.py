"""Numbers in place of weights and data: those of fsdp-exec (executor/training/synthetic.cpp), bit for bit.

Element i of sequence k is SplitMix64's output over a counter that starts at a hash of (seed, k, stream). For uniform values
its upper 24 bits are an exact fp32 number u in [0, 1), and the value is (u * 2 - 1) * a. For normal ones the sum of its four
16-bit parts is an integer with a bell-shaped distribution.
"""

from __future__ import annotations

import math

import torch

from fsdp_plan_runner.constants import document_positions, document_starts, rotary_frequencies
from fsdp_plan_runner.expanded_model import ExpandedModel, Op, Tensor
from fsdp_plan_runner.flex import block_mask_numbers

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_VIEWS = ("reshape", "transpose", "slice", "select", "expand", "split", "contiguous", "cat", "stack", "detach")


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _start(seed: int, name: str, stream: int) -> int:
    digest = 0xCBF29CE484222325
    for byte in name.encode():
        digest = ((digest ^ byte) * 0x100000001B3) & _MASK
    return (_mix(_mix((seed + _GAMMA) & _MASK) ^ digest) + stream * 0xD1342543DE82EF95) & _MASK


def _shifted(z: torch.Tensor, bits: int) -> torch.Tensor:
    """A logical shift to the right, which fills with zeros."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _numbers(start: int, first: int, count: int) -> torch.Tensor:
    z = torch.arange(first + 1, first + count + 1) * _signed(_GAMMA) + _signed(start)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shifted(z, 31)


def _spread(start: int, first: int, count: int, a: float) -> torch.Tensor:
    u = _shifted(_numbers(start, first, count), 40).float() * 2.0**-24
    return (u * 2.0 - 1.0) * torch.tensor(a, dtype=torch.float32)


def _bell(start: int, first: int, count: int, deviation: float) -> torch.Tensor:
    z = _numbers(start, first, count)
    parts = [_shifted(z, bits) & 0xFFFF for bits in (16, 32, 48)]
    total = (z & 0xFFFF) + parts[0] + parts[1] + parts[2]
    return (total - 131070).float() * torch.tensor(deviation * math.sqrt(3.0) / 65536.0, dtype=torch.float32)


def _sinusoids(shape: tuple[int, ...]) -> torch.Tensor:
    """`sinusoids` of modeling_whisper.py: sines of positions, then cosines."""
    half = shape[1] // 2
    scales = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    angles = torch.arange(shape[0], dtype=torch.float32).view(-1, 1) * scales.view(1, -1)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def parameter_values(model: ExpandedModel, seed: int, name: str, first: int, count: int) -> torch.Tensor:
    """Elements [first, first + count) of a parameter, in fp32."""
    parameter = next(p for p in model.parameters if p.name == name)
    initial, start = parameter.initial, _start(seed, name, 0)
    if initial["distribution"] == "constant":
        values = torch.full((count,), float(initial["value"]))
    elif initial["distribution"] == "sinusoid":
        values = _sinusoids(parameter.shape).view(-1)[first:first + count].clone()
    elif initial["distribution"] == "normal":
        values = _bell(start, first, count, initial["std"])
    else:
        values = _spread(start, first, count, initial["std"] * math.sqrt(3.0))
    if "zero_row" in initial:
        width = math.prod(parameter.shape[1:])
        row = initial["zero_row"] * width - first
        values[max(0, min(row, count)):max(0, min(row + width, count))] = 0.0
    return values


def buffer_values(model: ExpandedModel, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    module, _, last = name.rpartition(".")
    if last == "inv_freq":
        for op in model.ops:
            if op.kind == "rotary_table" and op.module == module:
                return rotary_frequencies(op.attributes).reshape(shape)
    return torch.ones(shape) if name.endswith("running_var") else torch.zeros(shape)


def _readers(model: ExpandedModel, tensor: int) -> list[tuple[Op, int]]:
    """The ops that read a tensor, through views, each with the index of the input."""
    found, waiting, seen = [], [tensor], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for op in model.ops:
            for i, read in enumerate(op.inputs):
                if read == current:
                    found.append((op, i))
                    if op.kind in _VIEWS:
                        waiting += op.outputs
    return found


def _bound(model: ExpandedModel, tensor: int) -> int | None:
    """The upper bound of the values; None if they are positions."""
    shapes = {p.name: p.shape for p in model.parameters}
    bounds = []
    for op, i in _readers(model, tensor):
        if op.kind == "rotary_table":
            return None
        shape = model.tensors[op.inputs[0]].shape
        if op.kind == "embedding":
            bounds.append(shapes[op.parameters[0]][0])
        elif op.kind == "cross_entropy" and i == 1:
            bounds.append(shape[-1])
        elif op.kind == "linear_cross_entropy" and i == 1:
            bounds.append(shapes[op.parameters[0]][0])
        elif op.kind == "index" and i == 1:
            bounds.append(shape[op.attributes["dim"]])
    return min(bounds, default=2)


def _packed_values(model: ExpandedModel, tensor: int) -> torch.Tensor | None:
    """Positions or boundaries of a packed row; None for other inputs."""
    documents = next((op.attributes["documents"] for op in model.ops if op.attributes["documents"]), None)
    name = model.tensors[tensor].name
    if documents is None or name not in ("position_ids", "cu_seq_lens_q", "cu_seq_lens_k", "block_mask"):
        return None
    shape = model.tensors[tensor].shape
    if name == "block_mask":
        rows = next(op for op in model.ops if op.attributes["documents"]).inputs[0]
        return block_mask_numbers(documents, model.tensors[rows].shape[0])
    return document_positions(documents).repeat(shape[0], 1) if name == "position_ids" else document_starts(documents)


def input_values(model: ExpandedModel, tensor: int, dtype: torch.dtype, seed: int, stream: int) -> torch.Tensor:
    """One input of the model for one micro-batch. `stream` distinguishes ranks, steps and micro-batches."""
    described: Tensor = model.tensors[tensor]
    if dtype == torch.bool:
        return torch.ones(described.shape, dtype=dtype)
    packed = _packed_values(model, tensor)
    if packed is not None:
        return packed
    start, count = _start(seed, described.name, stream), math.prod(described.shape)
    if dtype.is_floating_point:
        return _spread(start, 0, count, 1.0).view(described.shape).to(dtype)
    bound = _bound(model, tensor)
    if bound is None:
        return torch.arange(described.shape[-1], dtype=dtype).expand(described.shape).contiguous()
    return (_shifted(_numbers(start, 0, count), 16) % bound).view(described.shape).to(dtype)
