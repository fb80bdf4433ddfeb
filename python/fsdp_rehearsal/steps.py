"""Counts optimizer steps, and stops the program after the requested number.

The program's behavior defines a step: all calls of optimizers until an optimizer is called again after another backward. So
several parallel optimizers, one for each stage of a pipeline or for each parameter, make one step, and so do ZeRO-3's calls
for each group. The number of calls in a step is learned in the first one; if only a single step is requested, it ends where
the next forward begins.

If a wrapper of an optimizer continues after the optimizer's step, as ZeRO does to gather the new parameters, the step ends
when the wrapper returns.

An optimizer that was made but not called will allocate its states when it is: a GAN trains its critic five times before its
generator once. So the first step lasts until all have been called, but no longer than `_MOST_CALLS` calls of others, or
`_MOST_SECONDS`; then a warning names the optimizers whose states the figures lack.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, Optional

from fsdp_rehearsal import frames
from fsdp_rehearsal.guard import guarded, warn
from fsdp_rehearsal.history import History
from fsdp_rehearsal.meter import Meter
from fsdp_rehearsal.phases import Phases

_MOST_CALLS = 50
_MOST_SECONDS = 60.0


class Steps:
    def __init__(self, meter: Meter, phases: Phases, history: History, limit: int, stop: Callable[[], None]) -> None:
        self.calls = 0  # of optimizers
        self.calls_per_step: Optional[int] = None  # None until it is known
        self.optimizers: list[Any] = []  # weak references, in the order of their first call
        self.at_end: list[Callable[[], None]] = []
        self._backward_at_call: Any = weakref.WeakKeyDictionary()  # optimizer -> backwards before its last call
        self._made: list[tuple[Any, dict[str, Any]]] = []  # weak references to optimizers, and the lines that made them
        self._repeated_at: Optional[int] = None  # calls before the first repeated one
        self._repeated_since = 0.0
        self._wrapped: Optional[list[Any]] = None  # within the step of a wrapper: the optimizers that it has called
        self._meter, self._phases, self._history = meter, phases, history
        self._limit, self._stop = limit, stop

    def install(self, torch: Any) -> None:
        module = sys.modules["torch.optim.optimizer"]
        module.register_optimizer_step_post_hook(self._called)
        self._watch_construction(module.Optimizer)
        enter = self._phases.enter

        def enter_and_look(phase: str) -> None:
            if phase == "forward" and self._limit == 1 and self.calls > 0 and self.calls_per_step is None:
                if self._gives_up() or not self.awaited():
                    self.calls_per_step = self.calls
                    self._stop()
            enter(phase)

        self._phases.enter = enter_and_look

    def install_wrapper(self, kind: Any) -> None:
        """`kind`: a class with a `step` that calls those of optimizers, and continues after them."""
        real = kind.step

        @functools.wraps(real)
        def step(wrapper, *args, **kwargs):
            if self._wrapped is not None:
                return real(wrapper, *args, **kwargs)
            self._wrapped = []
            try:
                result = real(wrapper, *args, **kwargs)
            finally:
                called, self._wrapped = self._wrapped, None
            for optimizer in called:
                self._called(optimizer, (), {})
            return result

        kind.step = step

    @guarded("The optimizers")
    def _watch_construction(self, kind: Any) -> None:
        real = kind.__init__

        @functools.wraps(real)
        def __init__(optimizer, *args, **kwargs):
            real(optimizer, *args, **kwargs)
            self._made.append((weakref.ref(optimizer), frames.user_frame(2) or {}))

        kind.__init__ = __init__

    @property
    def done(self) -> int:
        """Steps that have ended."""
        return self.calls // self.calls_per_step if self.calls_per_step else min(self.calls, 1)

    def made(self) -> list[Any]:
        """All existing optimizers, including those that have not stepped."""
        return [optimizer for optimizer in (reference() for reference, _ in self._made) if optimizer is not None]

    def awaited(self) -> list[tuple[Any, dict[str, Any]]]:
        """Optimizers that have not been called, with the lines that made them. Leaves out those without trainable parameters,
        or only with parameters that another one has trained."""
        waiting = [(o, line) for o, line in ((r(), line) for r, line in self._made) if o is not None]
        waiting = [(o, line) for o, line in waiting if o not in self._backward_at_call]
        if not waiting:
            return []
        trained = {id(p) for optimizer in list(self._backward_at_call) for p in _trainable(optimizer)}
        return [(o, line) for o, line in waiting if any(id(p) not in trained for p in _trainable(o))]

    @guarded("The optimizers that were not called")
    def close(self) -> None:
        """At the end of the run: settles the extent of a step, and warns of optimizers that were never called."""
        if self.calls_per_step is None:
            self.calls_per_step = self._repeated_at
        for optimizer, line in self.awaited() if self.calls else []:
            parameters = _trainable(optimizer)
            warn(
                "unused_optimizer",
                f"{type(optimizer).__name__} of {len(parameters)} parameters ({sum(p.numel() for p in parameters):,} numbers) "
                f"has not stepped while others stepped {self.calls} times: its gradients and states may not be in these figures. "
                "--steps runs longer.",
                line.get("file"),
                line.get("line"),
            )

    def _called(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._wrapped is not None:
            if all(optimizer is not other for other in self._wrapped):
                self._wrapped.append(optimizer)
            return
        ended = self._count(optimizer)
        if ended and self._limit and self.done >= self._limit and self.calls_per_step:
            self._stop()

    def _gives_up(self) -> bool:
        """Whether to stop waiting for optimizers that were never called."""
        if self._repeated_at is None:
            return False
        return self.calls - self._repeated_at >= _MOST_CALLS or time.monotonic() - self._repeated_since > _MOST_SECONDS

    def _learn(self, optimizer: Any) -> None:
        """Called before an optimizer that has stepped is counted again, after another backward."""
        if self._repeated_at is None:
            self._repeated_at, self._repeated_since = self.calls, time.monotonic()
        if not self.awaited():
            self.calls_per_step = self.calls
        elif self._gives_up():
            self.calls_per_step = self._repeated_at

    @guarded("The end of a step", False)
    def _count(self, optimizer: Any) -> bool:
        if optimizer not in self._backward_at_call:
            self.optimizers.append(weakref.ref(optimizer))
        elif self.calls_per_step is None and self._backward_at_call[optimizer] != self._phases.backwards:
            self._learn(optimizer)
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


def _trainable(optimizer: Any) -> list[Any]:
    return [p for group in getattr(optimizer, "param_groups", []) for p in group["params"] if p.requires_grad]
