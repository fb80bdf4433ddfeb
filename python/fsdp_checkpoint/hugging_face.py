"""A checkpoint of fsdp-exec as a folder that transformers loads: config.json, model.safetensors or several with an index, and
the other files next to the configuration (tokenizer, generation).

Source: transformers/modeling_utils.py (save_pretrained), huggingface_hub/serialization/_base.py, transformers 5.23.
"""

from __future__ import annotations

import json
import math
import pathlib
import re
import shutil
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from fsdp_checkpoint.convert import SafetensorsWriter
from fsdp_checkpoint.parts import PREFIXES, NoCheckpoint, Part, becoming, metadata_of, parts_of
from fsdp_plan_runner.stored import read_json_object

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_BESIDE = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "*.model",
           "chat_template*", "generation_config.json", "preprocessor_config.json")
# For decoders, BERT, GPT-2, T5 and Whisper.
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "shared.weight")
_HEADS = ("lm_head.weight", "proj_out.weight", "cls.predictions.decoder.weight")
_WIDTHS = ("hidden_size", "n_embd", "d_model")
_OTHER_WIDTHS = ("embedding_size", "word_embed_proj_dim")  # For models whose embeddings are narrower.
_LAYERS = (("num_hidden_layers", r"(?:^|\.)(?:model|encoder)\.layers?\.(\d+)\."), ("n_layer", r"(?:^|\.)h\.(\d+)\."),
           ("num_layers", r"(?:^|\.)encoder\.block\.(\d+)\."), ("num_decoder_layers", r"(?:^|\.)decoder\.block\.(\d+)\."),
           ("encoder_layers", r"(?:^|\.)encoder\.layers\.(\d+)\."), ("decoder_layers", r"(?:^|\.)decoder\.layers\.(\d+)\."))
_MOST_BYTES = 5_000_000_000  # Largest file in bytes, as in save_pretrained.


def _read_config(path: pathlib.Path) -> dict[str, Any]:
    file = path / "config.json" if path.is_dir() else path
    try:
        config = read_json_object(file, is_strict=False)
    except OSError as error:
        raise NoCheckpoint(f"{file}: {error.strerror}: --config is config.json of the model, or its folder.") from None
    if "model_type" not in config:
        raise NoCheckpoint(f'{file}: this is not a transformers config: it has no "model_type".')
    return config


def _check_layers(config: dict[str, Any], tensors: dict[str, torch.Size]) -> None:
    for key, pattern in _LAYERS:
        found = [int(match[1]) for match in (re.search(pattern, name) for name in tensors) if match]
        if found and config.get(key, max(found) + 1) != max(found) + 1:
            raise NoCheckpoint(f"--config: {key} is {config[key]!r}, and the checkpoint has {max(found) + 1} of them.")


def _check(config: dict[str, Any], tensors: dict[str, torch.Size]) -> None:
    """Finds parameters that transformers would fill with its own numbers, with at most a warning."""
    _check_layers(config, tensors)
    embeddings = [shape for name, shape in tensors.items() if name.endswith(_EMBEDDINGS)]
    is_as_wide = not any(key in config for key in _OTHER_WIDTHS)
    for key, dimension in (("vocab_size", 0), *((key, 1) for key in _WIDTHS if is_as_wide)):
        if key in config and embeddings and config[key] != embeddings[0][dimension]:
            raise NoCheckpoint(f"--config: {key} is {config[key]!r}, and the checkpoint's embedding is "
                               f"{list(embeddings[0])}.")
    if config.get("tie_word_embeddings") is False and embeddings and not any(name.endswith(_HEADS) for name in tensors):
        raise NoCheckpoint('--config: "tie_word_embeddings" is false, and the checkpoint has no lm_head.weight.')


def _file_names(sizes: dict[str, int], most: int) -> dict[str, str]:
    """Tensor -> file, as many tensors in a file as fit."""
    groups: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if groups[-1] and filled + size > most:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    if len(groups) == 1:
        return dict.fromkeys(sizes, "model.safetensors")
    return {name: f"model-{i:05}-of-{len(groups):05}.safetensors" for i, group in enumerate(groups, start=1)
            for name in group}


def to_hugging_face(step: pathlib.Path, out: pathlib.Path, config_path: pathlib.Path, dtype: str | None = None,
                    most_bytes: int = _MOST_BYTES) -> None:
    """Floating point parameters are converted to `dtype`, if there is one. The folder appears complete or not at all."""
    config = _read_config(config_path)
    parts = parts_of(step, ("model",))
    described = metadata_of(parts)
    names = {key: key.removeprefix(PREFIXES["model"]) for key in described}
    _check(config, {names[key]: entry.size for key, entry in described.items()})
    for entry in described.values():
        if dtype and entry.properties.dtype.is_floating_point:
            entry.properties.dtype = _DTYPES[dtype]
    sizes = {names[key]: math.prod(entry.size) * entry.properties.dtype.itemsize for key, entry in described.items()}
    files = _file_names(sizes, most_bytes)
    by_key: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.first_row):
        by_key.setdefault(part.key, []).append(part)
    with becoming(out) as place:
        place.mkdir()
        for file in dict.fromkeys(files.values()):
            keys = [key for key in described if files[names[key]] == file]
            writer = SafetensorsWriter(place / file, {names[key]: described[key] for key in keys}, is_part=False)
            for key in keys:
                writer.add(names[key], torch.cat([part.whole() for part in by_key[key]]).to(described[key].properties.dtype)
                           if described[key].size else by_key[key][0].whole())
            writer.close()
        _write_beside(place, config, described, sizes, files)
        if config_path.is_dir():
            for pattern in _BESIDE:
                for file in config_path.glob(pattern):
                    shutil.copyfile(file, place / file.name)


def _write_beside(place: pathlib.Path, config: dict[str, Any], described: dict[str, TensorStorageMetadata],
                  sizes: dict[str, int], files: dict[str, str]) -> None:
    """Writes the index of several files, and the configuration with the dtype of the tensors."""
    if len(set(files.values())) > 1:
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": files}
        (place / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    floating = {str(e.properties.dtype).removeprefix("torch.") for e in described.values()
                if e.properties.dtype.is_floating_point}
    key = "dtype" if "dtype" in config else "torch_dtype"
    text = json.dumps({**config, **({key: floating.pop()} if len(floating) == 1 else {})}, indent=2)
    (place / "config.json").write_text(text + "\n", encoding="utf-8")
