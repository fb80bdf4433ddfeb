"""Models of Hugging Face transformers, a few layers of each, under plans as people write them.

The spec is the one of the library with its rows of blocks cut, or a published config.json; the model is made from a
configuration with the same sizes.
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

def _folder(name: str, family: str, model_type: str, layers: int = LAYERS, versions: tuple[int, ...] = (4, 5),
            frozen: str = "model.embed_tokens", units: tuple[str, ...] = ("model.layers",),
            dimensions: dict[str, int] | None = None, model: str | None = None, **keys: Any) -> Folder:
    return Folder(name, f"{family}Config", model or f"{family}ForCausalLM",
                  {"model_type": model_type, "num_hidden_layers": layers, **keys}, layers, units,
                  dimensions or {"batch": 2, "seq": 512}, frozen, versions)


@dataclasses.dataclass(frozen=True)
class Folder:
    """A published config.json with few layers, which is the spec."""

    name: str
    config: str  # Class.
    model: str  # Class.
    keys: dict[str, Any]
    num_layers: int
    layers: tuple[str, ...]  # Stacks of blocks.
    dimensions: dict[str, int]
    frozen: str
    versions: tuple[int, ...]


FOLDERS = (
    _folder("SmolLM3-3B", "SmolLM3", "smollm3", 4, vocab_size=128256, hidden_size=2048, intermediate_size=11008,
            num_attention_heads=16, num_key_value_heads=4, max_position_embeddings=65536, rope_theta=5000000.0,
            no_rope_layers=[1, 1, 1, 0], pad_token_id=128004, tie_word_embeddings=True),
    _folder("phi-4", "Phi3", "phi3", vocab_size=100352, hidden_size=5120, intermediate_size=17920,
            num_attention_heads=40, num_key_value_heads=10, max_position_embeddings=16384, rope_theta=250000.0,
            original_max_position_embeddings=16384, pad_token_id=100349, tie_word_embeddings=False),
    _folder("Ministral-8B-Instruct-2410", "Mistral", "mistral", vocab_size=131072, hidden_size=4096, intermediate_size=12288,
            num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=32768,
            rope_theta=100000000.0, sliding_window=32768, rms_norm_eps=1e-5, tie_word_embeddings=False),
    _folder("Mistral-Small-24B-Base-2501", "Mistral", "mistral", vocab_size=131072, hidden_size=5120,
            intermediate_size=32768, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
            max_position_embeddings=32768, rope_theta=100000000.0, sliding_window=None, rms_norm_eps=1e-5,
            tie_word_embeddings=False),
    _folder("OLMo-2-1124-7B", "Olmo2", "olmo2", vocab_size=100352, hidden_size=4096, intermediate_size=11008,
            num_attention_heads=32, num_key_value_heads=32, max_position_embeddings=4096, rope_theta=500000.0,
            rms_norm_eps=1e-6, pad_token_id=100277, tie_word_embeddings=False),
    _folder("Olmo-3-1025-7B", "Olmo3", "olmo3", 4, vocab_size=100278, hidden_size=4096, intermediate_size=11008,
            num_attention_heads=32, num_key_value_heads=32, max_position_embeddings=65536, rope_theta=500000.0,
            rope_scaling={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192,
                          "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0},
            rms_norm_eps=1e-6, pad_token_id=100277, sliding_window=4096, tie_word_embeddings=False),
    _folder("gemma-3-1b-pt", "Gemma3Text", "gemma3_text", 6, model="Gemma3ForCausalLM", vocab_size=262144, hidden_size=1152,
            intermediate_size=6912, num_attention_heads=4, num_key_value_heads=1, head_dim=256,
            max_position_embeddings=32768, rope_theta=1000000.0, rope_local_base_freq=10000.0, sliding_window=1024,
            sliding_window_pattern=6, query_pre_attn_scalar=256, pad_token_id=0, tie_word_embeddings=True),
    _folder("GLM-4-9B-0414", "Glm4", "glm4", vocab_size=151552, hidden_size=4096, intermediate_size=13696,
            num_attention_heads=32, num_key_value_heads=2, head_dim=128, max_position_embeddings=32768,
            rope_theta=10000.0, partial_rotary_factor=0.5, attention_bias=True, rms_norm_eps=1e-5, pad_token_id=151329,
            tie_word_embeddings=False),
    _folder("gemma-7b", "Gemma", "gemma", vocab_size=256000, hidden_size=3072, intermediate_size=24576, num_attention_heads=16,
            num_key_value_heads=16, head_dim=256, max_position_embeddings=8192, rope_theta=10000.0, pad_token_id=0,
            tie_word_embeddings=True),
    _folder("Seed-OSS-36B-Instruct", "SeedOss", "seed_oss", vocab_size=155136, hidden_size=5120, intermediate_size=27648,
            num_attention_heads=80, num_key_value_heads=8, head_dim=128, max_position_embeddings=524288,
            rope_theta=10000000.0, attention_bias=True, attention_dropout=0.1, residual_dropout=0.1, pad_token_id=1,
            tie_word_embeddings=False),
    _folder("EXAONE-4.0-32B", "Exaone4", "exaone4", 4, vocab_size=102400, hidden_size=5120, intermediate_size=27392,
            num_attention_heads=40, num_key_value_heads=8, head_dim=128, max_position_embeddings=131072,
            rope_theta=1000000.0, rms_norm_eps=1e-5, sliding_window=4096, sliding_window_pattern=4,
            tie_word_embeddings=False),
    _folder("Qwen3-30B-A3B", "Qwen3Moe", "qwen3_moe", versions=(5,), transformers_version="5.0.0", vocab_size=151936,
            hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768, num_attention_heads=32,
            num_key_value_heads=4, head_dim=128, num_experts=128, num_experts_per_tok=8, norm_topk_prob=True,
            max_position_embeddings=40960, rope_theta=1000000.0, tie_word_embeddings=False),
    _folder("Mixtral-8x7B-v0.1", "Mixtral", "mixtral", versions=(5,), transformers_version="5.0.0", vocab_size=32000,
            hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8,
            num_local_experts=8, num_experts_per_tok=2, max_position_embeddings=32768, rope_theta=1000000.0,
            rms_norm_eps=1e-5, sliding_window=None, tie_word_embeddings=False),
    _folder("GLM-4.5-Air", "Glm4Moe", "glm4_moe", versions=(5,), vocab_size=151552, hidden_size=4096,
            intermediate_size=10944, moe_intermediate_size=1408, num_attention_heads=96, num_key_value_heads=8,
            head_dim=128, n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1,
            n_group=1, topk_group=1, routed_scaling_factor=1.0, norm_topk_prob=True, attention_bias=True,
            use_qk_norm=False, partial_rotary_factor=0.5, max_position_embeddings=131072, rope_theta=1000000.0,
            rms_norm_eps=1e-5, tie_word_embeddings=False),
    _folder("gpt-oss-20b", "GptOss", "gpt_oss", versions=(5,), vocab_size=201088, hidden_size=2880, intermediate_size=2880,
            num_attention_heads=64, num_key_value_heads=8, head_dim=64, num_local_experts=32, num_experts_per_tok=4,
            max_position_embeddings=131072, rope_theta=150000, rms_norm_eps=1e-5, sliding_window=128, attention_bias=True,
            rope_scaling={"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                          "original_max_position_embeddings": 4096},
            pad_token_id=199999, tie_word_embeddings=False),
    _folder("Moonlight-16B-A3B", "DeepseekV3", "deepseek_v3", versions=(5,), vocab_size=163840, hidden_size=2048,
            intermediate_size=11264, moe_intermediate_size=1408, num_attention_heads=16, num_key_value_heads=16,
            n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, n_group=1, topk_group=1,
            routed_scaling_factor=2.446, norm_topk_prob=True, kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64,
            v_head_dim=128, qk_nope_head_dim=128, max_position_embeddings=8192, rope_theta=50000.0, rms_norm_eps=1e-5,
            pad_token_id=163839, tie_word_embeddings=False),
    _folder("DeepSeek-V3", "DeepseekV3", "deepseek_v3", versions=(5,), vocab_size=129280, hidden_size=7168,
            intermediate_size=18432, moe_intermediate_size=2048, num_attention_heads=128, num_key_value_heads=128,
            n_routed_experts=32, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1, n_group=8, topk_group=4,
            routed_scaling_factor=2.5, norm_topk_prob=True, kv_lora_rank=512, q_lora_rank=1536, qk_rope_head_dim=64,
            v_head_dim=128, qk_nope_head_dim=128, max_position_embeddings=163840, rope_theta=10000.0, rms_norm_eps=1e-6,
            rope_scaling={"rope_type": "yarn", "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                          "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}, tie_word_embeddings=False),
    _folder("DeepSeek-V2-Lite", "DeepseekV2", "deepseek_v2", versions=(5,), vocab_size=102400, hidden_size=2048,
            intermediate_size=10944, moe_intermediate_size=1408, num_attention_heads=16, num_key_value_heads=16,
            n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, n_group=1, topk_group=1,
            topk_method="greedy", routed_scaling_factor=1.0, norm_topk_prob=False, kv_lora_rank=512, q_lora_rank=None,
            qk_rope_head_dim=64, v_head_dim=128, qk_nope_head_dim=128, max_position_embeddings=163840, rope_theta=10000.0,
            rope_scaling={"rope_type": "yarn", "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.707,
                          "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096},
            rms_norm_eps=1e-6, tie_word_embeddings=False),
    _folder("GLM-4.7-Flash", "Glm4MoeLite", "glm4_moe_lite", versions=(5,), vocab_size=154880, hidden_size=2048,
            intermediate_size=10240, moe_intermediate_size=1536, num_attention_heads=20, num_key_value_heads=20,
            n_routed_experts=64, n_shared_experts=1, num_experts_per_tok=4, n_group=1, topk_group=1, routed_scaling_factor=1.8,
            norm_topk_prob=True, kv_lora_rank=512, q_lora_rank=768, qk_rope_head_dim=64, v_head_dim=256,
            qk_nope_head_dim=192, max_position_embeddings=202752, rope_theta=1000000.0, rms_norm_eps=1e-5,
            pad_token_id=154820, tie_word_embeddings=False),
    _folder("AFM-4.5B", "Arcee", "arcee", versions=(5,), vocab_size=128004, hidden_size=2560, intermediate_size=18432,
            num_attention_heads=20, num_key_value_heads=4, head_dim=128, max_position_embeddings=65536, rope_theta=10000.0,
            rms_norm_eps=1e-5, tie_word_embeddings=False),
    _folder("ERNIE-4.5-0.3B-PT", "Ernie4_5", "ernie4_5", versions=(5,), vocab_size=103424, hidden_size=1024, intermediate_size=3072,
            num_attention_heads=16, num_key_value_heads=2, head_dim=128, max_position_embeddings=131072, rope_theta=500000.0,
            rms_norm_eps=1e-5, pad_token_id=0, tie_word_embeddings=True),
    _folder("Hunyuan-7B-Instruct", "HunYuanDenseV1", "hunyuan_v1_dense", versions=(5,), vocab_size=128167, hidden_size=4096,
            intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=32768,
            rope_theta=10000.0, rms_norm_eps=1e-5, pad_token_id=127961, tie_word_embeddings=True),
    _folder("Ministral-3-3B", "Ministral3", "ministral3", versions=(5,), vocab_size=131072, hidden_size=3072, intermediate_size=9216,
            num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=262144, rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
                             "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384,
                             "llama_4_scaling_beta": 0.1}, tie_word_embeddings=True),
    _folder("c4ai-command-r7b-12-2024", "Cohere2", "cohere2", 4, versions=(5,), vocab_size=256000, hidden_size=4096,
            intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=132096,
            rope_theta=50000, logit_scale=0.25, layer_norm_eps=1e-5, sliding_window=4096, pad_token_id=0,
            tie_word_embeddings=True),
    _folder("phi-2", "Phi", "phi", versions=(5,), vocab_size=51200, hidden_size=2560, intermediate_size=10240,
            num_attention_heads=32, num_key_value_heads=32, max_position_embeddings=2048, rope_theta=10000.0, resid_pdrop=0.1,
            partial_rotary_factor=0.4, tie_word_embeddings=False),
    _folder("starcoder2-7b", "Starcoder2", "starcoder2", versions=(5,), vocab_size=49152, hidden_size=4608,
            intermediate_size=18432, num_attention_heads=36, num_key_value_heads=4, max_position_embeddings=16384,
            rope_theta=1000000.0, sliding_window=4096, attention_dropout=0.1, residual_dropout=0.1, embedding_dropout=0.1,
            tie_word_embeddings=False),
    _folder("stablelm-2-1_6b", "StableLm", "stablelm", versions=(5,), vocab_size=100352, hidden_size=2048,
            intermediate_size=5632, num_attention_heads=32, num_key_value_heads=32, max_position_embeddings=4096,
            rope_theta=10000, use_qkv_bias=True, partial_rotary_factor=0.25, tie_word_embeddings=False),
    _folder("Nemotron-Mini-4B-Instruct", "Nemotron", "nemotron", versions=(5,), vocab_size=256000, hidden_size=3072,
            intermediate_size=9216, num_attention_heads=24, num_key_value_heads=8, head_dim=128, max_position_embeddings=4096,
            rope_theta=10000, partial_rotary_factor=0.5, tie_word_embeddings=False),
    _folder("MiniMax-M2.5", "MiniMaxM2", "minimax_m2", versions=(5,), vocab_size=200064, hidden_size=3072, intermediate_size=1536,
            num_attention_heads=48, num_key_value_heads=8, head_dim=128, num_local_experts=64, num_experts_per_tok=8,
            rotary_dim=64, max_position_embeddings=196608, rope_theta=5000000, tie_word_embeddings=False),
    _folder("Qwen1.5-MoE-A2.7B", "Qwen2Moe", "qwen2_moe", versions=(5,), vocab_size=151936, hidden_size=2048,
            intermediate_size=5632, moe_intermediate_size=1408, shared_expert_intermediate_size=5632, num_attention_heads=16,
            num_key_value_heads=16, num_experts=60, num_experts_per_tok=4, max_position_embeddings=8192, rope_theta=1000000.0,
            tie_word_embeddings=False),
    _folder("granite-3.3-2b-base", "Granite", "granite", vocab_size=49152, hidden_size=2048, intermediate_size=8192,
            num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072, rope_theta=10000000.0,
            rms_norm_eps=1e-5, embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22,
            attention_multiplier=0.015625, pad_token_id=0, tie_word_embeddings=True),
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


def folder_cases(version: int, names: list[str] | None = None) -> list[tuple[Case, dict[str, Any]]]:
    """The same of published configurations."""
    made = []
    for folder in FOLDERS:
        if version not in folder.versions or (names and folder.name not in names):
            continue
        rows = [row + ".{0..%d}" % (folder.num_layers - 1) for row in folder.layers]
        wrote = {"transformers_version": "5.24.0"} if version == 5 else {}
        spec = {"architectures": [folder.model], **wrote, **folder.keys}
        sizes = {key: value for key, value in folder.keys.items() if key not in ("model_type", "transformers_version")}
        for name, given in PLANS.items():
            plan, full, frozen = _plan(given, rows, folder.frozen)
            made.append((Case(f"{folder.name}/{name}/transformers_{version}", spec, plan, 1, dict(folder.dimensions), frozen),
                         {"config": folder.config, "class": folder.model, "sizes": sizes, "full": full}))
    return made


def _plan(given: dict[str, Any], rows: list[str], frozen: str) -> tuple[dict[str, Any], bool, list[str]]:
    """A plan with its units, whether it checkpoints, and what it freezes."""
    plan = dict(given)
    reshard, full, freeze = plan.pop("reshard", "default"), plan.pop("full", False), plan.pop("freeze", False)
    plan["units"] = [{"modules": [row], "modules_per_unit": 1, "reshard_after_forward": reshard} for row in rows]
    plan["units"].append({"modules": [""]})
    plan["initialization"] = "device"
    if full:
        plan["activation_checkpointing"] = {"modules": [{"module": row, "mode": "full"} for row in rows]}
    return plan, full, [frozen] if freeze else []


def cases(version: int) -> list[tuple[Case, dict[str, Any]]]:
    """Each model under each plan, and what the worker must know of it."""
    made = []
    for model in MODELS:
        if version not in model.versions:
            continue
        rows = [row + ".{0..%d}" % (LAYERS - 1) for row in model.layers]
        for name, given in PLANS.items():
            plan, full, frozen = _plan(given, rows, model.frozen)
            case = Case(f"{model.spec}/{name}/transformers_{version}", cut_spec(model.spec), plan, 1,
                        dict(model.dimensions), frozen)
            made.append((case, {"config": model.config, "class": model.model, "sizes": model.sizes, "full": full}))
    return made
