"""Models of the library made so small that a training step takes milliseconds: fewer blocks, smaller numbers."""

from __future__ import annotations

import json
import pathlib
import re
from dataclasses import dataclass
from typing import Any

LIBRARY = pathlib.Path(__file__).resolve().parents[2] / "model_specs"


@dataclass(frozen=True)
class Cut:
    """How a model of the library becomes small, and its units if a case does not give any."""

    numbers: dict[float, float]  # Replacements of numbers in the modules and inputs.
    dimensions: dict[str, float]
    rows: tuple[str, ...]  # Repeated blocks, by their names in the small model.
    names: tuple[tuple[str, str], ...] = ()  # Old and new rows of blocks; defaults to the first blocks of each row.


# Constants that a small model shares with the large one.
_CONSTANTS = ("rope_theta", "rope_factor", "low_freq_factor", "high_freq_factor", "original_max_positions",
              "query_pre_attn_scalar", "relative_attention_max_distance")
LAYERS = 2
_WIDTHS = {2048: 64, 64: 16, 32: 4, 8: 2, 8192: 172}
# 257 and the other vocabularies are odd: rows do not divide by the ranks, so that shards are padded and some are empty.
CUTS = {
    "llama3_2_1b": Cut({128256: 257, **_WIDTHS}, {"batch": 2, "seq": 24}, ("model.layers.{0..1}",)),
    "llama2_7b": Cut({32000: 257, 4096: 64, 128: 16, 32: 4, 11008: 172}, {"batch": 2, "seq": 24}, ("model.layers.{0..1}",)),
    "llama3_1_8b": Cut({128256: 257, 4096: 64, 128: 16, 32: 4, 8: 2, 14336: 172}, {"batch": 2, "seq": 24},
                       ("model.layers.{0..1}",)),
    "qwen2_5_7b": Cut({152064: 257, 3584: 64, 128: 16, 28: 4, 4: 2, 18944: 172}, {"batch": 2, "seq": 24},
                      ("model.layers.{0..1}",)),
    "mistral_7b_v0_1": Cut({32000: 257, 4096: 64, 128: 16, 32: 4, 8: 2, 14336: 172}, {"batch": 2, "seq": 24},
                           ("model.layers.{0..1}",)),
    "mistral_7b_v0_3": Cut({32768: 257, 4096: 64, 128: 16, 32: 4, 8: 2, 14336: 172}, {"batch": 2, "seq": 24},
                           ("model.layers.{0..1}",)),
    "qwen3_30b_a3b": Cut({151936: 131, 2048: 32, 128: 8, 32: 4, 4: 2, 8: 4, 768: 48}, {"batch": 2, "seq": 24},
                         ("model.layers.{0..1}",)),
    "qwen3_0_6b": Cut({151936: 131, 1024: 32, 128: 8, 16: 4, 8: 2, 3072: 80}, {"batch": 2, "seq": 24},
                      ("model.layers.{0..1}",)),
    "gpt2": Cut({50257: 131, 1024: 32, 768: 48, 12: 4}, {"batch": 2, "seq": 24}, ("transformer.h.{0..1}",)),
    "gemma2_9b": Cut({256000: 131, 3584: 32, 59.86651818838306: 32**0.5, 256: 8, 16: 4, 8: 2, 14336: 72, 4096: 6}, {"batch": 2, "seq": 24},
                     ("model.layers.{0..1}",)),
    "resnet18": Cut({64: 8, 128: 12, 256: 16, 512: 24},
                    {"batch": 4, "image_size": 32, "classes": 11},
                    ("layer1.{0..1}", "layer2.{0..1}", "layer3.{0..1}", "layer4.{0..1}")),
    "vit_b_16": Cut({768: 32, 12: 4, 3072: 72, 1000: 11}, {"batch": 2, "image_size": 48},
                    ("encoder.layers.encoder_layer_{0..1}",)),
    "mixtral_8x7b": Cut({32000: 131, 4096: 64, 128: 16, 32: 4, 8: 4, 2: 2, 14336: 96}, {"batch": 2, "seq": 24},
                        ("model.layers.{0..1}",)),
    "t5_3b": Cut({32128: 131, 1024: 32, 0.03125: 32**-0.5, 32: 8, 128: 8, 16384: 72}, {"batch": 2, "seq": 20, "target_seq": 12},
                 ("encoder.block.{0..1}", "decoder.block.{0..1}")),
    "whisper_large_v3": Cut({1280: 40, 20: 4, 5120: 72, 51866: 131, 1500: 24, 448: 16, 3000: 48, 128: 16, 50256: 0},
                            {"batch": 2, "target_seq": 12},
                            ("model.encoder.layers.{0..1}", "model.decoder.layers.{0..1}")),
    "bert_large": Cut({30522: 131, 1024: 32, 512: 32, 16: 4, 4096: 72}, {"batch": 2, "seq": 24},
                      ("bert.encoder.layer.{0..1}",)),
    "qwen3_tts": Cut(
        {2048: 32, 151936: 131, 3072: 67, 1024: 24, 6144: 72, 512: 16, 1536: 48, 128: 8, 16: 4, 8: 2},
        {"batch": 2, "clip_seconds": 0.5, "reference_seconds": 0.3},
        ("talker.model.layers.{0..2}", "talker.code_predictor.model.layers.{0..1}"),
        (("talker.model.layers.{0..26}", "talker.model.layers.{0..1}"),
         ("talker.model.layers.{27..27}", "talker.model.layers.{2..2}"),
         ("talker.code_predictor.model.layers.{0..4}", "talker.code_predictor.model.layers.{0..1}"))),
}


def _renumbered(value: Any, numbers: dict[float, float]) -> Any:
    if isinstance(value, dict):
        return {key: inner if key in _CONSTANTS else _renumbered(inner, numbers) for key, inner in value.items()}
    if isinstance(value, list):
        return [_renumbered(inner, numbers) for inner in value]
    return value if isinstance(value, (bool, str)) else numbers.get(value, value)


def _shortened(module: dict[str, Any], cut: Cut) -> dict[str, Any]:
    names = dict(cut.names)
    name = module["name"]
    name = names[name] if name in names else re.sub(
        r"\{0\.\.(\d+)\}", lambda match: f"{{0..{min(int(match.group(1)), LAYERS - 1)}}}", name)
    lists = {key: values[:LAYERS] for key, values in module.get("per_layer", {}).items()}
    return {**module, "name": name, **({"per_layer": lists} if lists else {})}


def small_spec(model: str, dtype: str | None = None, numbers: dict[float, float] | None = None) -> dict[str, Any]:
    """`dtype`: of the checkpoint, in place of the spec's own; `numbers`: in place of some of the cut's."""
    cut = CUTS[model]
    smaller = {**cut.numbers, **(numbers or {})}
    spec = json.loads((LIBRARY / f"{model}.json").read_text(encoding="utf-8"))
    spec.pop("$schema", None)
    spec["dtype"] = dtype or spec["dtype"]
    spec["modules"] = [_shortened(module, cut) for module in _renumbered(spec["modules"], smaller)]
    spec["inputs"] = _renumbered(spec["inputs"], smaller)
    return spec


def each_block_a_unit(model: str, **options: Any) -> list[dict[str, Any]]:
    """One unit for each block, and the root."""
    return [*({"modules": [row], "modules_per_unit": 1, **options} for row in CUTS[model].rows), {"modules": [""]}]
