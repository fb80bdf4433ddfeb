"""Activation checkpointing of the blocks that a plan names: torch.utils.checkpoint around the block's forward and inside its FSDP
unit; if it is reentrant, around the hooks of the block's module, too."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from fsdp_plan_runner.expanded_model import Call, ExpandedModel
from fsdp_plan_runner.modules import PlannedModule, RunningOp
from fsdp_plan_runner.plan import Plan


def kept_ops(model: ExpandedModel, plan: Plan, call: Call) -> list[int]:
    """Positions of the ops of a call whose outputs selective checkpointing keeps. If the plan requests it, every second linear
    layer, counted in each call, is recomputed, as in torchtitan."""
    kept, linears = [], 0
    for position in range(call.first_op, call.first_op + call.num_ops):
        kind = model.ops[position].kind
        linears += kind == "linear"
        skipped = kind == "linear" and plan.every_second_linear and linears % 2 == 0
        if kind in plan.selective_keep and not skipped:
            kept.append(position)
    return kept


def checkpoint_blocks(root: PlannedModule, model: ExpandedModel, plan: Plan) -> None:
    kept: list[int] = []
    for call in model.calls:
        if plan.checkpointed.get(call.module) == "selective":
            kept += kept_ops(model, plan, call)
    root.running.kept_ops = frozenset(kept)
    for name, mode in plan.checkpointed.items():
        block = root.get_submodule(name)
        if mode == "reentrant":
            call_as_reentrant(block, checkpoint)
            continue
        if mode == "nested":
            _checkpoint_children(block)
        options: dict[str, Any] = {"use_reentrant": False}
        if not plan.early_stop:  # An argument since PyTorch 2.9.
            options["early_stop"] = False
        if mode == "selective":
            options["context_fn"] = functools.partial(_contexts, root.running)
        if plan.offload_inputs:
            checkpointed = functools.partial(_with_inputs_on_host, block.forward, options)
        else:
            checkpointed = functools.partial(checkpoint, block.forward, **options)
        block.forward = functools.partial(_if_training, block, checkpointed, block.forward)


def call_as_reentrant(block: torch.nn.Module, checkpoint: Any) -> None:
    """As GradientCheckpointingLayer of transformers does: only a class can put something around the hooks of its module."""
    kind: Any = type(block)

    class Checkpointed(kind):
        def __call__(self, *args: Any, **options: Any) -> Any:
            if not self.training:
                return kind.__call__(self, *args, **options)
            return checkpoint(functools.partial(kind.__call__, self, **options), *args, use_reentrant=True)

    Checkpointed.__name__, Checkpointed.__qualname__ = kind.__name__, kind.__qualname__
    block.__class__ = Checkpointed


def _checkpoint_children(block: torch.nn.Module) -> None:
    """As accelerate's FSDP2 does. Blocks of transformers call their attention by keyword, which a checkpoint does not save: it holds
    what it is given."""
    for name, child in block.named_children():
        inner = functools.partial(_holding if name == "self_attn" else checkpoint, child.forward, use_reentrant=False)
        child.forward = functools.partial(_if_training, block, inner, child.forward)


def _holding(forward: Any, *arguments: Any, **options: Any) -> Any:
    return checkpoint(functools.partial(forward, *arguments), **options)


def _if_training(block: torch.nn.Module, checkpointed: Any, plain: Any, *arguments: Any) -> Any:
    """As transformers, an evaluation runs blocks without checkpoints."""
    return checkpointed(*arguments) if block.training else plain(*arguments)


def _with_inputs_on_host(forward: Any, options: dict[str, Any], number: int, *values: torch.Tensor) -> Any:
    """As transformers' `offload`: the hidden states are positional, and masks and the rotary table are keywords, which a
    checkpoint does not save."""
    moved = [place for place, value in enumerate(values) if place == 0 or value.requires_grad]
    others = [None if place in moved else value for place, value in enumerate(values)]

    def run(*given: torch.Tensor) -> Any:
        inputs = list(others)
        for place, value in zip(moved, given):
            inputs[place] = value
        return forward(number, *inputs)

    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        return checkpoint(run, *(values[place] for place in moved), **options)


# The usually kept part of attention: the fused call, without the copies of K and V around it.
_FUSED_ATTENTION = frozenset((
    "_flash_attention_forward", "_flash_attn_forward", "_flash_attn_varlen_forward", "_varlen_attn", "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu"))


def _contexts(running: RunningOp) -> Any:
    def policy(ctx: Any, function: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if _is_kept(running, function) else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def _is_kept(running: RunningOp, function: Any) -> bool:
    if not running.is_kept or not isinstance(function, torch._ops.OpOverload):
        return running.is_kept
    if running.kind == "attention":
        return function.overloadpacket.__name__ in _FUSED_ATTENTION
    if running.is_float8:  # A policy names the product of 8-bit floats, which is this op on torchao's tensors.
        return function.overloadpacket is torch.ops.aten.mm
    # Keeping a view would keep the whole tensor.
    return not function.is_view
