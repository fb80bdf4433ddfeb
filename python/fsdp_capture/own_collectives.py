"""Collectives of the script itself: with its wrappers removed, all that it issues in a forward and a backward. A contrastive
loss gathers features, a loss over several ranks its labels.

Small ones are left out: ranks use them to exchange numbers, and every check of a plan allows them (runs/plan_check.cpp).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

_TOLD = 1024  # bytes


class OwnCollectives:
    def __init__(self, issued: Callable[[], list[dict[str, Any]]]) -> None:
        """`issued`: returns all collectives so far."""
        self.kinds: list[str] = []  # of one micro-batch, in order
        self._issued, self._at, self._bytes = issued, 0, 0

    def begin(self) -> None:
        """A forward begins."""
        self._at = len(self._issued())

    def end(self) -> None:
        """Its backward has ended."""
        large = [each for each in self._issued()[self._at :] if each["payload_bytes"] > _TOLD]
        self.kinds = [str(each["kind"]) for each in large]
        self._bytes = sum(each["payload_bytes"] for each in large)

    def limit(self, ranks: int) -> str:
        """A note for readers of the model. Empty without such collectives."""
        if not self.kinds:
            return ""
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(self.kinds).items()))
        return (
            f"In each micro-batch the script makes collectives of its own ({counts}; {self._bytes:,} bytes in all on {ranks} GPUs): a plan's "
            "time has none of them, and on other numbers of GPUs their results have another size."
        )
