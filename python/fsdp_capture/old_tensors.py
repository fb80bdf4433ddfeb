"""Finds tensors that the script made before the recorded steps and that still exist: a data set on the GPU of which each step
uses a slice, running means of a loss, copies of weights in a list. No module refers to them, so only the allocator knows them.
They are not sharded: each GPU has a full copy.

A block counts if it was allocated before the first recorded step and not freed by the end of the last one. This excludes
tensors that each step makes anew, whether they are freed in the step or, like the loss of the previous step, in the next one.

Tensors that the script made from its parameters after it passed them to an optimizer, such as an average of weights, are made
from shards under a plan, and have their sizes. We recognize them if there are tensors of the shapes of all parameters, or of
all trained ones; but not if such copies existed before, on any device, since the script may have moved them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any, Optional

_LARGE = 1 << 20  # bytes from which on they are reported


class OldTensors:
    def __init__(self, torch: Any, history: Any, root: Any, made_at: Optional[int]) -> None:
        """The end of the last step before the recorded ones. `made_at`: the number of the allocator's events when the
        parameters were passed to an optimizer."""
        self._torch, self._history, self._root, self._made_at = torch, history, root, made_at
        history.drain()
        self._position = history.ledger.position
        self._whole = self._copied = 0  # bytes

    def rows(self, known: Iterable[Any]) -> list[dict[str, Any]]:
        """As buffers of a captured model. `known`: tensors that are counted elsewhere."""
        gc.collect()
        # Workspaces of matrix products; a prediction counts its own.
        clear = getattr(self._torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        self._history.drain()
        counted = {int(t.untyped_storage().data_ptr()) for t in known}
        blocks = {
            address: block
            for address, block in self._history.ledger.alive_since(self._position).items()
            if address not in counted and block.size > 0
        }
        copies = self._copies(blocks)
        copied = {address for address, _ in copies}
        sizes = [block.size for address, block in blocks.items() if address not in copied]
        self._whole, self._copied = sum(sizes), sum(blocks[address].size for address in copied)
        rows = [_row(f"script/{i}", [size], "uint8") for i, size in enumerate(sizes)]
        return rows + [{**row, "name": f"{row['name']}/{i}"} for i, (_, row) in enumerate(copies)]

    def _copies(self, blocks: dict[int, Any]) -> list[tuple[int, dict[str, Any]]]:
        """Addresses of copies of the parameters, and their rows."""
        made = {a: block for a, block in blocks.items() if self._made_at is not None and block.position >= self._made_at}
        tensors = self._tensors_at(made)
        free = sorted(tensors, key=lambda address: made[address].position)
        parameters = list(self._root.named_parameters())
        found: list[tuple[int, dict[str, Any]]] = []
        for each in (parameters, [(name, p) for name, p in parameters if p.requires_grad]):
            while len(each) > 1:
                copy = _one_of_each(each, free, tensors)
                if copy is None:
                    break
                for (name, parameter), address in zip(each, copy):
                    dtype = str(tensors[address][1]).removeprefix("torch.")
                    row = _row("copies", list(parameter.shape) or [1], dtype)
                    found.append((address, {**row, "copy_of": name}))
                free = [address for address in free if address not in copy]
        return found

    def _tensors_at(self, blocks: dict[int, Any]) -> dict[int, tuple[tuple[int, ...], Any]]:
        """Shape and dtype of the tensors that fill blocks, by address."""
        found = {}
        for each in gc.get_objects() if blocks else ():
            if type(each) is self._torch.Tensor and each.is_cuda and each.layout == self._torch.strided:
                block = blocks.get(each.data_ptr())
                if block is not None and block.size == each.numel() * each.element_size():
                    found[each.data_ptr()] = (tuple(each.shape), each.dtype)
        return found

    def limits(self) -> list[str]:
        """A note for readers about these tensors."""
        told = []
        if self._whole >= _LARGE:
            told.append(
                f"Beside its model the script keeps tensors of {self._whole / 2**20:,.1f} MiB on the GPU, a data set for one, which a plan does "
                "not shard. Each GPU has all of them."
            )
        if self._copied >= _LARGE:
            told.append(
                f"The script keeps copies of its parameters, averages for one: {self._copied / 2**20:,.1f} MiB. A GPU has as much of them as of "
                "the parameters."
            )
        return told


def are_copied(torch: Any, parameters: list[Any]) -> bool:
    """Whether more than one parameter requires gradients and other tensors exist with the shapes of all of them."""
    trained = [("", p) for p in parameters if p.requires_grad]
    own = {id(p) for p in parameters}
    others = [t for t in gc.get_objects() if type(t) in (torch.Tensor, torch.nn.Parameter) and id(t) not in own]
    tensors = {i: (tuple(t.shape), t.dtype) for i, t in enumerate(others)}
    return len(trained) > 1 and _one_of_each(trained, list(tensors), tensors) is not None


def _one_of_each(parameters: list[tuple[str, Any]], free: list[int], tensors: dict[int, Any]) -> Optional[list[int]]:
    """For each parameter the address of a tensor of its shape, used only once; None if there are too few."""
    left, taken = list(free), []
    for _, parameter in parameters:
        address = next((a for a in left if tensors[a][0] == tuple(parameter.shape)), None)
        if address is None:
            return None
        left.remove(address)
        taken.append(address)
    return taken


def _row(name: str, shape: list[int], dtype: str) -> dict[str, Any]:
    return {"name": f"beside/{name}", "shape": shape, "dtype": dtype, "persistent": False, "registered": False}
