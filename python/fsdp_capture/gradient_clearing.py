"""Finds where a script clears the gradients of the previous step: after the optimizer's step; within the next forward, if it
calls zero_grad() between loss and backward; or never, if it zeroes them in place (set_to_none=False).

Recordings drop gradients, so we watch a step before the first one: did gradients exist when its forward began, and when its
backward did? A mark of zero_grad() in the recording shows the place within the forward. A script that clears them by hand
leaves no mark; we assume that it does so before the backward.

Not modeled: the gradients of some parameters are cleared while those of others remain; the majority counts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Optional

from fsdp_capture.passes import CaptureError
from fsdp_capture.recorder import CLEARED
from fsdp_capture.structure import Structure


class ClearingWatch:
    def __init__(self, torch: Any, optimizers: Callable[[], list[Any]]) -> None:
        """`optimizers`: those that have stepped so far."""
        self._torch, self._optimizers = torch, optimizers
        self._in_forward: Optional[bool] = None  # whether there were gradients when the forward began
        self._in_backward: Optional[bool] = None
        self._hook: Any = None
        self._by_module = False  # the last call was that of a module, not of an optimizer

    def mark_clearings(self, recorder: Callable[[], Any]) -> None:
        """From now on the recording marks zero_grad(). `recorder`: returns the one of a recording in progress, or None."""
        for kind in (self._torch.optim.Optimizer, self._torch.nn.Module):
            self._mark(kind, recorder)

    def _mark(self, kind: Any, recorder: Callable[[], Any]) -> None:
        real = kind.zero_grad

        @functools.wraps(real)
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> None:
            recording = recorder()
            if recording is not None:
                recording.mark(CLEARED)
                self._by_module = kind is self._torch.nn.Module
            real(owner, *args, **kwargs)

        kind.zero_grad = zero_grad

    def look(self) -> None:
        """A step has ended; watch the next one."""
        self._hook = self._torch.nn.modules.module.register_module_forward_pre_hook(self._forward_begins)

    def _forward_begins(self, module: Any, args: Any) -> None:
        if self._in_forward is None and self._torch.is_grad_enabled():
            self._in_forward = self._are_there()

    def backward_begins(self) -> None:
        if self._hook is None:
            return
        self._hook.remove()
        self._hook = None
        self._in_backward = self._are_there()

    def gradients(self) -> list[Any]:
        """The current gradients."""
        return [p.grad for p in self._parameters() if p.grad is not None]

    def _parameters(self) -> list[Any]:
        return [p for o in self._optimizers() for group in o.param_groups for p in group["params"]]

    def _are_there(self) -> bool:
        there = sum(gradient.numel() for gradient in self.gradients())
        return 2 * there > sum(p.numel() for p in self._parameters() if p.requires_grad)

    def rows(self, structure: Structure) -> dict[str, Any]:
        """The row of a point. `structure`: of the step as the script runs it."""
        if self._in_backward:
            return {"keeps_gradients": True}
        if not self._in_forward:
            return {}
        call = _call_behind_clearing(structure)
        if call > 0 and self._by_module and structure.clearings:
            raise CaptureError(
                "The script clears gradients by zero_grad() of its model between forward and backward. Under FSDP2 that misses all that is "
                "gathered by then, as the root's parameters are, and these gradients add up from step to step. Call it on the optimizer, or "
                "in front of the forward."
            )
        return {"clears_gradients_at": call}


def _call_behind_clearing(structure: Structure) -> int:
    """The first call after the last zero_grad(); the number of calls if there is none."""
    part = structure.clearings[-1][1] if structure.clearings else len(structure.parts)
    if part >= len(structure.parts):
        return len(structure.calls)
    call, op = structure.parts[part].place
    return call + (op > 0)
