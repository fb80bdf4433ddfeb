"""Kernels of liger-kernel: its own autograd Functions, called as the forwards call them that it puts into transformers' modules.

Sources: liger_kernel/transformers/rms_norm.py, swiglu.py, geglu.py and rope.py of liger-kernel 0.8.5.
"""

from __future__ import annotations

import torch

from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.kernel_table import KernelContext, Tensors, kernel

def rms_norm(op: Op, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    from liger_kernel.ops import LigerRMSNormFunction

    is_gemma = op.attributes["unit_offset"]
    return LigerRMSNormFunction.apply(x, weight, op.attributes["eps"], 1.0 if is_gemma else 0.0, "gemma" if is_gemma else "llama",
                                      op.attributes["in_place"], None)


def rotary(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """q and k are [batch, seq, heads, dim], which transformers has turned to [batch, heads, seq, dim] before."""
    from liger_kernel.transformers.rope import liger_rotary_pos_emb

    q, k = liger_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
    return q.transpose(1, 2), k.transpose(1, 2)


@kernel("liger_glu")
def liger_glu(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    from liger_kernel.ops import LigerGELUMulFunction, LigerSiLUMulFunction

    if op.attributes["approximate"]:
        return LigerGELUMulFunction.apply(*inputs)
    return LigerSiLUMulFunction.apply(*inputs, 1.0, 1.0)
