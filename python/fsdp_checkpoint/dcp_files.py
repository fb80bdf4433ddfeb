"""The metadata of torch.distributed.checkpoint, read without running what a stranger wrote into it.

`.metadata` is a pickle, and a pickle names functions that its reader calls. The reader here finds the classes alone that such
a file needs, and refuses any other by its name. Files that it names lie in its own folder.

Source: torch/distributed/checkpoint/filesystem.py (FileSystemReader), metadata.py, torch 2.11.
"""

from __future__ import annotations

import io
import json
import pathlib
import pickle
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader, Metadata
from torch.distributed.checkpoint.metadata import MetadataIndex

from fsdp_checkpoint.parts import NoCheckpoint

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
INDEX = "fsdp_exec.index"  # Of to-dcp: the index of the checkpoint, as bytes of JSON.


class _OnlyMetadata(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _CLASSES.get(module, ()):
            return super().find_class(module, name)
        raise NoCheckpoint(f"it names {module}.{name}, which checkpoint metadata never needs. None of it was run.")


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
    for info in metadata.storage_data.values():
        name = pathlib.PurePosixPath(str(getattr(info, "relative_path", "..")))
        if name.is_absolute() or ".." in name.parts:
            raise NoCheckpoint(f"{path}: it names the file {str(name)!r}, which is not in its folder.")
    return metadata


class SafeReader(FileSystemReader):
    """PyTorch's reader with this metadata in the place of its own."""

    def __init__(self, source: pathlib.Path) -> None:
        super().__init__(source)
        self._source = source

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        metadata = read_metadata(self._source)
        if getattr(metadata, "storage_meta", None) is not None:
            metadata.storage_meta.load_id = self.load_id
        return metadata


def value_of(source: pathlib.Path, metadata: Metadata, key: str) -> Any:
    """A number or text that a script has saved beside its tensors; None: it has none under that name."""
    info = metadata.storage_data.get(MetadataIndex(key))
    if info is None:
        return None
    with open(source / info.relative_path, "rb") as file:
        file.seek(info.offset)
        data = file.read(info.length)
    try:
        return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except Exception:  # noqa: BLE001  Other classes than numbers and tensors.
        return None


def index_before(source: pathlib.Path, metadata: Metadata) -> dict[str, Any]:
    """What to-dcp has kept of the index; empty: another program wrote the checkpoint."""
    text = value_of(source, metadata, INDEX)
    if not isinstance(text, str):
        return {}
    try:
        index = json.loads(text)
    except ValueError:
        return {}
    return index if isinstance(index, dict) else {}


def learning_rate_of(source: pathlib.Path, metadata: Metadata) -> float | None:
    """That of a parameter group of the optimizer, as get_state_dict saves them."""
    for key in sorted(metadata.state_dict_metadata):
        if key.startswith("optim.param_groups") and key.endswith(".lr"):
            rate = value_of(source, metadata, key)
            if isinstance(rate, (int, float)):
                return float(rate)
    return None
