"""Finds tensors on the GPU that are neither parameters nor buffers of the model: other tensors of its modules, such as the
scales and tables of bitsandbytes' 4-bit weights or a cached mask, and all tensors of other models, such as the reference of a
DPO or a teacher. They are not sharded, so each GPU has a full copy. The same applies to a batch that the script makes once and
passes to the model in each step.

The recording of a step includes tensors that a module stores for that step only. So a tensor counts here if the module has the
same one when the recordings begin and when they have ended.

Not modeled: tensors that only a parameter's attributes lead to, since fully_shard makes other parameters; tensors that no
module leads to.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any

from fsdp_capture.model_file import CaptureError
from fsdp_rehearsal.modules import class_name
from fsdp_rehearsal.trained_model import outermost

OF_BATCH = "beside/batch/"  # prefix of the names of the script's batches
_LARGE = 1 << 20  # bytes of another model from which on it is reported
_DEPTH = 4  # of objects in objects


class HeldTensors:
    def __init__(self, torch: Any, root: Any) -> None:
        """Collects the tensors on a GPU that exist now."""
        self._torch = torch
        self._own = set(torch.nn.Module().__dict__)
        registered = [*root.parameters(), *root.buffers()]
        self._seen = {_address(t) for t in registered}
        self._found = {name: weakref.ref(t) for name, t in self._below(root)}
        self._given: dict[int, tuple[Any, int]] = {}  # id of a tensor -> the tensor, and the step in which it was first passed
                                                      # on
        self._of_others = _titled([(class_name(model), self._all_of(model)) for model in outermost()])

    def note_given(self, tensors: list[Any], step: int) -> None:
        """The model is about to receive these in a step."""
        for tensor in tensors:
            if tensor.is_cuda and tensor.grad_fn is None and tensor.numel() > 0 and _address(tensor) not in self._seen:
                first, _ = self._given.get(id(tensor), (None, None))
                if first is None or first() is not tensor:
                    self._given[id(tensor)] = (weakref.ref(tensor), step)

    def _given_again(self, step: int) -> dict[str, Any]:
        """Tensors that were passed on in a step before `step` and still exist."""
        found, seen = {}, set()
        for reference, first in self._given.values():
            tensor = reference()
            if tensor is not None and first < step and _address(tensor) not in seen:
                seen.add(_address(tensor))
                found[f"{OF_BATCH}{len(found)}"] = reference
        return found

    def tensors(self, step: int) -> dict[str, Any]:
        """Those that still exist, by name. `step`: the one that has ended."""
        found = {**self._found, **self._given_again(step)}
        for title, tensors in self._of_others.items():
            found.update({f"beside/{title}/{name}".replace(".", "/"): reference for name, reference in tensors.items()})
        tensors = {name: reference() for name, reference in found.items()}
        return {name: t for name, t in tensors.items() if t is not None}

    @staticmethod
    def rows(tensors: dict[str, Any]) -> list[dict[str, Any]]:
        """As buffers of a captured model."""
        return [_row(name, t) for name, t in tensors.items()]

    def limits(self) -> list[str]:
        """A note for readers about other models that still exist."""
        told = []
        for title, tensors in self._of_others.items():
            size = sum(t.untyped_storage().nbytes() for t in (reference() for reference in tensors.values()) if t is not None)
            if size >= _LARGE:
                told.append(
                    f"Beside the model that it trains, the script keeps {title} on the GPU: {size / 2**20:,.1f} MiB, which a plan does "
                    "not shard. Each GPU has all of it."
                )
        return told

    def _all_of(self, model: Any) -> dict[str, Any]:
        """Names and weak references of tensors on a GPU that the model has and the trained one does not. Raises CaptureError
        for a tensor of unknown size."""
        found = {}
        is_wrapper = self._torch.utils._python_dispatch.is_traceable_wrapper_subclass
        registered = itertools.chain(model.named_parameters(), model.named_buffers())
        for name, tensor in registered:
            if tensor.is_cuda and is_wrapper(tensor):
                raise CaptureError(
                    f'Beside the model that it trains, the script keeps {class_name(model)} on the GPU. Its "{name}" is a '
                    f"{type(tensor.data).__name__}, which holds other tensors than it shows: its bytes are not known."
                )
            if tensor.is_cuda and tensor.numel() > 0 and _address(tensor) not in self._seen:
                self._seen.add(_address(tensor))
                found[name] = weakref.ref(tensor)
        found.update({name: weakref.ref(tensor) for name, tensor in self._below(model)})
        return found

    def _below(self, root: Any) -> Iterator[tuple[str, Any]]:
        for module_name, module in root.named_modules():
            for key, value in list(vars(module).items()):
                if key in self._own:
                    continue
                for path, tensor in self._tensors(value, key, 0):
                    address = _address(tensor)
                    if address not in self._seen:
                        self._seen.add(address)
                        yield f"{module_name}.{path}" if module_name else path, tensor

    def _tensors(self, value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
        if isinstance(value, self._torch.Tensor):
            if value.is_cuda and value.grad_fn is None and value.numel() > 0:
                yield path, value
            return
        for key, member in self._members(value) if depth < _DEPTH else ():
            yield from self._tensors(member, f"{path}/{key}".replace(".", "_"), depth + 1)

    def _members(self, value: Any) -> list[tuple[Any, Any]]:
        if isinstance(value, dict):
            return [(key, member) for key, member in value.items() if isinstance(key, (str, int))]
        if isinstance(value, (list, tuple)):
            return list(enumerate(value))
        kind = type(value)
        if isinstance(value, (type, self._torch.nn.Module)) or callable(value) or kind.__module__.partition(".")[0] == "torch":
            return []
        return list(getattr(value, "__dict__", {}).items())


def _titled(models: list[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The models that have tensors, by unique names. The order of modules is arbitrary, and every run of a script must give
    the same names."""
    count: dict[str, int] = {}
    result = {}
    for kind, tensors in sorted((each for each in models if each[1]), key=lambda each: (each[0], len(each[1]))):
        count[kind] = count.get(kind, 0) + 1
        result[f"{kind}_{count[kind]}" if count[kind] > 1 else kind] = tensors
    return result


def _address(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _row(name: str, tensor: Any) -> dict[str, Any]:
    size = tensor.untyped_storage().nbytes()
    is_whole = tensor.numel() * tensor.element_size() == size
    return {
        "name": name,
        "shape": list(tensor.shape) if is_whole else [size],
        "dtype": str(tensor.dtype)[6:] if is_whole else "uint8",
        "persistent": False,
        "registered": False,
    }
