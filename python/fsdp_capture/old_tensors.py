"""Tensors that the script has made before the recorded steps and keeps: a data set on the GPU of which each step takes a slice,
running means of a loss, copies of weights in a list. No module leads to them, so that only the allocator knows of them. Nothing
shards them: each GPU has them whole.

A block counts that was allocated before the first recorded step, and has not been freed when the last one is over. What is made
anew in each step is no such block, whether it is freed in the step or, as the loss of the step before, in the next one.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

_LARGE = 1 << 20  # bytes from which on they are told of


class OldTensors:
    def __init__(self, torch: Any, history: Any) -> None:
        """Where the last step in front of the recorded ones has ended."""
        self._torch, self._history = torch, history
        history.drain()
        self._position = history.ledger.position
        self._rows: list[dict[str, Any]] = []

    def rows(self, known: Iterable[Any]) -> list[dict[str, Any]]:
        """As buffers of a captured model. `known`: tensors that are counted elsewhere."""
        gc.collect()
        # Of products; a prediction has its own.
        clear = getattr(self._torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        self._history.drain()
        counted = {int(t.untyped_storage().data_ptr()) for t in known}
        sizes = [
            block.size
            for address, block in self._history.ledger.alive_since(self._position).items()
            if address not in counted and block.size > 0
        ]
        self._rows = [
            {"name": f"beside/script/{i}", "shape": [size], "dtype": "uint8", "persistent": False, "registered": False}
            for i, size in enumerate(sizes)
        ]
        return self._rows

    def limits(self) -> list[str]:
        """What a reader is told of them."""
        size = sum(row["shape"][0] for row in self._rows)
        if size < _LARGE:
            return []
        return [
            f"Beside its model the script keeps tensors of {size / 2**20:,.1f} MiB on the GPU, a data set for one, which a plan does not "
            "shard. Each GPU has all of them."
        ]
