"""Reads the metadata of torch.distributed.checkpoint without running code from the file.

`.metadata` is a pickle, and a pickle names functions that its reader calls. The reader here accepts only the classes that such
a file needs, and refuses any other by name. The files that it names must lie in its own folder, and have the promised sizes.
The planner here reads numbers and texts with weights_only=True, unlike PyTorch's own.

Source: torch/distributed/checkpoint/filesystem.py (FileSystemReader), metadata.py, torch 2.11.
"""

from __future__ import annotations

import io
import math
import pathlib
import pickle
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemReader, Metadata
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem

from fsdp_checkpoint.parts import NoCheckpoint
from fsdp_plan_runner.stored import is_natural, json_object

_METADATA = "torch.distributed.checkpoint.metadata"
_CLASSES = {
    _METADATA: {"Metadata", "MetadataIndex", "StorageMeta", "TensorStorageMetadata", "BytesStorageMetadata",
                "TensorProperties", "ChunkStorageMetadata", "_MEM_FORMAT_ENCODING"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StoragePrefix"},
    "torch": {"Size", "dtype", "strided", "contiguous_format"},
    "torch.serialization": {"_get_layout"},
    "collections": {"OrderedDict"},
    "builtins": {"set", "dict", "list", "tuple"},
    "pathlib": {"PosixPath", "PurePosixPath", "Path"},
}
_CLASSES["torch"] |= {str(each).removeprefix("torch.") for each in vars(torch).values() if isinstance(each, torch.dtype)}
INDEX = "fsdp_exec.index"  # For to-dcp: the index of the checkpoint, as bytes of JSON.


class _OnlyMetadata(pickle._Unpickler):
    """Derived from pickle's reader in Python, because its steps can be overridden."""

    dispatch = dict(pickle._Unpickler.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        if name in _CLASSES.get(module, ()):
            return super().find_class(module, name)
        raise NoCheckpoint(f"it names {module}.{name}, which checkpoint metadata never needs. None of it was run.")

    def load_build(self) -> None:
        # A pickle may set the members of an object, but not those of a class or a function, which everybody shares.
        if isinstance(self.stack[-2], type) or callable(self.stack[-2]):
            raise NoCheckpoint("it changes a class, which checkpoint metadata never does. None of it was run.")
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build


def read_metadata(source: pathlib.Path) -> Metadata:
    path = source / ".metadata"
    try:
        metadata = _OnlyMetadata(io.BytesIO(path.read_bytes())).load()
    except NoCheckpoint as refused:
        raise NoCheckpoint(f"{path}: {refused}") from None
    except OSError as error:
        raise NoCheckpoint(f"{path}: {error.strerror}: this is not a PyTorch checkpoint folder.") from None
    except Exception as error:  # noqa: BLE001  A damaged pickle may raise anything.
        raise NoCheckpoint(f"{path}: this is not metadata: {type(error).__name__}: {error}.") from None
    if not isinstance(metadata, Metadata) or not isinstance(metadata.storage_data, dict):
        raise NoCheckpoint(f"{path}: this is not metadata of torch.distributed.checkpoint.")
    try:
        _check(source, metadata)
    except NoCheckpoint as refused:
        raise NoCheckpoint(f"{path}: {refused}") from None
    except (AttributeError, TypeError, ValueError):  # The classes have other members.
        raise NoCheckpoint(f"{path}: this is not metadata of torch.distributed.checkpoint.") from None
    return metadata


def _check(source: pathlib.Path, metadata: Metadata) -> None:
    """Checks that the files have the promised sizes, so that a few bytes cannot request all memory."""
    sizes: dict[str, int] = {}
    for info in metadata.storage_data.values():
        name = pathlib.PurePosixPath(info.relative_path)
        if name.is_absolute() or ".." in name.parts or "\0" in info.relative_path:
            raise NoCheckpoint(f"it names the file {str(name)!r}, which is not in its folder.")
        if info.relative_path not in sizes:
            file = source / name
            if not file.is_file():
                raise NoCheckpoint(f"it names the file {str(name)!r}, which is missing.")
            sizes[info.relative_path] = file.stat().st_size
        if not is_natural(info.offset) or not is_natural(info.length) or \
                info.offset + info.length > sizes[info.relative_path]:
            raise NoCheckpoint(f"it names bytes of the file {str(name)!r} that it does not have.")
    for key, entry in metadata.state_dict_metadata.items():
        if not isinstance(key, str):
            raise NoCheckpoint(f"{key!r} is not the name of a tensor.")
        if isinstance(entry, TensorStorageMetadata):
            _check_chunks(key, entry, metadata.storage_data)


def _check_chunks(key: str, entry: TensorStorageMetadata, storage: dict[MetadataIndex, Any]) -> None:
    elements = 0
    for chunk in entry.chunks:
        here = math.prod(chunk.sizes)
        if len(chunk.sizes) != len(entry.size) or len(chunk.offsets) != len(entry.size) or any(
                offset < 0 or size < 0 or offset + size > whole
                for offset, size, whole in zip(chunk.offsets, chunk.sizes, entry.size, strict=True)):
            raise NoCheckpoint(f"{key!r} has a part outside its shape {list(entry.size)}.")
        if here == 0:
            continue
        info = storage.get(MetadataIndex(key, chunk.offsets))
        if info is None:
            raise NoCheckpoint(f"no file has the part of {key!r} at {list(chunk.offsets)}.")
        is_plain = not getattr(info, "transform_descriptors", None)  # Otherwise compressed.
        if is_plain and info.length < here * entry.properties.dtype.itemsize:
            raise NoCheckpoint(f"the part of {key!r} at {list(chunk.offsets)} has {info.length} bytes, too few for "
                               f"{list(chunk.sizes)}.")
        elements += here
    if elements != math.prod(entry.size):
        raise NoCheckpoint(f"{key!r} has {math.prod(entry.size)} elements, and its parts have {elements}.")


class SafeReader(FileSystemReader):
    """PyTorch's reader with this metadata in place of its own."""

    def __init__(self, source: pathlib.Path, metadata: Metadata | None = None) -> None:
        """`metadata`: the result of read_metadata, if it is known already."""
        super().__init__(source)
        self._source = source
        self._metadata = metadata
        self._refused: NoCheckpoint | None = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        # dcp.load ignores an exception and asks again for its rank's metadata. set_up_storage_reader then reports the reason.
        if self._refused and "rank" in kwargs:
            return Metadata({})
        try:
            metadata = self._metadata or read_metadata(self._source)
        except NoCheckpoint as error:
            self._refused = error
            raise
        if getattr(metadata, "storage_meta", None) is not None:
            metadata.storage_meta.load_id = self.load_id
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self._refused:
            raise self._refused
        super().set_up_storage_reader(metadata, is_coordinator, *args, **kwargs)


class SafePlanner(DefaultLoadPlanner):
    """PyTorch's planner for values other than tensors: numbers, texts, and lists of them; it runs no code."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        try:
            read = torch.load(value, weights_only=True, map_location="cpu")
        except Exception as error:  # noqa: BLE001  What a stranger wrote may raise anything.
            name = read_item.dest_index.fqn
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise NoCheckpoint(f"{name!r} is not read, because it may run what it names: {reason}") from None
        plain = io.BytesIO()
        torch.save(read, plain)  # It has only known classes now.
        plain.seek(0)
        super().load_bytes(read_item, plain)


def value_of(source: pathlib.Path, metadata: Metadata, key: str) -> Any:
    """A number or text that a script has saved next to its tensors; None if it has none under that name."""
    info = metadata.storage_data.get(MetadataIndex(key))
    if info is None:
        return None
    with open(source / info.relative_path, "rb") as file:
        file.seek(info.offset)
        data = file.read(info.length)
    try:
        return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except Exception:  # noqa: BLE001 Other classes than numbers and tensors.
        return None


def index_before(source: pathlib.Path, metadata: Metadata) -> dict[str, Any]:
    """The index that to-dcp stored. Empty if another program wrote the checkpoint."""
    if MetadataIndex(INDEX) not in metadata.storage_data:
        return {}
    text = value_of(source, metadata, INDEX)
    if not isinstance(text, str):
        raise NoCheckpoint(f"{source}: {INDEX} is not a file of to-dcp.")
    return json_object(text, f"{source}: {INDEX}")


def learning_rate_of(source: pathlib.Path, metadata: Metadata) -> float | None:
    """The learning rate of a parameter group of the optimizer, as get_state_dict saves it."""
    for key in sorted(metadata.state_dict_metadata):
        if key.startswith("optim.param_groups") and key.endswith(".lr"):
            rate = value_of(source, metadata, key)
            if isinstance(rate, (int, float)) and math.isfinite(rate) and rate >= 0:
                return float(rate)
    return None
