"""Conversions on one machine without a process group. Memory contains one tensor at a time, or several together up to
_MOST_BYTES."""

from __future__ import annotations

import contextlib
import io
import json
import math
import pathlib
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter, Metadata, SavePlan, SavePlanner
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from fsdp_checkpoint.dcp_files import INDEX, SafePlanner, SafeReader, index_before, learning_rate_of, read_metadata
from fsdp_checkpoint.parts import (FORMAT_VERSION, INDEX_NAME, PREFIXES, SHARDING, NoCheckpoint, Part, becoming, metadata_of,
                                   parts_of, read_index)
from fsdp_plan_runner.stored import DTYPES, NotReadable, is_natural, read_json_object

_MOST_BYTES = 1 << 30
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_SHARD = "shard-00001-model-00001-of-00001.safetensors"
_MOMENTS = {"exp_avg": "adamw", "momentum_buffer": "sgd"}
_OPTIMIZERS = ("adamw", "adam", "sgd")
_MOST_RATE, _MOST_SEED, _MOST_STEPS = 1e300, 1 << 63, 1 << 60


class _PartsPlanner(SavePlanner):
    """Saves the parts as they lie in the files, each as a chunk of its tensor."""

    def __init__(self, parts: list[Part], index: str) -> None:
        self._parts = {part.index: part for part in parts}
        self._described = metadata_of(parts)
        self._index = index

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        pass

    def create_local_plan(self) -> SavePlan:
        items = []
        for index, part in self._parts.items():
            described = self._described[part.key]
            data = TensorWriteData(part.chunk, described.properties, described.size)
            items.append(WriteItem(index, WriteItemType.SHARD, tensor_data=data))
        items.append(WriteItem(MetadataIndex(INDEX), WriteItemType.BYTE_IO))
        return SavePlan(items)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        return create_default_global_save_plan(all_plans)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        if write_item.type == WriteItemType.BYTE_IO:
            data = io.BytesIO()
            torch.save(self._index, data)
            return data
        return self._parts[write_item.index].whole()


def to_dcp(step: pathlib.Path, out: pathlib.Path) -> None:
    index = read_index(step)
    kept = json.dumps({key: value for key, value in index.items() if key not in ("files", "crc32_of_text_before")})
    with becoming(out) as place:
        dcp.save({}, storage_writer=FileSystemWriter(place), planner=_PartsPlanner(parts_of(step), kept), no_dist=True)


def _bytes_of(described: TensorStorageMetadata) -> int:
    return math.prod(described.size) * described.properties.dtype.itemsize


def _batches(described: dict[str, TensorStorageMetadata]) -> Iterator[dict[str, torch.Tensor]]:
    """Empty tensors, as many at a time as fit into memory."""
    batch: dict[str, torch.Tensor] = {}
    size = 0
    for key, entry in described.items():
        if batch and size + _bytes_of(entry) > _MOST_BYTES:
            yield batch
            batch, size = {}, 0
        batch[key] = torch.empty(entry.size, dtype=entry.properties.dtype)
        size += _bytes_of(entry)
    if batch:
        yield batch


class SafetensorsWriter:
    """Writes one file of whole tensors, which arrive in the order of their descriptions."""

    def __init__(self, path: pathlib.Path, tensors: dict[str, TensorStorageMetadata], is_part: bool) -> None:
        self.path = path
        self.crc = 0
        self._left = list(tensors)
        header: dict[str, Any] = {}
        metadata = {"format": "pt"}
        if is_part:
            offsets = {name: {"saved_offsets": [0] * len(entry.size)} for name, entry in tensors.items()}
            metadata |= {SHARDING: json.dumps(offsets), "DCP_VERSION": "1.0"}
        header["__metadata__"] = metadata
        begin = 0
        for name, entry in tensors.items():
            end = begin + _bytes_of(entry)
            header[name] = {"dtype": _NAMES[entry.properties.dtype], "shape": list(entry.size),
                            "data_offsets": [begin, end]}
            begin = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "xb")
        self._write(struct.pack("<Q", len(text)) + text)

    def _write(self, data: bytes) -> None:
        self.crc = zlib.crc32(data, self.crc)
        self._file.write(data)

    def add(self, name: str, tensor: torch.Tensor) -> None:
        assert self._left.pop(0) == name
        self._write(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())

    def close(self) -> None:
        assert not self._left
        self._file.close()


def to_safetensors(step: pathlib.Path, out: pathlib.Path) -> None:
    parts = parts_of(step, ("model",))
    described = metadata_of(parts)
    names = {key: key.removeprefix(PREFIXES["model"]) for key in described}
    by_key: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.first_row):
        by_key.setdefault(part.key, []).append(part)
    with becoming(out) as place:
        writer = SafetensorsWriter(place, {names[key]: entry for key, entry in described.items()}, is_part=False)
        for key in described:
            pieces = [part.whole() for part in by_key[key]]
            writer.add(names[key], torch.cat(pieces) if len(pieces) > 1 else pieces[0])
        writer.close()


def _chosen(metadata: Metadata, folder: str) -> dict[str, TensorStorageMetadata]:
    """The tensors of one folder, under their names in DCP; for an optimizer only its states."""
    prefix = PREFIXES[folder] + ("state." if folder == "optimizer" else "")
    return {key: entry for key, entry in sorted(metadata.state_dict_metadata.items())
            if key.startswith(prefix) and isinstance(entry, TensorStorageMetadata)}


def _model_of(source: pathlib.Path, before: dict[str, Any], given: dict[str, Any]) -> dict[str, str]:
    """The identity of the model, for the index."""
    found = {key: before.get(key) or given.get(key) for key in ("model", "model_fingerprint")}
    if not all(found.values()):
        raise NoCheckpoint(f"{source}: it does not say of which model it is. Name a plan of that model: --plan.")
    if given.get("model_fingerprint") not in (None, found["model_fingerprint"]):
        raise NoCheckpoint(f"{source}: it is of the model {found['model']!r}, and --plan of {given['model']!r}.")
    return found


def _settled(source: pathlib.Path, metadata: Metadata, counted: int, found: str,
             before: dict[str, Any], given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The index except its files, and the members that no source has. Options take precedence, then the index stored by
    to-dcp, then the optimizer's own facts."""
    index: dict[str, Any] = {"format_version": FORMAT_VERSION, **_model_of(source, before, given)}
    assumed = []
    choices = {"step": (counted, None), "micro_batches": (0, "--micro-batches"), "samples": (0, "--samples"),
               "seed": (0, "--seed"),
               "learning_rate": (1e-4, "--lr"), "optimizer": (found, None)}
    rate = learning_rate_of(source, metadata)
    for key, (otherwise, option) in choices.items():
        if given.get(key) is not None:
            index[key] = given[key]
        elif key in before:
            index[key] = before[key]
        elif key == "learning_rate" and rate is not None:
            index[key] = rate
        else:
            index[key] = otherwise
            if option:
                assumed.append(f"{key} {otherwise} ({option} says otherwise)")
    # Training scripts average over micro-batches.
    index["training"] = before.get("training") or {
        "schedule": "constant", "warmup_steps": 0, "schedule_steps": 0, "min_rate_ratio": 0, "beta1": 0.9, "beta2": 0.999,
        "eps": 1e-8, "decays_norms": True, "decays_biases": True, "accumulation": "mean"}
    return index, assumed


def model_of_plan(path: pathlib.Path) -> dict[str, str]:
    """The members of an index that identify the model, as fsdp-plan writes them into a plan."""
    try:
        model = read_json_object(path)["model"]
        named = {"model": model["name"], "model_fingerprint": model["fingerprint"]}
    except OSError as error:
        raise NoCheckpoint(f"{path}: {error.strerror}: --plan is a plan of fsdp-plan.") from None
    except (NotReadable, KeyError, TypeError):
        named = {"model": ""}
    if not all(isinstance(each, str) and each for each in named.values()):
        raise NoCheckpoint(f"{path}: this is not a plan that names its model and fingerprint: write it with "
                           "fsdp-plan -o.")
    return named


_OPTIONS = {"step": "--step", "seed": "--seed", "micro_batches": "--micro-batches", "samples": "--samples",
            "learning_rate": "--lr", "optimizer": "--optimizer"}


def _check_values(origin: str, values: dict[str, Any]) -> None:
    """Raises NoCheckpoint for a member that fsdp-exec would refuse. `origin`: the source of the values; empty for the
    options."""
    for key, value in values.items():
        if key in ("step", "micro_batches", "samples"):
            is_right, allowed = is_natural(value), "a whole number of at least 0"
        elif key == "seed":
            is_right = isinstance(value, int) and not isinstance(value, bool) and -_MOST_SEED <= value < _MOST_SEED
            allowed = "a whole number of 64 bits"
        elif key == "learning_rate":
            is_right = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MOST_RATE
            allowed = f"a number from 0 to {_MOST_RATE:g}"
        elif key == "optimizer":
            is_right, allowed = value in _OPTIMIZERS, "one of " + ", ".join(_OPTIMIZERS)
        elif key in ("model", "model_fingerprint"):
            is_right, allowed = isinstance(value, str) and bool(value), "a text"
        elif key == "training":
            is_right, allowed = isinstance(value, dict), "an object"
        else:
            continue
        if not is_right:
            where = f"{origin}: {key}" if origin else _OPTIONS.get(key, key)
            raise NoCheckpoint(f"{where}: {value!r}: {allowed} was expected.")


def _dcp_loaded(source: pathlib.Path, metadata: Metadata, batch: dict[str, torch.Tensor]) -> None:
    try:
        dcp.load(batch, storage_reader=SafeReader(source, metadata), planner=SafePlanner(), no_dist=True)
    except Exception as error:  # noqa: BLE001  A damaged file may raise anything, which PyTorch wraps.
        failures = [cause for cause, _ in getattr(error, "failures", {}).values()] or [error]
        said = str(failures[0]).splitlines() or [type(failures[0]).__name__]
        raise NoCheckpoint(f"{source}: its tensors cannot be read: {said[0]}") from None


def _counted(source: pathlib.Path, key: str, tensor: torch.Tensor) -> int:
    if tensor.numel() != 1 or not 0 <= float(tensor) < _MOST_STEPS:
        raise NoCheckpoint(f"{source}: {key!r} counts no steps.")
    return int(tensor)


def from_dcp(source: pathlib.Path, out: pathlib.Path, **given: Any) -> list[str]:
    """`given`: members of the index; None means not given. Returns the assumptions for the others.

    `step` defaults to the optimizer's count of steps, and `optimizer` to AdamW or SGD, by the moments.
    """
    _check_values("", {key: value for key, value in given.items() if value is not None})
    metadata = read_metadata(source)
    chosen = {folder: _chosen(metadata, folder) for folder in PREFIXES}
    if not chosen["model"]:
        raise NoCheckpoint(f"{source}: it has no tensors called model.NAME; its names begin with "
                           + ", ".join(sorted({key.split(".")[0] for key in metadata.state_dict_metadata})[:5]) + ".")
    for key, entry in [item for described in chosen.values() for item in described.items()]:
        if entry.properties.dtype not in _NAMES:
            raise NoCheckpoint(f"{source}: {key!r} is {entry.properties.dtype}, which is not written.")
    before = index_before(source, metadata)
    _check_values(f"{source}: {INDEX}", {key: value for key, value in before.items() if given.get(key) is None})
    _model_of(source, before, given)  # Before any output is written.
    files = []
    counted = 0
    ends = {key.rsplit(".", 1)[1] for key in chosen["optimizer"]}
    kinds = [_MOMENTS[end] for end in _MOMENTS if end in ends]
    with becoming(out) as place:
        for folder, prefix in PREFIXES.items():
            described = chosen[folder]
            names = {key: key.removeprefix(prefix) for key in described}
            path = place / folder / _SHARD
            writer = SafetensorsWriter(path, {names[key]: entry for key, entry in described.items()}, is_part=True)
            for batch in _batches(described):
                _dcp_loaded(source, metadata, batch)
                for key, tensor in batch.items():
                    writer.add(names[key], tensor)
                    if key.endswith(".step"):
                        counted = max(counted, _counted(source, key, tensor))
            writer.close()
            files.append({"name": f"{folder}/{_SHARD}", "bytes": path.stat().st_size, "crc32": writer.crc})
        index, assumed = _settled(source, metadata, counted, next(iter(kinds), "adamw"), before, given)
        index |= {"mesh": {"replicate": 1, "shard": 1}, "files": files}
        text = json.dumps(index, indent=2, allow_nan=False).rstrip("}\n") + ',\n  '
        text += f'"crc32_of_text_before": {zlib.crc32(text.encode())}\n}}\n'
        (place / INDEX_NAME).write_text(text, encoding="utf-8")
    return assumed


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences DCP's warning that there is no process group, which is intended."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
