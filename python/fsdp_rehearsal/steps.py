"""Counts optimizer steps, and stops the program after as many as were asked for.

What a step is follows from what the program does: all calls of optimizers until an optimizer is called again after another
backward. So several optimizers side by side, one per stage of a pipeline or one per parameter, make one step, and so do the
calls per group of ZeRO-3. How many calls make a step is learned in the first one; with a single step asked for, it ends where
the next forward begins.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, Optional

from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.history import History
from fsdp_rehearsal.meter import Meter
from fsdp_rehearsal.phases import Phases


class Steps:
    def __init__(self, meter: Meter, phases: Phases, history: History, limit: int, stop: Callable[[], None]) -> None:
        self.calls = 0  # of optimizers
        self.calls_per_step: Optional[int] = None  # None: not known yet
        self.optimizers: list[Any] = []  # weak references, in the order of their first call
        self.at_end: list[Callable[[], None]] = []
        self._backward_at_call: Any = weakref.WeakKeyDictionary()  # optimizer -> backwards before its last call
        self._meter, self._phases, self._history = meter, phases, history
        self._limit, self._stop = limit, stop

    def install(self, torch: Any) -> None:
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(self._called)
        enter = self._phases.enter

        def enter_and_look(phase: str) -> None:
            if phase == "forward" and self._limit == 1 and self.calls > 0 and self.calls_per_step is None:
                self.calls_per_step = self.calls
                self._stop()
            enter(phase)

        self._phases.enter = enter_and_look

    @property
    def done(self) -> int:
        """Steps that have ended."""
        return self.calls // self.calls_per_step if self.calls_per_step else min(self.calls, 1)

    def _called(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        ended = self._count(optimizer)
        if ended and self._limit and self.done >= self._limit and self.calls_per_step:
            self._stop()

    @guarded("The end of a step", False)
    def _count(self, optimizer: Any) -> bool:
        if optimizer not in self._backward_at_call:
            self.optimizers.append(weakref.ref(optimizer))
        elif self.calls_per_step is None and self._backward_at_call[optimizer] != self._phases.backwards:
            self.calls_per_step = self.calls
        self._backward_at_call[optimizer] = self._phases.backwards
        self.calls += 1
        ended = self.calls_per_step is None or self.calls % self.calls_per_step == 0
        if ended:
            for action in self.at_end:
                action()
        self._meter.cut("step")
        if ended:
            self._history.drain_if_long()
        if ended and self.calls_per_step is not None and not self._phases.in_backward:
            self._phases.enter("forward")  # the next step's data is read before its modules are called
        return ended
