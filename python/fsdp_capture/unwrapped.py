"""A script is captured without the wrappers that it puts its model in: a plan takes their place. In fsdp_rehearsal/apply_wrappers.py
this stands where a plan would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn


class Unwrapped:
    applying = False
    applied = False
    shown = "capture"
    subject = "a capture"
    advice = "Let the script train its model by itself: a plan says how it is sharded."
    unanswered = ("set_requires_gradient_sync", "set_is_last_backward", "unshard", "reshard")

    def __init__(self, refuse: Callable[[str], None]) -> None:
        self._refuse = refuse
        self.made_on = ""  # type of the device that the model was on when it was wrapped, or given to its optimizer

    @staticmethod
    def in_place_of(what: str) -> str:
        return f"The model is captured without the script's {what}."

    def at_wrapping(self, module: Any, how: str) -> None:
        """Nothing is applied: only where the model lies by now is noted."""
        self.note_place(module.parameters())

    def note_place(self, parameters: Iterable[Any]) -> None:
        for parameter in parameters:
            self.made_on = self.made_on or parameter.device.type

    def refuse(self, problems: list[tuple[str, str, str]]) -> NoReturn:
        self._refuse(" ".join(part for problem in problems for part in problem[1:]))
        raise SystemExit(3)
