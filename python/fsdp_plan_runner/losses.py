"""Losses of libraries that are given the hidden states and the head's weight: the library's own function, called as its trainer
calls it.

Sources: liger_kernel/transformers/model/llama.py (lce_forward) and loss_utils.py of liger-kernel 0.8.5; trl/trainer/sft_trainer.py
(compute_loss) and utils.py (add_fused_lm_head) of trl 1.16.0; verl/workers/engine/fsdp/transformer_impl.py (prepare_model_outputs)
and workers/utils/losses.py (sft_loss) of verl 0.9.1; torchtitan/trainer.py (forward_backward_step) of torchtitan 0.3.0.
"""

from __future__ import annotations

import importlib.metadata
import types
from collections.abc import Callable

import torch

from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.kernel_table import KernelContext, Tensors, kernel


def _liger(op: Op, hidden: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    from liger_kernel.transformers.model.loss_utils import LigerForCausalLMLoss

    return LigerForCausalLMLoss(hidden, weight, labels, hidden.shape[-1],
                                shift_labels=None if op.attributes["shift"] else labels,
                                final_logit_softcapping=op.attributes["softcap"] or None)


def _liger_081(op: Op, hidden: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor,
               bias: torch.Tensor | None) -> torch.Tensor:
    found = importlib.metadata.version("liger-kernel")
    if found != "0.8.1":
        raise RuntimeError(f"liger-kernel is {found}, and the plan is for the loss of 0.8.1. Write: pip install liger-kernel==0.8.1")
    return _liger(op, hidden, labels, weight, bias)


class _Decoder:
    """The parts of a transformers model that add_fused_lm_head asks for."""

    def __init__(self, op: Op, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        text = types.SimpleNamespace(final_logit_softcapping=op.attributes["softcap"] or None)
        self.config = types.SimpleNamespace(get_text_config=lambda: text)
        self.base_model = lambda **_: types.SimpleNamespace(last_hidden_state=hidden)
        self.get_output_embeddings = lambda: types.SimpleNamespace(weight=weight, bias=bias)

    def forward(self) -> None:
        """What add_fused_lm_head replaces."""


def _chunked_nll(op: Op, hidden: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor,
                 bias: torch.Tensor | None) -> torch.Tensor:
    from trl.trainer.utils import add_fused_lm_head

    model = _Decoder(op, hidden, weight, bias)
    add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    asked = {"labels": labels} if op.attributes["shift"] else {"shift_labels": labels}
    outputs = model.forward(**asked, fused_lm_head=True)
    vars(model).clear()  # It refers to itself by its forward, and to the hidden states.
    per_token_loss = -outputs.log_probs
    return per_token_loss.sum() / torch.as_tensor(outputs.label_mask.sum()).clamp(min=1)


def _cut(op: Op, hidden: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    from cut_cross_entropy import linear_cross_entropy as cut_cross_entropy

    return cut_cross_entropy(hidden, weight, labels, shift=op.attributes["shift"], softcap=op.attributes["softcap"] or None)


def _torchtitan_chunked(context: KernelContext, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss

    if not context.chunked_loss:
        config = ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config())
        if context.implementations.loss_chunks:
            config.num_chunks = context.implementations.loss_chunks
        context.chunked_loss.append(ChunkedLossWrapper(config))
        context.chunked_loss[0].set_lm_head(context.head[0])
    tokens = torch.full((), labels.numel(), dtype=torch.int64, device=labels.device)
    return context.chunked_loss[0](hidden, labels, tokens)[0]


def verl(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """sft_loss, with labels in the place of its mask. logits: [tokens, classes]; labels: [tokens]."""
    from verl.utils.torch_functional import logprobs_from_logits, masked_sum

    rolled = torch.roll(labels, shifts=-1, dims=0)
    log_prob = logprobs_from_logits(logits=logits, labels=rolled, inplace_backward=True)
    loss_mask = torch.roll(labels, shifts=-1, dims=0)
    return -masked_sum(log_prob, loss_mask) / labels.numel() * 1


Loss = Callable[[Op, torch.Tensor, torch.Tensor, torch.Tensor, "torch.Tensor | None"], torch.Tensor]
LOSSES: dict[str, Loss] = {"liger": _liger, "liger-0.8.1": _liger_081, "chunked_nll": _chunked_nll, "cut_cross_entropy": _cut}


# Those whose trainer empties the allocator's cache before the first step.
EMPTIES_CACHE = {"verl"}
# Those whose trainer names the loss until the next micro-batch has one.
KEEPS_LAST_LOSS = {"verl"}

# Those that call the head's module after the root's forward.
CALLS_HEAD = {"torchtitan_chunked": _torchtitan_chunked}


@kernel("linear_cross_entropy")
def linear_cross_entropy(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    if context.implementations.loss in CALLS_HEAD:
        return CALLS_HEAD[context.implementations.loss](context, *inputs)
    weight, bias = parameters[0], parameters[1] if len(parameters) > 1 else None
    return LOSSES[context.implementations.loss](op, *inputs, weight, bias)
