"""A step of several backwards, as in a GAN: the models that the script trains in turns, the work of each pass, and whether a
plan can express it.

A pass is a forward and the backward of one loss. Optimizers may step after it; the script decides where gradients are cleared.
Each model is a root of its own for FSDP2, so the script must call it as one, and an optimizer must have all of its trained
parameters or none.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fsdp_rehearsal.modules import class_name

Mark = Callable[[str], None]  # writes a name into the recording


class CaptureError(Exception):
    """The reason why a script cannot be captured, in one sentence."""


class NotAlike(CaptureError):
    """Why models that are trained in turns cannot be captured, in sentences."""


@dataclass
class Turns:
    """The models of a step of passes."""

    root: Any  # that contains them, and is never called
    names: list[str]  # of the models below it
    optimizers: list[Any]
    models_of: dict[int, list[str]] = field(default_factory=dict)  # id of an optimizer -> the models that it steps

    def name_of(self, module: Any) -> str:
        """Name of a model; "" for another module."""
        return next((name for name in self.names if self.root.get_submodule(name) is module), "")

    def with_gradients(self) -> frozenset[str]:
        """Models that have a gradient now."""
        return frozenset(n for n in self.names if any(p.grad is not None for p in self.root.get_submodule(n).parameters()))


def turns_of(root: Any, called: list[Any], optimizers: list[Any]) -> Turns:
    """`root`: a group of the models that the optimizers train; `called`: modules that the script calls. Raises NotAlike if one
    is not trained as a whole by one optimizer, or if the script calls its parts directly."""
    turns = Turns(root, [name for name, _ in root.named_children()], optimizers)
    if len({class_name(model) for model in root.children()}) < len(turns.names):
        raise NotAlike("Two of them are of one class, by whose name a plan would know them. Derive a class for each.")
    owner = {id(p): name for name in turns.names for p in root.get_submodule(name).parameters()}
    for name in turns.names:
        if not any(root.get_submodule(name) is each for each in called):
            raise NotAlike(f"{name} is never called as a whole, only parts of it.")
    for module in called:
        if not turns.name_of(module):
            raise NotAlike(f"{class_name(module)} is called, too, and no optimizer has all of it.")
    taken: dict[str, Any] = {}
    for optimizer in optimizers:
        models = list(dict.fromkeys(owner[id(p)] for group in optimizer.param_groups for p in group["params"] if id(p) in owner))
        for name in models:
            if name in taken:
                raise NotAlike(f"{name} has parameters in two optimizers.")
            taken[name] = optimizer
        turns.models_of[id(optimizer)] = models
    return turns


class PassWatch:
    """Records the events between forwards and backwards: marks in a recording, and otherwise the existing gradients."""

    def __init__(self, torch: Any, turns: Turns) -> None:
        self._turns = turns
        self.problem = ""
        self.mark: Any = None  # of a recording in progress
        self.seen: list[frozenset[str]] = []  # before each backward of the watched step: models with gradients
        self.looks = False
        self._watch(torch)

    def _watch(self, torch: Any) -> None:
        sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(self._steps)
        for kind, names_of in ((torch.optim.Optimizer, self._of_optimizer), (torch.nn.Module, self._of_module)):
            self._wrap(kind, names_of)
        real = torch.autograd.grad

        @functools.wraps(real)
        def grad(*args: Any, **kwargs: Any) -> Any:
            self.problem = self.problem or (
                "The script trains its models by turns and asks for gradients by torch.autograd.grad, as a gradient penalty does. A backward "
                "through a backward is not predicted: capture it without."
            )
            return real(*args, **kwargs)

        torch.autograd.grad = grad

    def _wrap(self, kind: Any, names_of: Callable[[Any], list[str]]) -> None:
        real = kind.zero_grad

        @functools.wraps(real)
        def zero_grad(owner: Any, set_to_none: bool = True) -> None:
            names = names_of(owner)
            if names and not set_to_none:
                self.problem = "The script zeroes gradients and keeps them (set_to_none=False), which is not predicted."
            if names and self.mark is not None:
                self.mark(f"Z|{','.join(names)}")
            real(owner, set_to_none)

        kind.zero_grad = zero_grad

    def _of_optimizer(self, optimizer: Any) -> list[str]:
        return self._turns.models_of.get(id(optimizer), [])

    def _of_module(self, module: Any) -> list[str]:
        name = self._turns.name_of(module)
        return [name] if name else []

    def _steps(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.mark is not None:
            self.mark(f"O|{','.join(self._of_optimizer(optimizer))}")

    def backward_begins(self) -> None:
        if self.looks:
            self.seen.append(self._turns.with_gradients())


def check_clearings(seen: list[frozenset[str]], cleared: list[list[list[str]]], given: list[frozenset[str]]) -> str:
    """Why the observed gradients do not follow from the clearings. Empty if they do. `seen`: PassWatch.seen; `cleared` [passes
    + 1]: models whose gradients are cleared in each pass, before its backward, and after the last; `given` [passes]: models to
    which its backward gives gradients."""
    has: frozenset[str] = frozenset()
    found: list[frozenset[str]] = []
    for _ in range(2):
        found = []
        for number, gives in enumerate(given):
            has = has.difference(*cleared[number])
            found.append(has)
            has |= gives
        has = has.difference(*cleared[len(given)])
    if found == seen:
        return ""
    return (
        "The script clears gradients in another way than by zero_grad() of an optimizer or a model, so it is not known when they "
        "go. Clear them by zero_grad()."
    )
