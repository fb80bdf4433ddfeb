"""Captures a script that trains its models in turns: a step is recorded from the end of one step to the end of the next, with
all of its backwards. One earlier step is only watched: the times at which gradients exist show whether their clearing is
known.
"""

from __future__ import annotations

from typing import Any, Optional

from fsdp_capture.pass_rows import cleared_in, given_in
from fsdp_capture.passes import CaptureError, PassWatch, Turns, check_clearings
from fsdp_capture.recorder import Recorder, Recording
from fsdp_capture.structure import structure_of


STEPS = 5  # two to learn the extent of a step, one that is watched, one that passes and one that is recorded


class PassSession:
    def __init__(self, torch: Any, turns: Turns) -> None:
        """A step has ended."""
        self.root = turns.root
        self._turns, self._watch = turns, PassWatch(torch, turns)
        self._watch.looks = True

    def names(self) -> list[str]:
        return self._turns.names

    def models(self) -> list[Any]:
        return list(self.root.children())

    def mark_trained(self, described: dict[str, Any]) -> None:
        """A parameter may require a gradient only in some turns; the optimizer trains it anyway."""
        trained = {id(p) for o in self._turns.optimizers for group in o.param_groups for p in group["params"]}
        names = {name for name, p in self.root.named_parameters() if id(p) in trained}
        for row in described["parameters"]:
            row["trainable"] = row["trainable"] or row["name"] in names

    def backward_begins(self) -> None:
        self._watch.backward_begins()

    def end_look(self) -> None:
        """At the end of the watched step: from now on gradients are dropped."""
        self._watch.looks = False

    def start(self, recorder: Recorder) -> None:
        self._watch.mark = recorder.mark

    def stop(self, recorder: Recorder) -> Recording:
        self._watch.mark = None
        return recorder.stop(said=True)

    def checked(self, clip_grad_norm: Optional[float]) -> Turns:
        """The models. Raises CaptureError if the script did something that is not predicted for them."""
        if self._watch.problem:
            raise CaptureError(self._watch.problem)
        if clip_grad_norm is not None:
            raise CaptureError(
                "The script trains its models by turns and clips gradients, and norms of one model's gradients are not predicted. "
                "Capture it without clip_grad_norm_."
            )
        decays = {bool(group.get("weight_decay")) for o in self._turns.optimizers for group in o.param_groups}
        if len(decays) > 1 and any(type(o).__name__ != "AdamW" for o in self._turns.optimizers):
            raise CaptureError(
                "The script trains its models by turns, some with weight decay and some without, for which Adam and SGD make another list "
                "of gradients. A plan has one optimizer: give all of them some, or none."
            )
        return self._turns

    def check_clearings(self, recording: Recording) -> None:
        structure = structure_of(recording, [], {}, self._turns.names)
        why = check_clearings(self._watch.seen, cleared_in(structure), given_in(structure))
        if why:
            raise CaptureError(why)
