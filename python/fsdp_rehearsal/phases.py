"""The phase of the program: initialization, forward, backward or optimizer; and its module.

Initialization ends when a module with trainable parameters is first called with gradients on. Forward lasts until a backward
begins, so it includes the input data and the loss; the work between backward and the end of the optimizer step, such as
clipping, belongs to the optimizer. A model in evaluation mode without gradients is an evaluation, and writing a checkpoint is
saving: both are no part of a step, and have their own peaks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Optional

from fsdp_rehearsal import frames
from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.history import History, Mark
from fsdp_rehearsal.meter import Meter
from fsdp_rehearsal.stub import Stub


ASIDE = ("evaluation", "saving")  # phases that are no part of a step
PART = "part"  # the name of a stretch of a step that such a phase ends


class Phases:
    """The current phase; every change is a mark."""

    def __init__(self, meter: Meter, history: History, stub: Stub) -> None:
        self.phase = "initialization"
        self.backwards = 0  # outermost calls of backward so far
        self.evaluations = 0  # stretches of evaluation so far
        self.at_first_forward: list[Callable[[], None]] = []
        self.after_backward: list[Callable[[], None]] = []
        self._meter, self._history, self._stub = meter, history, stub
        self._module = ""
        self._backward_module = ""
        self._backward_at: Optional[tuple[str, int, str]] = None
        self._depth = 0
        self._inside = ""  # the phase of an enclosing call

    def install(self, torch: Any) -> None:
        """Wraps the two functions that every backward pass goes through."""
        torch.autograd.backward = self._wrap(torch.autograd.backward)
        torch.autograd.grad = self._wrap(torch.autograd.grad)
        torch.save = torch.serialization.save = self.during("saving", torch.save)
        torch.nn.Module.state_dict = self.during("saving", torch.nn.Module.state_dict)

    @property
    def in_backward(self) -> bool:
        return self._depth > 0

    @guarded("The phase of the step")
    def enter(self, phase: str) -> None:
        """Begins a phase, if it is not the current one."""
        if phase == self.phase:
            return
        if self.phase == "initialization":
            self._meter.cut("initialization")
            for action in self.at_first_forward:
                action()
        if phase in ASIDE or self.phase in ASIDE:
            self._meter.cut(self.phase if self.phase in ASIDE else PART)
        self.phase = phase
        self.evaluations += phase == "evaluation"
        where = self._backward_at if phase == "backward" else None
        self._history.begin_phase(Mark(phase, self._meter.position(), self._stub.collective_count(), where))
        self._label()

    def during(self, phase: str, real: Callable) -> Callable:
        """Wraps `real` as a separate phase, once training has begun; a nested call belongs to the outer one."""

        @functools.wraps(real)
        def call(*args, **kwargs):
            before = self.phase
            if before == "initialization" or self._depth > 0 or self._inside == phase:
                return real(*args, **kwargs)
            self._inside = phase
            self.enter(phase)
            try:
                return real(*args, **kwargs)
            finally:
                self._inside = ""
                self.enter(before)

        return call

    def enter_module(self, name: str) -> None:
        """The running module; "" between modules."""
        self._module = name
        self._label()

    def enter_backward_of(self, name: str) -> None:
        """The unit whose backward runs now."""
        self._backward_module = name
        self._label()

    def _label(self) -> None:
        self._history.in_module(self._module or (self._backward_module if self.phase == "backward" else ""))

    def _wrap(self, real: Callable) -> Callable:
        @functools.wraps(real)
        def backward(*args, **kwargs):
            if self._depth > 0:  # checkpointing runs a backward within the backward
                return real(*args, **kwargs)
            before = self._begin_backward()
            self._depth += 1
            try:
                result = real(*args, **kwargs)
            finally:
                self._depth -= 1
            # A failed backward does not end: its failed allocation belongs to backward.
            self._end_backward(before)
            return result

        return backward

    @guarded("The beginning of a backward", "forward")
    def _begin_backward(self) -> str:
        before = self.phase
        frame = frames.user_frame()
        self._backward_at = (frame["file"], frame["line"], frame["function"]) if frame else None
        self.backwards += 1
        self._backward_module = ""
        self.enter("backward")
        return "forward" if before == "initialization" else before

    @guarded("The end of a backward")
    def _end_backward(self, before: str) -> None:
        for action in self.after_backward:
            action()
        # A gradient inside the forward of a module, such as a penalty, does not end the forward.
        self.enter(before if self._module else "optimizer")
