"""Copies on the host of the small device tensors whose values are known."""

from __future__ import annotations

from typing import Any, Optional

LARGEST_INTEGERS = 64 << 20  # bytes of one storage: one_hot of 32,768 tokens, 8 choices, 32 experts
LARGEST_FLOATS = 256 << 10  # floating point copies serve only counts and masks that were cast


class KnownCopies:
    """One host copy per device storage, so that a view of a known tensor is known, and what is written through it too.

    A copy lives as long as the storage: a weak reference tells when that has gone.
    """

    def __init__(self, torch: Any) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        self._torch = torch
        self._weak = StorageWeakRef
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._storages: dict[int, tuple[Any, Any, Any]] = {}
        self._any_marks = False
        self._sweep_at = 4096

    def on_device(self, value: Any) -> bool:
        """Whether `value` is a device tensor itself, and not a DTensor or another wrapper around some."""
        return type(value) in self._plain and value.is_cuda

    def has_room(self, tensor: Any, size: int = -1) -> bool:
        """Whether a copy of so many bytes would be kept; without `size`, of the tensor's own."""
        if tensor.is_complex():
            return False
        limit = LARGEST_FLOATS if tensor.is_floating_point() else LARGEST_INTEGERS
        return (size if size >= 0 else tensor.numel() * tensor.element_size()) <= limit

    def of(self, tensor: Any) -> Optional[Any]:
        """The copy of a device tensor; nothing when its value is not known."""
        if not self.on_device(tensor):
            return None
        if tensor.numel() == 0:  # nothing in it is unknown
            return self._torch.empty(tensor.size(), dtype=tensor.dtype, device="cpu")
        entry = self._storages.get(tensor.untyped_storage()._cdata)
        if entry is None:
            return None
        empty = self._torch.empty(0, dtype=tensor.dtype, device="cpu")
        return empty.set_(entry[1], tensor.storage_offset(), tensor.size(), tensor.stride())

    def mark_of(self, value: Any) -> Optional[Any]:
        """The mark of a known device tensor: one that it was learned with."""
        if not self._any_marks or not self.on_device(value):
            return None
        entry = self._storages.get(value.untyped_storage()._cdata)
        return entry[2] if entry is not None else None

    def learn(self, tensor: Any, value: Any, mark: Any = None, is_alone: bool = False) -> None:
        """Notes what a device tensor holds, and marks it. For a storage that is not known yet, only the whole can be
        learned, unless nobody else has a part of it (`is_alone`): results that were made larger than they turned out to
        be."""
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0 or not self.has_room(tensor, storage.nbytes()):
            return
        if storage._cdata not in self._storages:
            if tensor.numel() * tensor.element_size() != storage.nbytes() and not is_alone:
                return
            self._sweep()
            self._storages[storage._cdata] = (self._weak(storage), self._torch.UntypedStorage(storage.nbytes()), mark)
            self._any_marks = self._any_marks or mark is not None
        copy = self.of(tensor)
        if copy is not None and copy.data_ptr() != value.data_ptr():
            copy.copy_(value)

    def forget(self, tensor: Any) -> None:
        """Something unknown was written there."""
        if self.on_device(tensor):
            self._storages.pop(tensor.untyped_storage()._cdata, None)

    def _sweep(self) -> None:
        if len(self._storages) < self._sweep_at:
            return
        self._storages = {key: entry for key, entry in self._storages.items() if not entry[0].expired()}
        self._sweep_at = max(4096, 2 * len(self._storages))
