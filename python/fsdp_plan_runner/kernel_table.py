"""The type of kernels, and the table of them.

A kernel receives the op, its context, the op's inputs and its parameters, and returns the output, or a tuple of them. It is
written like the code of the framework in the plan's runtime, so that it keeps and frees the same tensors; the simulator's op
rules name the same sources.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.plan import Implementations


@dataclasses.dataclass
class KernelContext:
    implementations: Implementations
    activation: torch.dtype  # For tensors that have no dtype of their own.
    device: torch.device
    shapes: list[tuple[int, ...]]  # [num tensors] From the expanded model.
    buffers: dict[str, torch.nn.Module]  # From the name of a buffer to its module.
    # The head and the loss that calls it, if there is such a loss.
    head: list[torch.nn.Module] = dataclasses.field(default_factory=list)
    chunked_loss: list[Any] = dataclasses.field(default_factory=list)
    autocast: torch.dtype | None = None  # The dtype of torch.autocast around the forward and the loss.
    trained: torch.dtype | None = None  # That of trained parameters in the forward; None: the activations'.
    requested: frozenset[int] = frozenset()  # Tensors that require a gradient whatever they are made from.
    training: bool = True  # False in an evaluation, which has no dropout.

    def autocasting(self) -> contextlib.AbstractContextManager[None]:
        """Around the forward and the loss."""
        return torch.autocast("cuda", self.autocast) if self.autocast else contextlib.nullcontext()

    def buffer(self, name: str) -> torch.Tensor:
        return getattr(self.buffers[name], name.rpartition(".")[2])


Tensors = Sequence[torch.Tensor]
Kernel = Callable[[Op, KernelContext, Tensors, Tensors], torch.Tensor | tuple[torch.Tensor, ...]]

KERNELS: dict[str, Kernel] = {}


def kernel(kind: str) -> Callable[[Kernel], Kernel]:
    """Enters a function into the table."""

    def enter(function: Kernel) -> Kernel:
        assert kind not in KERNELS, kind
        KERNELS[kind] = function
        return function

    return enter


def dtype_of(name: str) -> torch.dtype:
    """PyTorch's dtype of that name. Raises ValueError if there is none."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f'"{name}" is not a dtype of PyTorch')
    return found
