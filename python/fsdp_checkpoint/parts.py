"""The parts of tensors in the files of a checkpoint, and their names in DCP."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib

import torch
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties,
                                                   TensorStorageMetadata)

from fsdp_plan_runner.stored import SafetensorsFile

PREFIXES = {"model": "model.", "optimizer": "optim."}  # By the folder of a checkpoint.
SHARDING = "DCP_SHARDING_INFO"


class NoCheckpoint(Exception):
    """The folder is none of a checkpoint, or not a whole one."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Rows of a tensor in a file."""

    file: SafetensorsFile
    name: str  # In the file.
    key: str  # In DCP.
    first_row: int

    @property
    def sizes(self) -> torch.Size:
        return torch.Size(self.file.shape(self.name))

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


def parts_of(step: pathlib.Path, folders: tuple[str, ...] = ("model", "optimizer")) -> list[Part]:
    """Generators belong to ranks of fsdp-exec and are left out."""
    try:
        index = json.loads((step / "checkpoint.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise NoCheckpoint(f"{step}: {error.strerror}: this is not a checkpoint folder.") from None
    found = []
    for entry in index["files"]:
        folder = entry["name"].split("/")[0]
        path = step / entry["name"]
        if folder not in folders:
            continue
        if not path.is_file() or path.stat().st_size != entry["bytes"]:
            raise NoCheckpoint(f"{path}: the file is missing, or not as long as it was written.")
        file = SafetensorsFile(path)
        offsets = json.loads(file.metadata[SHARDING])
        found += [Part(file, name, PREFIXES[folder] + name, (offsets[name]["saved_offsets"] or [0])[0])
                  for name in file.names() if not name.startswith("random.")]
    return found


def metadata_of(parts: list[Part]) -> dict[str, TensorStorageMetadata]:
    """What DCP says of the tensors."""
    described: dict[str, TensorStorageMetadata] = {}
    for part in sorted(parts, key=lambda part: (part.key, part.first_row)):
        if part.key not in described:
            properties = TensorProperties(dtype=part.file.dtype(part.name))
            described[part.key] = TensorStorageMetadata(properties, part.sizes, [])
        entry = described[part.key]
        if part.sizes:
            entry.size = torch.Size([max(entry.size[0], part.first_row + part.sizes[0]), *part.sizes[1:]])
        entry.chunks.append(part.chunk)
    return described


def dcp_metadata(parts: list[Part]) -> Metadata:
    return Metadata(state_dict_metadata=metadata_of(parts))
