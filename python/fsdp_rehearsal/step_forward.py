"""The forward of a model that the script never calls as a whole: it calls the parts one after another.

FSDP2 gathers parameters outside of all inner units in the forward of the root, and the first module that is called becomes a
root. So each part would be a root, and a table that is read outside of them would never be gathered. Here a step gets what its
author would write for FSDP2, a forward of the whole model: it begins with the first part that is called, and ends where the
backward begins, with the loss as its output. Code that finds such a model calls `of`; until then this does nothing.

Not modeled: a parameter that the script reads in a step before it calls any part.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from fsdp_rehearsal.phases import Phases

Hook = Callable[[Any, Any, Any], Any]  # of a module, its positional and its named arguments


def parts_called(kind: str) -> str:
    """A note for readers about a script that calls parts of its `kind` of model."""
    return (
        f"The script calls parts of its {kind}, and not the model itself. FSDP2 gathers the root in its forward, so a plan runs with "
        "a forward of the root around each step: from the first part to the backward."
    )


def _nothing() -> None:
    """The default action."""


def _as_it_is(outputs: Any) -> Any:
    return outputs


class StepForward:
    def __init__(self, phases: Phases) -> None:
        self.is_open = False
        self.has_run = False
        self.forwards: list[set[str]] = []  # of forwards that a backward followed: names of the parts that were called
        self.enter: list[Callable[[Any], None]] = []  # called with the root, when the forward begins
        self.leave: list[Callable[[Any], None]] = []
        self._phases = phases
        self._root: Any = None
        self._parts: Any = weakref.WeakKeyDictionary()  # their names
        self._called: set[str] = set()
        self._running: list[int] = []  # ids of modules, each called by the previous one
        self._alone: Any = None  # a part that is evaluated, with the forward around its call
        self._begin: Callable[[], None] = _nothing
        self._end: Callable[[Any], Any] = _as_it_is
        self._torch: Any = None

    def install(self, torch: Any) -> None:
        """Installed before the observers of modules, which then see the root first; after `Phases`, for which the forward ends
        when the backward begins."""
        self._torch = torch
        module = torch.nn.modules.module
        module.register_module_forward_pre_hook(self._before)
        module.register_module_forward_hook(self._after, always_call=True)
        sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(self._at_step)
        real = torch.autograd.backward

        @functools.wraps(real)
        def backward(tensors, *args, **kwargs):
            if self.is_open and not self._phases.in_backward:
                self.forwards.append(self._called)
                tensors = self._close(tensors)
            return real(tensors, *args, **kwargs)

        torch.autograd.backward = backward

    def of(self, root: Any, begin: Callable[[], None] = _nothing, end: Callable[[Any], Any] = _as_it_is) -> None:
        """From now on parts of `root` that are called separately form its forward. `begin`: called before it; `end`: called
        with its outputs, and returns them."""
        self._root, self._begin, self._end = root, begin, end
        self._parts = weakref.WeakKeyDictionary((module, name) for name, module in root.named_modules() if name)

    def hook_parts(self, hook: Hook) -> None:
        """Calls `hook` with the script's arguments to a part. It returns both kinds of arguments, or None."""

        def before(module: Any, args: Any, kwargs: Any) -> Any:
            return hook(module, args, kwargs) if self.is_open and len(self._running) == 1 else None

        for module in [self._root, *self._parts]:
            module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)

    def begins_with(self, module: Any) -> bool:
        """Whether the forward begins with this call of the module."""
        if self._root is None or self.is_open or self._running or self._phases.in_backward:
            return False
        return module in self._parts

    def _before(self, module: Any, args: Any) -> None:
        if self._torch.compiler.is_compiling():
            return
        if self.begins_with(module):
            self.is_open, self._called = True, set()
            self._alone = module if not self._torch.is_grad_enabled() and not self._root.training else None
            for action in self.enter:
                action(self._root)
            self._begin()
            self.has_run = True
        if self.is_open and not self._running and module in self._parts:
            self._called.add(self._parts[module])
        self._running.append(id(module))

    def _after(self, module: Any, args: Any, output: Any) -> None:
        if self._torch.compiler.is_compiling():
            return
        if id(module) in self._running:  # those that failed inside it are still there
            last = len(self._running) - 1 - self._running[::-1].index(id(module))
            del self._running[last:]
        if self.is_open and self._alone is module:
            self._close(())

    def _at_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Ends a forward without a backward: parameters that stay gathered would miss the step."""
        if self.is_open and not self._phases.in_backward:
            self._close(())
            getattr(self._root, "reshard", _nothing)()

    def _close(self, outputs: Any) -> Any:
        self.is_open, self._alone = False, None
        outputs = self._end(outputs)
        for action in self.leave:
            action(self._root)
        return outputs
