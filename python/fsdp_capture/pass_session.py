"""A capture of a script that trains its models by turns: a step is recorded from one end of a step to the
next, with all of its backwards. A step before it is only looked at: when there are gradients says whether it is known when they go.
"""

from __future__ import annotations

from typing import Any, Optional

from fsdp_capture.pass_rows import cleared_in, given_in
from fsdp_capture.passes import CaptureError, PassWatch, Turns, check_clearings
from fsdp_capture.recorder import Recorder, Recording
from fsdp_capture.structure import structure_of


STEPS = 5  # two until it is known what a step is, one that is looked at, one that passes and one that is recorded


class PassSession:
    def __init__(self, torch: Any, turns: Turns) -> None:
        """Where a step has ended."""
        self.root = turns.root
        self._turns, self._watch = turns, PassWatch(torch, turns)
        self._watch.looks = True

    def names(self) -> list[str]:
        return self._turns.names

    def models(self) -> list[Any]:
        return list(self.root.children())

    def mark_trained(self, described: dict[str, Any]) -> None:
        """Whether a parameter requires a gradient may change by turns: an optimizer trains it all the same."""
        trained = {id(p) for o in self._turns.optimizers for group in o.param_groups for p in group["params"]}
        names = {name for name, p in self.root.named_parameters() if id(p) in trained}
        for row in described["parameters"]:
            row["trainable"] = row["trainable"] or row["name"] in names

    def backward_begins(self) -> None:
        self._watch.backward_begins()

    def end_look(self) -> None:
        """At the end of the step that was looked at: from now on gradients are dropped."""
        self._watch.looks = False

    def start(self, recorder: Recorder) -> None:
        self._watch.mark = recorder.mark

    def stop(self, recorder: Recorder) -> Recording:
        self._watch.mark = None
        return recorder.stop(said=True)

    def checked(self, clip_grad_norm: Optional[float]) -> Turns:
        """The models. Raises CaptureError where the script did what is not predicted of them."""
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
