"""A micro-batch and its forward, which the loops of PyTorch (training.py) and of DeepSpeed (zero.py) share."""

from __future__ import annotations

import contextlib
import dataclasses

import torch

from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.kernel_table import dtype_of
from fsdp_plan_runner.modules import PlannedModule


class Batch:
    """The tensors that a data loader would put on the device."""

    has_values = False

    def __init__(self, model: ExpandedModel, activation: torch.dtype, device: torch.device) -> None:
        self._tensors = [model.tensors[tensor] for tensor in model.inputs]
        self._activation = activation
        self._device = device
        self.values: list[torch.Tensor | None] = [None] * len(self._tensors)

    def _dtype_of(self, i: int) -> torch.dtype:
        name = self._tensors[i].dtype
        return dtype_of(name) if name else self._activation

    def load(self) -> None:
        for i, tensor in enumerate(self._tensors):
            dtype = self._dtype_of(i)
            if dtype.is_floating_point:
                self.values[i] = torch.randn(tensor.shape, dtype=dtype, device=self._device)
            elif dtype == torch.bool:
                self.values[i] = torch.ones(tensor.shape, dtype=dtype, device=self._device)
            else:
                self.values[i] = torch.zeros(tensor.shape, dtype=dtype, device=self._device)


def run_forward(root: PlannedModule,
                values: list[torch.Tensor | None]) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The loss of a batch, computed by the root or after it, followed by the tensors that the plan keeps."""
    # A loss after the root's forward is in the same context, whose cache lives until it is over.
    with root.context.autocasting() if root.after_root is not None else contextlib.nullcontext():
        return _forward(root, values)


def _forward(root: PlannedModule,
             values: list[torch.Tensor | None]) -> torch.Tensor | tuple[torch.Tensor, ...]:
    root.beside = {tensor: values[place] for tensor, place in root.places_beside.items()}
    called = root.wrapper[0] if root.wrapper else root
    result = called(0, *(values[place] for place in root.argument_places))
    root.beside = {}
    return root.after_root(result, values) if root.after_root is not None else result


@dataclasses.dataclass
class StepResult:
    """Both are 0 if values have no meaning."""

    loss: float  # The mean over the micro-batches.
    gradient_norm: float  # Before clipping; 0 without clipping.
