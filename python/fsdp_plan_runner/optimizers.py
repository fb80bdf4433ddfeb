"""The optimizers of a plan (core/plan/optimizer_table.h): the class of each, and the arguments that the prediction assumes."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.plan import Plan

if TYPE_CHECKING:  # Limits are checked before PyTorch is loaded.
    import torch


@dataclasses.dataclass(frozen=True)
class Made:
    """How an optimizer is made."""

    module: str
    name: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    is_torch: bool = False  # It has PyTorch's foreach and fused.

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]


_BNB, _AO = "bitsandbytes.optim", "torchao.optim"
OPTIMIZERS = {
    "adamw": Made("torch.optim", "AdamW", is_torch=True),
    "adam": Made("torch.optim", "Adam", is_torch=True),
    "sgd": Made("torch.optim", "SGD", is_torch=True),
    "adamw_8bit": Made(_BNB, "AdamW8bit"),
    "adam_8bit": Made(_BNB, "Adam8bit"),
    "paged_adamw_32bit": Made(_BNB, "PagedAdamW"),
    "paged_adamw_8bit": Made(_BNB, "PagedAdamW8bit"),
    "lion_32bit": Made(_BNB, "Lion"),
    "lion_8bit": Made(_BNB, "Lion8bit"),
    "paged_lion_32bit": Made(_BNB, "PagedLion"),
    "paged_lion_8bit": Made(_BNB, "PagedLion8bit"),
    "adamw_torch_8bit": Made(_AO, "AdamW8bit"),
    "adamw_torch_4bit": Made(_AO, "AdamW4bit"),
    "adamw_torch_fp8": Made(_AO, "AdamWFp8"),
    "adafactor": Made("transformers.optimization", "Adafactor", {"scale_parameter": False, "relative_step": False}),
    "adafactor_torch": Made("torch.optim", "Adafactor"),
    "schedule_free_adamw": Made("schedulefree", "AdamWScheduleFree"),
}


# As PyPI has them.
RELEASES = {"bitsandbytes": "0.50.2", "torchao": "0.18.0", "transformers": "5.24.0", "schedulefree": "1.4.1"}


def missing_package_of(kind: str) -> str:
    """The requirement of pip that the optimizer needs and this Python lacks. "" if there is none."""
    package = OPTIMIZERS[kind].package
    return "" if importlib.util.find_spec(package) is not None else f"{package}=={RELEASES[package]}"


class Both:
    """Muon of some matrices, and another optimizer of the rest, in the order of their steps."""

    def __init__(self, optimizers: list[torch.optim.Optimizer]) -> None:
        self.optimizers = optimizers

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()


def hidden_matrices(model: ExpandedModel) -> set[str]:
    """The parameters that Muon updates: weights of linear layers in blocks."""
    shapes = {parameter.name: parameter.shape for parameter in model.parameters}
    ops = [op for call in model.calls if call.repeated for op in model.ops[call.first_op:call.first_op + call.num_ops]]
    return {name for op in ops if op.kind == "linear" for name in op.parameters if len(shapes[name]) == 2}


def make_with_muon(named: dict[str, torch.nn.Parameter], matrices: set[str], plan: Plan, learning_rate: float) -> Both:
    import torch

    given = plan.optimizer.muon or {}
    muon = torch.optim.Muon([p for name, p in named.items() if name in matrices], lr=learning_rate,
                            nesterov=given.get("nesterov", True), ns_steps=given.get("ns_steps", 5))
    rest = make([p for name, p in named.items() if name not in matrices], plan, learning_rate)
    return Both([rest, muon] if given.get("steps_last") else [muon, rest])


def make(parameters: list[torch.nn.Parameter], plan: Plan, learning_rate: float) -> torch.optim.Optimizer:
    given = plan.optimizer
    made = OPTIMIZERS[given.kind]
    options: dict[str, Any] = {**made.options, "lr": learning_rate, "weight_decay": given.weight_decay}
    if made.is_torch:
        # PyTorch uses its foreach implementation if parameters are on a GPU, and its loop if they are on the host.
        options.update(foreach=given.implementation == "foreach" and not plan.cpu_offload, fused=given.implementation == "fused")
    if given.kind == "sgd":
        options["momentum"] = given.momentum
    optimizer = getattr(importlib.import_module(made.module), made.name)(parameters, **options)
    if hasattr(optimizer, "train"):  # Schedule-free optimizers refuse a step before.
        optimizer.train()
    return optimizer
