"""Parameters and token ids from files: those of fsdp-exec --weights and --tokens (executor/checkpoint/weights.cpp,
executor/training/token_file.cpp), read without the package safetensors."""

from __future__ import annotations

import json
import math
import mmap
import pathlib
import struct

import torch

DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64,
          "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
_INDEX = "model.safetensors.index.json"


class SafetensorsFile:
    """The tensors of one file; only what is asked for is read."""

    def __init__(self, path: pathlib.Path) -> None:
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(size))
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self._begin = 8 + size
        self._entries = header

    def names(self) -> list[str]:
        return list(self._entries)

    def shape(self, name: str) -> list[int]:
        return self._entries[name]["shape"]

    def dtype(self, name: str) -> torch.dtype:
        return DTYPES[self._entries[name]["dtype"]]

    def flat(self, name: str, first: int = 0, count: int | None = None) -> torch.Tensor:
        """A copy of elements [first, first + count); all of them without `count`."""
        dtype = self.dtype(name)
        count = math.prod(self.shape(name)) - first if count is None else count
        if count == 0:
            return torch.empty(0, dtype=dtype)
        begin = self._begin + self._entries[name]["data_offsets"][0] + first * dtype.itemsize
        data = bytearray(self._bytes[begin:begin + count * dtype.itemsize])
        return torch.frombuffer(data, dtype=dtype)


class Weights:
    """Files, a folder or an index, as tensors by name."""

    def __init__(self, paths: list[str]) -> None:
        self._files: dict[str, SafetensorsFile] = {}
        for file in [file for path in paths for file in files_of(pathlib.Path(path))]:
            opened = SafetensorsFile(file)
            self._files |= dict.fromkeys(opened.names(), opened)

    def elements(self, names: list[str], first: int, count: int) -> torch.Tensor:
        """Of the first of these names that there is."""
        name = next(name for name in names if name in self._files)
        return self._files[name].flat(name, first, count)


def files_of(path: pathlib.Path) -> list[pathlib.Path]:
    if path.is_dir():
        whole = path / "model.safetensors"
        if (path / _INDEX).exists():
            path = path / _INDEX
        else:
            return [whole] if whole.exists() else sorted(path.glob("*.safetensors"))
    if path.name.endswith(".index.json"):
        index = json.loads(path.read_text(encoding="utf-8"))
        return [path.parent / name for name in sorted(set(index["weight_map"].values()))]
    return [path]


def token_batch(path: str, first: int, batch: int, seq: int) -> torch.Tensor:
    """Samples [first, first + batch) of a file of int32 ids, from the beginning again after the last."""
    ids = torch.from_file(path, shared=False, size=pathlib.Path(path).stat().st_size // 4, dtype=torch.int32)
    samples = ids.numel() // seq
    return torch.stack([ids[i % samples * seq:(i % samples + 1) * seq] for i in range(first, first + batch)]).long()
