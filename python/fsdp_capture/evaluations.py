"""Evaluations between the steps of a script, which a recording may include, since it begins after the optimizer's step.

An evaluation after each step is part of the step, and so are its gathers. An occasional one is not: we record again without
it. Nor is one before a micro-batch, because a captured step is replayed several times as a micro-batch.
"""

from __future__ import annotations

from typing import Any

from fsdp_capture.passes import CaptureError

_MOST_TRIES = 4


class EvaluationWatch:
    def __init__(self, phases: Any) -> None:
        self._phases = phases
        self._at_steps: list[int] = []  # evaluations by the end of each step
        self._before = 0  # evaluations when the recording began
        self._left_out = 0  # recordings

    def step_ended(self) -> None:
        self._at_steps.append(self._phases.evaluations)

    def recording_begins(self) -> None:
        self._before = self._phases.evaluations

    def is_to_be_left_out(self, accumulation: int) -> bool:
        """Whether the recording that has ended must be repeated without the evaluation."""
        if self._phases.evaluations == self._before or self._left_out >= _MOST_TRIES:
            return False
        if accumulation == 1 and self._is_in_each_step():
            return False
        self._left_out += 1
        return True

    def check(self, accumulation: int) -> None:
        """Raises CaptureError if each step of several micro-batches has one."""
        if accumulation > 1 and self._is_in_each_step():
            raise CaptureError(
                f"The script evaluates its model after each step of {accumulation} micro-batches. The capture has one micro-batch, which a plan "
                "plays several times. Leave the evaluation out for the capture, or let it come every few steps."
            )

    def _is_in_each_step(self) -> bool:
        """Parts of a model are recognized only after recordings begin, so it takes two steps to decide."""
        since = max((step for step, count in enumerate(self._at_steps) if count == 0), default=0)
        counts = self._at_steps[since:]
        return (since <= 1 or len(counts) > 2) and all(one < other for one, other in zip(counts, counts[1:]))
