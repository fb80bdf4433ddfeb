"""Ends loops that wait for a value of the device that never comes.

`while not finished.all()` reads the device, which is all zero, and would read forever. So we count reads by their place in the
code. If a `while` loop has read often without an optimizer step in between, it gets another answer once: true, 1, and then
other numbers; the record has the place. A loop that no answer ends gets an exception that names its line, after seconds. Reads
of a `for` loop are not changed, since its iterable ends it.

Sources: the bytecode distinguishes the kinds of loops: a `for` jumps back to FOR_ITER (module dis).

Not modeled: a `for` over an endless iterable; recursion; code that torch.compile has compiled.
"""

from __future__ import annotations

import dis
import struct
import sys
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Optional

from fsdp_rehearsal import frames
from fsdp_rehearsal.guard import warn

_MANY = 4096  # reads of one place without a step; or
_SOME, _SECONDS = 256, 20.0  # fewer, but over this time
_AFTER_AN_ANSWER = 64  # further reads that show that an answer has not ended the loop
_NUMBERS = (1.0, -1.0, 1e9, -1e9)
_GENERATED = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")


class EndlessLoop(RuntimeError):
    """A loop reads a value from the device that a rehearsal does not compute, and no answer ends it."""


class _Place:
    """A reading place: how often, and since when."""

    def __init__(self, now: float) -> None:
        self.asked = 0
        self.since = now
        self.answered = 0
        self.asked_at_answer = 0


class Loops:
    def __init__(self, steps: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._steps, self._clock = steps, clock
        self._step = -1
        self._places: dict[tuple[CodeType, int], _Place] = {}

    def answer(self, is_bool: bool) -> Optional[float]:
        """The value that the running code gets instead of zero. None for zero. Called before each read of one unknown
        value."""
        if self._steps() != self._step:
            self._step = self._steps()
            self._places.clear()
        frame = _asking(sys._getframe(1))
        if frame is None:
            return None
        place = self._places.setdefault((frame.f_code, frame.f_lasti), _Place(self._clock()))
        place.asked += 1
        if not self._is_stuck(place):
            return None
        while frame is not None and (loop := _loop_of(frame)) is None:
            frame = frame.f_back
        if frame is None or loop != "while":
            return None
        return self._end(place, is_bool)

    def _is_stuck(self, place: _Place) -> bool:
        if place.answered:
            return place.asked - place.asked_at_answer >= _AFTER_AN_ANSWER
        return place.asked >= _MANY or place.asked >= _SOME and self._clock() - place.since > _SECONDS

    def _end(self, place: _Place, is_bool: bool) -> float:
        at = frames.user_frame(4) or {"file": None, "line": None}
        times = f"{place.asked:,} times without a step"
        answers = (1.0,) if is_bool else _NUMBERS
        if place.answered == len(answers):
            raise EndlessLoop(
                f"A loop read the same value of the device {times}, and no answer ends it: values are not computed in a rehearsal"
            )
        if place.answered == 0:
            told = "true" if is_bool else "1"
            warn(
                "endless_loop",
                f"A loop read the same value of the device {times} and always found {'false' if is_bool else 0}, since values "
                f"are not computed. It was told {told} to end it; a real run may go on longer, or end before.",
                at["file"],
                at["line"],
            )
        place.asked_at_answer = place.asked
        place.answered += 1
        return answers[place.answered - 1]


def as_bytes(value: float, is_floating_point: bool, size: int) -> bytes:
    """A number in the device's representation of `size` bytes."""
    if is_floating_point:
        if size == 2:  # the upper half of a float: for bfloat16 the number; for a half some other number of the same sign
            return struct.pack("<f", value)[2:]
        return struct.pack("<d" if size == 8 else "<f", value)
    largest = (1 << 8 * size - 1) - 1
    return struct.pack("<q", max(-largest, min(largest, int(value))))


def _asking(frame: Optional[FrameType]) -> Optional[FrameType]:
    """The innermost frame that is neither ours nor PyTorch's."""
    while frame is not None and frames.kind_of(frame.f_code.co_filename) not in (frames.USER, frames.LIBRARY):
        frame = frame.f_back
    return frame


def _loop_of(frame: FrameType) -> Optional[str]:
    """The kind of the innermost loop around a frame; None if there is none, or if the frame itself is part of a loop."""
    if frame.f_code.co_name in _GENERATED:
        return None
    around = [(end - begin, kind) for begin, end, kind in _loops(frame.f_code) if begin <= frame.f_lasti <= end]
    return min(around)[1] if around else None


_known: dict[CodeType, list[tuple[int, int, str]]] = {}


def _loops(code: CodeType) -> list[tuple[int, int, str]]:
    """Start and end of each loop in the bytecode, and whether it is a "for" or a "while"."""
    if code not in _known:
        instructions = list(dis.get_instructions(code))
        at: dict[int, str] = {}
        for later, i in zip(instructions[1:] + instructions[-1:], instructions):
            at[i.offset] = later.opname if i.opname == "EXTENDED_ARG" else i.opname
        jumps = [i for i in instructions if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs]
        found: dict[int, tuple[int, int, str]] = {}
        for jump in jumps:
            begin = jump.argval
            if begin < jump.offset:
                # Every `continue` jumps back, too: the last jump is the end of the loop.
                found[begin] = (begin, jump.offset, "for" if at.get(begin) in ("FOR_ITER", "SEND") else "while")
        _known[code] = list(found.values())
    return _known[code]

