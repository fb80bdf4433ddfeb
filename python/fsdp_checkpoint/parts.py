"""The parts of tensors in the files of a checkpoint, and their names in DCP."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
import tempfile
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties,
                                                   TensorStorageMetadata)

from fsdp_plan_runner.stored import NotReadable, SafetensorsFile, is_natural, json_object, read_json_object

FORMAT_VERSION = "1.0"
INDEX_NAME = "checkpoint.json"
PREFIXES = {"model": "model.", "optimizer": "optim."}  # By folder of the checkpoint.
SHARDING = "DCP_SHARDING_INFO"
_OWN_CHECKSUM = b'"crc32_of_text_before"'
_PIECE_BYTES = 1 << 20


class NoCheckpoint(NotReadable):
    """The folder is no checkpoint, or an incomplete one."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Rows of a tensor in a file."""

    file: SafetensorsFile
    path: pathlib.Path
    name: str  # In the file.
    key: str  # In DCP.
    first_row: int

    @property
    def sizes(self) -> torch.Size:
        return torch.Size(self.file.shape(self.name))

    @property
    def dtype(self) -> torch.dtype:
        return self.file.dtype(self.name)

    @property
    def offsets(self) -> torch.Size:
        return torch.Size([self.first_row] + [0] * (len(self.sizes) - 1)) if self.sizes else torch.Size()

    @property
    def chunk(self) -> ChunkStorageMetadata:
        return ChunkStorageMetadata(offsets=self.offsets, sizes=self.sizes)

    @property
    def index(self) -> MetadataIndex:
        return MetadataIndex(self.key, self.offsets)

    def rows(self, first: int, count: int) -> torch.Tensor:
        """A copy of some of its own rows."""
        row = math.prod(self.sizes[1:])
        return self.file.flat(self.name, first * row, count * row).view(count, *self.sizes[1:])

    def whole(self) -> torch.Tensor:
        return self.file.flat(self.name).view(self.sizes)


@dataclasses.dataclass(frozen=True)
class StoredFile:
    """A file as the index describes it."""

    path: pathlib.Path
    folder: str  # Folder of the file in the checkpoint.
    size: int
    crc32: int

    def verify(self) -> None:
        """Reads all of it. Raises NoCheckpoint if the bytes differ from those that were written."""
        crc = 0
        with open(self.path, "rb") as file:
            while piece := file.read(_PIECE_BYTES):
                crc = zlib.crc32(piece, crc)
        if crc != self.crc32:
            raise NoCheckpoint(f"{self.path}: the file is damaged: its checksum is {crc:08x} instead of {self.crc32:08x}. "
                               "Take another checkpoint.")


def _is_inside(name: str) -> bool:
    """A relative path without "..": never reads outside the checkpoint."""
    path = pathlib.PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _file_of(step: pathlib.Path, entry: Any) -> StoredFile:
    index = step / INDEX_NAME
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise NoCheckpoint(f"{index}: files: objects with a name were expected.")
    name = entry["name"]
    if not _is_inside(name):
        raise NoCheckpoint(f"{index}: files: {name!r} is not the name of a checkpoint file.")
    if not is_natural(entry.get("bytes")) or not is_natural(entry.get("crc32"), 0xffffffff):
        raise NoCheckpoint(f"{index}: files: {name!r}: bytes and crc32 were expected.")
    return StoredFile(step / name, name.split("/")[0], entry["bytes"], entry["crc32"])


def read_index(step: pathlib.Path) -> dict[str, Any]:
    """checkpoint.json, if its checksum is right. Raises NoCheckpoint otherwise."""
    path = step / INDEX_NAME
    try:
        index = read_json_object(path)
    except OSError as error:
        raise NoCheckpoint(f"{step}: {error.strerror}: this is not a checkpoint folder.") from None
    except NotReadable as error:
        raise NoCheckpoint(str(error)) from None
    text = path.read_bytes()
    if str(index.get("format_version")).split(".")[0] != FORMAT_VERSION.split(".")[0]:
        raise NoCheckpoint(f"{path}: the format version is {index.get('format_version')!r}; {FORMAT_VERSION} is read.")
    before = text.rfind(_OWN_CHECKSUM)
    if before < 0 or zlib.crc32(text[:before]) != index.get("crc32_of_text_before"):
        raise NoCheckpoint(f"{path}: the index is damaged: its checksum does not match. Take another checkpoint.")
    if not isinstance(index.get("files"), list):
        raise NoCheckpoint(f"{path}: files: a list was expected.")
    return index


def files_of(step: pathlib.Path, folders: tuple[str, ...] = tuple(PREFIXES)) -> list[StoredFile]:
    """Files of these folders; each exists and has its written length."""
    found = [_file_of(step, entry) for entry in read_index(step)["files"]]
    for file in found:
        if not file.path.is_file() or file.path.stat().st_size != file.size:
            raise NoCheckpoint(f"{file.path}: the file is missing, or not as long as it was written.")
    return [file for file in found if file.folder in folders]


def _first_rows(path: pathlib.Path, file: SafetensorsFile) -> dict[str, int]:
    """The first row of each tensor in the file."""
    offsets = json_object(file.metadata.get(SHARDING, ""), f"{path}: {SHARDING}")
    found = {}
    for name in file.names():
        entry = offsets.get(name)
        saved = entry.get("saved_offsets") if isinstance(entry, dict) else None
        if not isinstance(saved, list) or not all(is_natural(each) for each in saved) or len(saved) != len(file.shape(name)):
            raise NoCheckpoint(f"{path}: {SHARDING}: {name!r}: an offset for each dimension was expected.")
        if any(saved[1:]):
            raise NoCheckpoint(f"{path}: {name!r} is sharded along another dimension than 0.")
        found[name] = (saved or [0])[0]
    return found


def _check_rows(parts: list[Part]) -> None:
    """Checks that every row of a tensor occurs exactly once."""
    first_of: dict[str, Part] = {}
    next_row: dict[str, int] = {}
    for part in sorted(parts, key=lambda part: (part.key, part.first_row)):
        alike = first_of.setdefault(part.key, part)
        if part.dtype != alike.dtype or part.sizes[1:] != alike.sizes[1:] or len(part.sizes) != len(alike.sizes):
            raise NoCheckpoint(f"{part.path}: {part.name!r} has a different dtype or shape than in {alike.path}.")
        rows = part.sizes[0] if part.sizes else 1
        expected = next_row.get(part.key, 0)
        if rows and part.first_row != expected:
            raise NoCheckpoint(f"{part.path}: the rows of {part.name!r} begin at {part.first_row}, and {expected} was "
                               "expected: a file is missing, or there twice.")
        next_row[part.key] = expected + rows


def parts_of(step: pathlib.Path, folders: tuple[str, ...] = tuple(PREFIXES), verified: bool = True) -> list[Part]:
    """Generators belong to ranks of fsdp-exec and are left out. `verified`: reads every file for its checksum."""
    found = []
    for stored in files_of(step, folders):
        if verified:
            stored.verify()
        file = SafetensorsFile(stored.path)
        rows = _first_rows(stored.path, file)
        found += [Part(file, stored.path, name, PREFIXES[stored.folder] + name, rows[name]) for name in file.names()
                  if not name.startswith("random.")]
    _check_rows(found)
    return found


@contextlib.contextmanager
def becoming(out: pathlib.Path) -> Iterator[pathlib.Path]:
    """A temporary path next to `out`. It is renamed to `out` at the end of the block, and removed if the block fails, so that
    `out` is always complete. Raises NoCheckpoint if `out` exists."""
    if out.exists() or out.is_symlink():
        raise NoCheckpoint(f"{out}: it is there already.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.partial.", dir=out.parent) as folder:
        place = pathlib.Path(folder) / out.name
        yield place
        if out.exists() or out.is_symlink():  # A rename would replace a file, or an empty folder.
            raise NoCheckpoint(f"{out}: it is there already.")
        place.rename(out)


def metadata_of(parts: list[Part]) -> dict[str, TensorStorageMetadata]:
    """The tensors' metadata for DCP."""
    described: dict[str, TensorStorageMetadata] = {}
    for part in sorted(parts, key=lambda part: (part.key, part.first_row)):
        if part.key not in described:
            properties = TensorProperties(dtype=part.dtype)
            described[part.key] = TensorStorageMetadata(properties, part.sizes, [])
        entry = described[part.key]
        if part.sizes:
            entry.size = torch.Size([max(entry.size[0], part.first_row + part.sizes[0]), *part.sizes[1:]])
        entry.chunks.append(part.chunk)
    return described


def dcp_metadata(parts: list[Part]) -> Metadata:
    return Metadata(state_dict_metadata=metadata_of(parts))
