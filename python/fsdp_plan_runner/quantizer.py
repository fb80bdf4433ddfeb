"""Replaces DeepSpeed's compiled quantizer in a rehearsal, where values have no meaning. It makes the same allocations in the
same order, without a minute of nvcc. `tests/rehearsal/quantizer_test.py` compares it with DeepSpeed's own sources
(csrc/quantization/pt_binding.cpp, DeepSpeed 0.19.8).
"""

from __future__ import annotations

from typing import Any

import torch


class Quantizer:
    """One scale for each group: symmetric quantization, the only kind that ZeRO uses."""

    Symmetric = "symmetric"

    @staticmethod
    def quantize(values: torch.Tensor, groups: int, bits: int, kind: str) -> list[torch.Tensor]:
        scales = _scales(groups)
        *outer, last = values.shape
        return [_integers((*outer, last * bits // 8)), scales]

    @staticmethod
    def dequantize(quantized: torch.Tensor, scales: torch.Tensor, groups: int, bits: int, kind: str) -> torch.Tensor:
        *outer, last = quantized.shape
        return torch.empty((*outer, last * (8 // bits)), dtype=torch.half, device="cuda")

    @staticmethod
    def swizzle_quant(values: torch.Tensor, groups: int, bits: int, kind: str, *layout: int) -> list[torch.Tensor]:
        scales = _scales(groups)
        return [_integers((values.numel() * bits // 8,)), scales]

    @staticmethod
    def quantized_reduction(values: torch.Tensor, scales: torch.Tensor, groups_in: int, groups_out: int, bits: int, kind: str,
                            ranks: int) -> list[torch.Tensor]:
        reduced_scales = _scales(groups_out)
        *outer, last = values.shape
        return [_integers((*outer, last // ranks)), reduced_scales]


def _scales(groups: int) -> torch.Tensor:
    return torch.empty((groups, 1), dtype=torch.float32, device="cuda")


def _integers(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int8, device="cuda")


class QuantizerBuilder:
    """Replaces `deepspeed.ops.op_builder.QuantizerBuilder`."""

    def load(self, verbose: bool = True) -> Any:
        return Quantizer
