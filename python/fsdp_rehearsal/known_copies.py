"""Host copies of the small device tensors whose values are known."""

from __future__ import annotations

from typing import Any, Optional

LARGEST_INTEGERS = 64 << 20  # bytes of one storage: one_hot of 32,768 tokens, 8 choices, 32 experts
LARGEST_FLOATS = 256 << 10  # floating point copies are needed only for counts and masks that were cast


class KnownCopies:
    """One host copy for each device storage, so that a view of a known tensor is known, and so are writes through it.

    A copy lives as long as the storage; a weak reference detects its end. Storages are found by their address: autograd does not
    add in place to a tensor whose storage has been asked for in Python, so that of an unknown tensor never is.
    """

    def __init__(self, torch: Any) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        self._torch = torch
        self._weak = StorageWeakRef
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._storages: dict[int, tuple[Any, Any, Any]] = {}  # By the address of the storage.
        self._any_marks = False
        self._sweep_at = 4096

    def on_device(self, value: Any) -> bool:
        """Whether `value` is a device tensor itself, not a DTensor or another wrapper."""
        return type(value) in self._plain and value.is_cuda

    def has_room(self, tensor: Any, size: int = -1) -> bool:
        """Whether a copy of `size` bytes would be stored; defaults to the tensor's own size."""
        if tensor.is_complex():
            return False
        limit = LARGEST_FLOATS if tensor.is_floating_point() else LARGEST_INTEGERS
        return (size if size >= 0 else tensor.numel() * tensor.element_size()) <= limit

    def of(self, tensor: Any) -> Optional[Any]:
        """The copy of a device tensor; None if its value is unknown."""
        if not self.on_device(tensor):
            return None
        if tensor.numel() == 0:  # an empty tensor is known
            return self._torch.empty(tensor.size(), dtype=tensor.dtype, device="cpu")
        entry = self._entry_of(tensor)
        if entry is None:
            return None
        empty = self._torch.empty(0, dtype=tensor.dtype, device="cpu")
        return empty.set_(entry[1], tensor.storage_offset(), tensor.size(), tensor.stride())

    def _address(self, tensor: Any) -> int:
        """That of its storage; 0 if it has no memory."""
        address = tensor.data_ptr()
        return address - tensor.storage_offset() * tensor.element_size() if address else 0

    def _entry_of(self, tensor: Any) -> Optional[tuple[Any, Any, Any]]:
        address = self._address(tensor)
        entry = self._storages.get(address) if address else None
        if entry is not None and entry[0].expired():
            del self._storages[address]
            return None
        # A storage that lives on without its memory leaves the address to another one.
        is_other = entry is not None and entry[0].cdata != tensor.untyped_storage()._cdata
        return None if is_other else entry

    def mark_of(self, value: Any) -> Optional[Any]:
        """The mark of a known device tensor: the one that it was learned with."""
        if not self._any_marks or not self.on_device(value):
            return None
        entry = self._entry_of(value)
        return entry[2] if entry is not None else None

    def learn(self, tensor: Any, value: Any, mark: Any = None, is_alone: bool = False) -> None:
        """Stores the value of a device tensor, and marks it. For an unknown storage, only the whole can be learned, unless no
        other tensor shares it (`is_alone`): results that were allocated larger than they turned out to be."""
        if not self.has_room(tensor) or not self._address(tensor):
            return
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0 or not self.has_room(tensor, storage.nbytes()):
            return
        if self._entry_of(tensor) is None:
            if tensor.numel() * tensor.element_size() != storage.nbytes() and not is_alone:
                return
            self._sweep()
            self._storages[self._address(tensor)] = (self._weak(storage), self._torch.UntypedStorage(storage.nbytes()), mark)
            self._any_marks = self._any_marks or mark is not None
        copy = self.of(tensor)
        if copy is not None and copy.data_ptr() != value.data_ptr():
            copy.copy_(value)

    def forget(self, tensor: Any) -> None:
        """Forgets a tensor after an unknown write."""
        if self.on_device(tensor):
            self._storages.pop(self._address(tensor), None)

    def _sweep(self) -> None:
        if len(self._storages) < self._sweep_at:
            return
        self._storages = {key: entry for key, entry in self._storages.items() if not entry[0].expired()}
        self._sweep_at = max(4096, 2 * len(self._storages))
