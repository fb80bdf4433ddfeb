"""ZeRO-3 checks at its first step that all ranks gather the same parameters in the same order: rank 0 sends its list, and each
rank holds its own against it. No other rank is there, and what would be sent is what this rank has; so it writes its list down as
rank 0 does. The same tensors are made and sent."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class _AsRankZero:
    """DeepSpeed's module of communication, for one whose rank is 0."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_rank(self, *args: Any, **kwargs: Any) -> int:
        return 0


def install(module: ModuleType) -> None:
    """`module`: deepspeed.runtime.zero.utils, which asks for the rank there and to log."""
    module.dist = _AsRankZero(module.dist)
