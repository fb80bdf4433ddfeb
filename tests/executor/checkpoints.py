"""Reads checkpoints of fsdp-exec without it: index, checksums, and the tensors of all files joined."""

from __future__ import annotations

import json
import math
import pathlib
import struct
import zlib
from typing import Any

Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]  # Name -> dtype, shape, bytes.


def differing(a: Tensors, b: Tensors) -> list[str]:
    """Names of tensors that only one of the two has, or that differ in a bit."""
    return [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]


def steps_in(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def index_of(step: pathlib.Path) -> dict[str, Any]:
    """Raises AssertionError if a checksum differs, of a file or of the index itself."""
    text = (step / "checkpoint.json").read_bytes()
    index = json.loads(text)
    before = text[:text.rindex(b'"crc32_of_text_before"')]
    assert zlib.crc32(before) == index["crc32_of_text_before"], step
    for file in index["files"]:
        data = (step / file["name"]).read_bytes()
        assert len(data) == file["bytes"] and zlib.crc32(data) == file["crc32"], file["name"]
    return index


def tensors_of(folder: pathlib.Path) -> Tensors:
    """All files of a folder with their parts joined. Raises AssertionError if rows are missing."""
    parts: dict[str, list[tuple[int, str, list[int], bytes]]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        offsets = json.loads(header.pop("__metadata__")["DCP_SHARDING_INFO"])
        for name, entry in header.items():
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            first = (offsets[name]["saved_offsets"] or [0])[0]
            parts.setdefault(name, []).append((first, entry["dtype"], entry["shape"], data[begin:end]))
    whole: Tensors = {}
    for name, pieces in parts.items():
        pieces.sort(key=lambda piece: piece[0])
        rows = 0
        for first, _, shape, _ in pieces:
            assert first == rows, f"{name}: rows before {first} are missing"
            rows += shape[0] if shape else 1
        shape = (rows, *pieces[0][2][1:]) if pieces[0][2] else ()
        whole[name] = (pieces[0][1], shape, b"".join(piece[3] for piece in pieces))
        assert math.prod(shape) * {"F32": 4, "BF16": 2, "U8": 1}.get(whole[name][0], 0) in (len(whole[name][2]), 0)
    return whole


def contents_of(step: pathlib.Path) -> Tensors:
    """Parameters and states of the optimizer; not the generators, which belong to ranks."""
    states = {name: tensor for name, tensor in tensors_of(step / "optimizer").items() if not name.startswith("random.")}
    return {**tensors_of(step / "model"), **states}
