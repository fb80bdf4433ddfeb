"""Removes the wrappers of a script's model for the capture: a plan replaces them. fsdp_rehearsal/apply_wrappers.py uses this
in place of a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Optional


class Unwrapped:
    applying = False
    applied = False
    is_without_plan = True
    shown = "capture"
    subject = "a capture"
    advice = "Let the script train its model by itself: a plan says how it is sharded."
    unanswered = ("unshard", "reshard")

    def __init__(self, refuse: Callable[[str], None], position: Callable[[], int]) -> None:
        """`position`: returns the number of the allocator's events."""
        self._refuse, self._position = refuse, position
        self.made_on = ""  # type of the model's device when it was wrapped, or passed to its optimizer
        self.made_at: Optional[int] = None  # `position` at that time: from here on a plan's parameters are shards
        self.says_last_micro_batch = False  # the script marks the last micro-batch of its step

    @staticmethod
    def in_place_of(what: str) -> str:
        return f"The model is captured without the script's {what}."

    def at_wrapping(self, module: Any, how: str) -> None:
        """Applies no wrapper: only records the model's device."""
        self.note_place(module.parameters())

    def note_place(self, parameters: Iterable[Any]) -> None:
        for parameter in parameters:
            self.made_on = self.made_on or parameter.device.type
            self.made_at = self._position() if self.made_at is None else self.made_at

    def refuse(self, problems: list[tuple[str, str, str]]) -> NoReturn:
        self._refuse(" ".join(part for problem in problems for part in problem[1:]))
        raise SystemExit(3)
