"""Parameters and token ids from files: the formats of fsdp-exec --weights and --tokens (executor/checkpoint/weights.cpp,
executor/training/token_file.cpp), read without the package safetensors.

Checks a file's header against its size before it reads any tensor, as core/formats/safetensors.cpp does.
"""

from __future__ import annotations

import itertools
import json
import math
import mmap
import pathlib
import struct
from typing import Any

import torch

DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64,
          "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
_INDEX = "model.safetensors.index.json"
_LENGTH_BYTES = 8
_LONGEST_HEADER = 64 << 20
_LONGEST_JSON = 256 << 20
_MOST = 1 << 60


class NotReadable(Exception):
    """A file is invalid; the text has its name and the fault."""


def read_json_object(path: pathlib.Path, is_strict: bool = True) -> dict[str, Any]:
    """Raises OSError if it cannot be read, NotReadable if it is too long or no JSON object. Not strict: JSON with Infinity and
    NaN, which Python and so transformers write."""
    size = path.stat().st_size
    if size > _LONGEST_JSON:
        raise NotReadable(f"{path}: it has {size} bytes, and {_LONGEST_JSON} are read.")
    return json_object(path.read_bytes(), str(path), is_strict)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def json_object(text: bytes | str, name: str, is_strict: bool = True) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_refuse if is_strict else None)
    except (ValueError, RecursionError) as error:
        raise NotReadable(f"{name}: this is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise NotReadable(f"{name}: an object was expected.")
    return value


def is_natural(value: Any, most: int = _MOST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_naturals(value: Any) -> bool:
    return isinstance(value, list) and all(is_natural(each) for each in value)


class SafetensorsFile:
    """The tensors of one file; reads only the requested ones. Raises NotReadable if its header does not match it."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        if not path.is_file():
            raise NotReadable(f"{path}: the file is missing.")
        with open(path, "rb") as file:
            size = path.stat().st_size
            if size < _LENGTH_BYTES:
                raise NotReadable(f"{path}: the file has {size} bytes, too few for a safetensors file.")
            length = struct.unpack("<Q", file.read(_LENGTH_BYTES))[0]
            most = min(size - _LENGTH_BYTES, _LONGEST_HEADER)
            if length > most:
                raise NotReadable(f"{path}: its header would have {length} bytes, of {most} that there may be.")
            header = json_object(file.read(length), str(path))
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._begin = _LENGTH_BYTES + length
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        if not isinstance(self.metadata, dict) or not all(isinstance(text, str) for text in self.metadata.values()):
            raise NotReadable(f"{path}: __metadata__: texts were expected.")
        self._entries = header
        self._check(size - self._begin)

    def _check(self, size: int) -> None:
        """Every byte after the header belongs to one tensor."""
        for name, entry in self._entries.items():
            is_whole = (isinstance(entry, dict) and isinstance(entry.get("dtype"), str) and _is_naturals(entry.get("shape"))
                        and _is_naturals(entry.get("data_offsets")) and len(entry["data_offsets"]) == 2)
            if not is_whole:
                raise NotReadable(f"{self._path}: {name!r}: a dtype, a shape and two offsets were expected.")
            begin, end = entry["data_offsets"]
            dtype = DTYPES.get(entry["dtype"])
            if begin > end or (dtype and math.prod(entry["shape"]) * dtype.itemsize != end - begin):
                raise NotReadable(f"{self._path}: {name!r} has {end - begin} bytes, which do not fit its shape and dtype.")
        offsets = sorted(entry["data_offsets"] for entry in self._entries.values())
        for before, after in itertools.pairwise([[0, 0], *offsets, [size, size]]):
            if before[1] != after[0]:
                raise NotReadable(f"{self._path}: the file has {size} bytes of tensors, and its header describes others: a "
                                  f"tensor ends at {before[1]}, and {after[0]} follows.")

    def names(self) -> list[str]:
        return list(self._entries)

    def shape(self, name: str) -> list[int]:
        return self._entries[name]["shape"]

    def dtype(self, name: str) -> torch.dtype:
        dtype = DTYPES.get(self._entries[name]["dtype"])
        if dtype is None:
            raise NotReadable(f"{self._path}: {name!r} has the dtype {self._entries[name]['dtype']!r}, which is not read.")
        return dtype

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
        """From the first of these names that exists."""
        name = next((name for name in names if name in self._files), None)
        if name is None:
            raise NotReadable(f"--weights: no file has {names[0]!r}, which the model has.")
        return self._files[name].flat(name, first, count)


def files_of(path: pathlib.Path) -> list[pathlib.Path]:
    if path.is_dir():
        whole = path / "model.safetensors"
        if (path / _INDEX).exists():
            path = path / _INDEX
        else:
            return [whole] if whole.exists() else sorted(path.glob("*.safetensors"))
    if path.name.endswith(".index.json"):
        files = read_json_object(path).get("weight_map")
        if not isinstance(files, dict):
            raise NotReadable(f"{path}: weight_map: an object of names and files was expected.")
        for name in files.values():
            if not isinstance(name, str) or not name or "/" in name or "\0" in name:
                raise NotReadable(f"{path}: {name!r} is not the name of a file in the folder of the index.")
        return [path.parent / name for name in sorted(set(files.values()))]
    return [path]


def token_batch(path: str, first: int, batch: int, seq: int) -> torch.Tensor:
    """Samples [first, first + batch) of a file of int32 ids. Starts over after the last sample."""
    ids = torch.from_file(path, shared=False, size=pathlib.Path(path).stat().st_size // 4, dtype=torch.int32)
    samples = ids.numel() // seq
    return torch.stack([ids[i % samples * seq:(i % samples + 1) * seq] for i in range(first, first + batch)]).long()
