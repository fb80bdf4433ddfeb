"""Models of Hugging Face transformers, a few layers of each, under plans as people write them.

The spec is the one of the library with its rows of blocks cut; the model is made from a configuration with the same sizes.
Experts are not among them: where a token goes depends on values, and on the stub GPU there are none.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from predict import ROOT, Case

LAYERS = 2
MIXED = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of the library, and how transformers names and configures it."""

    spec: str
    config: str  # Class.
    model: str  # Class.
    sizes: dict[str, Any]
    layers: tuple[str, ...]  # Rows of blocks.
    dimensions: dict[str, int]
    frozen: str = "model.embed_tokens"
    versions: tuple[int, ...] = (4, 5)


def _decoder(spec: str, family: str, versions: tuple[int, ...] = (4, 5), **sizes: Any) -> Model:
    return Model(spec, f"{family}Config", f"{family}ForCausalLM", {"num_hidden_layers": LAYERS, **sizes},
                 ("model.layers",), {"batch": 1, "seq": 64}, versions=versions)


MODELS = (
    _decoder("llama3_2_1b", "Llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_attention_heads=32,
             num_key_value_heads=8, head_dim=64, tie_word_embeddings=True),
    _decoder("llama3_1_8b", "Llama", vocab_size=128256, hidden_size=4096, intermediate_size=14336,
             num_attention_heads=32, num_key_value_heads=8),
    _decoder("qwen3_0_6b", "Qwen3", vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_attention_heads=16,
             num_key_value_heads=8, head_dim=128, tie_word_embeddings=True),
    _decoder("qwen2_5_7b", "Qwen2", vocab_size=152064, hidden_size=3584, intermediate_size=18944,
             num_attention_heads=28, num_key_value_heads=4, tie_word_embeddings=False),
    _decoder("mistral_7b_v0_3", "Mistral", vocab_size=32768, hidden_size=4096, intermediate_size=14336,
             num_attention_heads=32, num_key_value_heads=8, sliding_window=None),
    _decoder("gemma2_9b", "Gemma2", vocab_size=256000, hidden_size=3584, intermediate_size=14336, num_attention_heads=16,
             num_key_value_heads=8, head_dim=256),
    Model("gpt2", "GPT2Config", "GPT2LMHeadModel", {"n_layer": LAYERS}, ("transformer.h",), {"batch": 2, "seq": 64},
          "transformer.wpe"),
    Model("bert_large", "BertConfig", "BertForPreTraining",
          {"num_hidden_layers": LAYERS, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096},
          ("bert.encoder.layer",), {"batch": 2, "seq": 64}, "bert.embeddings.LayerNorm"),
    Model("t5_3b", "T5Config", "T5ForConditionalGeneration",
          {"num_layers": LAYERS, "num_decoder_layers": LAYERS, "d_model": 1024, "d_ff": 16384, "d_kv": 128,
           "num_heads": 32}, ("encoder.block", "decoder.block"), {"batch": 1, "seq": 64, "target_seq": 32},
          "encoder.final_layer_norm"),
    Model("whisper_large_v3", "WhisperConfig", "WhisperForConditionalGeneration",
          {"encoder_layers": LAYERS, "decoder_layers": LAYERS, "d_model": 1280, "encoder_attention_heads": 20,
           "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "vocab_size": 51866,
           "num_mel_bins": 128},
          ("model.encoder.layers", "model.decoder.layers"), {"batch": 2, "target_seq": 48}, "model.encoder.layer_norm"),
)

# By name: what the plan has beside its units. `frozen` freezes what the model names for it.
PLANS: dict[str, dict[str, Any]] = {
    "mixed": {"mesh": {"replicate": 1, "shard": 4}, "parameter_dtype": "float32", "mixed_precision": MIXED,
              "optimizer": {"clip_grad_norm": 1.0}},
    "hybrid": {"mesh": {"replicate": 2, "shard": 3}, "parameter_dtype": "float32", "accumulation": 2,
               "sync_every_micro_batch": False, "optimizer": {"clip_grad_norm": 1.0}},
    "checkpointed": {"mesh": {"replicate": 1, "shard": 8}, "parameter_dtype": "float32", "mixed_precision": MIXED,
                     "reshard": 4, "full": True},
    "frozen": {"mesh": {"replicate": 1, "shard": 2}, "parameter_dtype": "float32", "mixed_precision": MIXED,
               "reshard": False, "freeze": True},
}


def cut_spec(name: str) -> dict[str, Any]:
    """The spec of the library with two blocks in each row."""
    spec = json.loads((ROOT / "model_specs" / f"{name}.json").read_text(encoding="utf-8"))
    spec.pop("$schema", None)
    for module in spec["modules"]:
        module["name"] = re.sub(r"\{0\.\.\d+\}", "{0..%d}" % (LAYERS - 1), module["name"])
        for key, values in module.get("per_layer", {}).items():
            if isinstance(values, list) and len(values) > LAYERS:
                module["per_layer"][key] = values[:LAYERS]
    return spec


def cases(version: int) -> list[tuple[Case, dict[str, Any]]]:
    """Each model under each plan, and what the worker must know of it."""
    made = []
    for model in MODELS:
        if version not in model.versions:
            continue
        rows = [row + ".{0..%d}" % (LAYERS - 1) for row in model.layers]
        for name, given in PLANS.items():
            plan = dict(given)
            reshard, full, freeze = plan.pop("reshard", "default"), plan.pop("full", False), plan.pop("freeze", False)
            plan["units"] = [{"modules": [row], "modules_per_unit": 1, "reshard_after_forward": reshard} for row in rows]
            plan["units"].append({"modules": [""]})
            plan["initialization"] = "device"
            if full:
                plan["activation_checkpointing"] = {"modules": [{"module": row, "mode": "full"} for row in rows]}
            case = Case(f"{model.spec}/{name}/transformers_{version}", cut_spec(model.spec), plan, 1,
                        dict(model.dimensions), [model.frozen] if freeze else [])
            made.append((case, {"config": model.config, "class": model.model, "sizes": model.sizes, "full": full}))
    return made
