"""Selective checkpointing in a script's own blocks: the ops of a block's run that are saved, so that they do not run again.

A policy of create_selective_checkpoint_contexts runs below autograd, where attention is one of a few fused functions, and a
linear layer is mm without a bias and addmm with one. The number of a product within the block identifies its linear layer;
forward and recomputation count separately. Products of experts depend on the data; the caller refuses blocks with them.

Sources: torch/utils/checkpoint.py (create_selective_checkpoint_contexts), ATen/native/Linear.cpp, torch 2.11.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

SAVED_KINDS = ("attention", "linear")
_ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)
_PRODUCTS = ("mm", "addmm")


def contexts_of(kinds: Sequence[str], every_second_linear: bool) -> Callable[[], Any]:
    """The context_fn of torch.utils.checkpoint that saves these kinds of ops."""
    from torch import ops
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    attention = {getattr(ops.aten, name).default for name in _ATTENTION} if "attention" in kinds else set()
    products = {getattr(ops.aten, name).default for name in _PRODUCTS} if "linear" in kinds else set()

    def policy(counts: dict[bool, int], ctx: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        saved = function in attention
        if function in products:
            counts[ctx.is_recompute] += 1
            saved = not every_second_linear or counts[ctx.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    return lambda: create_selective_checkpoint_contexts(functools.partial(policy, {False: 0, True: 0}))


def has_experts(block: Any) -> bool:
    """Whether products of a block may be those of experts."""
    return any("experts" in name.split(".") for name, _ in block.named_modules())
