"""At its first step ZeRO-3 checks that all ranks gather the same parameters in the same order: rank 0 sends its list, and each
rank compares its own. There is no other rank, and the list would equal this rank's; so this rank writes its list as rank 0
does. The same tensors are made and sent."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class _AsRankZero:
    """DeepSpeed's module of communication, for a process that acts as rank 0."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_rank(self, *args: Any, **kwargs: Any) -> int:
        return 0


def install(module: ModuleType) -> None:
    """`module`: deepspeed.runtime.zero.utils, which reads the rank only there and to log."""
    module.dist = _AsRankZero(module.dist)
