"""The shapes of the training batches: a few steps represent all of them only if their shapes are equal.

A batch is the tensors of a root module's call. If they are keyword arguments, which global hooks do not show, it is those of
the first inner module that is called with tensors by position (an embedding).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

from fsdp_rehearsal.guard import guarded, warn

_MOST_KEPT = 10_000
_MOST_SHOWN = 4

Shapes = tuple[tuple[int, ...], ...]


class Batches:
    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps  # optimizer calls so far
        self._seen: list[tuple[int, str, Shapes]] = []  # calls before it, name of the root, shapes
        self._root: Optional[str] = None  # the root whose batch is not known yet

    def enter_root(self, name: str, args: Any) -> None:
        """A root is called with gradients on."""
        self._root = name
        self.enter(args)

    def enter(self, args: Any) -> None:
        """A module is called."""
        if self._root is not None and len(self._seen) < _MOST_KEPT:
            shapes = tuple(_shapes(args))
            if shapes:
                self._seen.append((self._steps(), self._root, shapes))
                self._root = None

    @guarded("The shapes of batches")
    def check(self, boundaries: list[int]) -> None:
        """Warns if they differ between steps. `boundaries`: optimizer calls at the end of each whole step."""
        per_step: dict[int, list[tuple[str, Shapes]]] = {}
        for calls, root, shapes in self._seen:
            step = sum(calls >= end for end in boundaries)
            if step < len(boundaries):
                per_step.setdefault(step, []).append((root, shapes))
        if len({tuple(sorted(batches)) for batches in per_step.values()}) < 2:
            return
        everywhere = set.intersection(*(set(batches) for batches in per_step.values()))
        all_of_them = {shapes for batches in per_step.values() for _, shapes in batches}
        same = {shapes for _, shapes in everywhere} if len(everywhere) < len(all_of_them) else set()
        distinct = sorted(all_of_them - same if len(all_of_them - same) > 1 else all_of_them, key=_size)
        if len(distinct) < 2:  # not equally often, but of the same shapes
            return
        texts = [" and ".join(str(list(s)) for s in shapes) for shapes in distinct]
        if len(texts) > _MOST_SHOWN:
            texts = [texts[0], "...", *texts[-_MOST_SHOWN + 1 :]]
        warn(
            "batches_differ",
            f"The batch's shapes changed between steps: {', '.join(texts)}. The longest that you have may need more.",
        )


def _shapes(value: Any, depth: int = 0) -> list[tuple[int, ...]]:
    """Shapes of the tensors in a few levels of lists and dictionaries."""
    if hasattr(value, "untyped_storage") and hasattr(value, "shape"):
        return [tuple(int(n) for n in value.shape)] if value.dim() else []
    if depth > 2:
        return []
    if isinstance(value, dict):
        value = list(value.values())
    return [s for v in value for s in _shapes(v, depth + 1)] if isinstance(value, (list, tuple)) else []


def _size(shapes: Shapes) -> tuple[int, Shapes]:
    total = 0
    for shape in shapes:
        count = 1
        for n in shape:
            count *= n
        total += count
    return total, shapes
