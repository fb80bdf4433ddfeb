"""Configurations of decoders of hf_models_test.py: with LayerNorm, without a gate, side by side; Ministral 3, Hunyuan, ERNIE 4.5;
MiniMax-M2 and Qwen2-MoE. Each has the classes of transformers 5, and the sizes that are computed with.
"""

from __future__ import annotations

from typing import Any

DENSE = {"vocab_size": 99, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
         "num_key_value_heads": 2}
MIXTURE = {**DENSE, "num_experts_per_tok": 2}


def dict_of(config: str, model: str, small: tuple[dict[str, Any], ...], **more: Any) -> dict[str, Any]:
    """The arguments of a Family."""
    return {"config": config, "model": model, "small": small, **more}


DECODERS = {
    "arcee": dict_of("ArceeConfig", "ArceeForCausalLM", (
        {**DENSE}, {**DENSE, "head_dim": 10, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True})),
    "ernie4_5": dict_of("Ernie4_5Config", "Ernie4_5ForCausalLM", (
        {**DENSE, "head_dim": 16}, {**DENSE, "head_dim": 8, "use_bias": True, "tie_word_embeddings": False})),
    "hunyuan": dict_of("HunYuanDenseV1Config", "HunYuanDenseV1ForCausalLM", (
        {**DENSE, "head_dim": 16}, {**DENSE, "head_dim": 8, "attention_bias": True, "tie_word_embeddings": True}),
        has_defaults=False),
    "ministral": dict_of("MinistralConfig", "MinistralForCausalLM", (
        {**DENSE, "head_dim": 8, "sliding_window": 5},
        {**DENSE, "head_dim": 16, "sliding_window": 4,
         "layer_types": ["full_attention", "sliding_attention", "full_attention"]}), has_defaults=False),
    "ministral3": dict_of("Ministral3Config", "Ministral3ForCausalLM", (
        {**DENSE, "head_dim": 16}, {**DENSE, "head_dim": 8, "sliding_window": 5, "tie_word_embeddings": True}), versions=(5,)),
    "cohere": dict_of("CohereConfig", "CohereForCausalLM", (
        {**DENSE}, {**DENSE, "attention_bias": True, "logit_scale": 0.25, "tie_word_embeddings": False})),
    "cohere2": dict_of("Cohere2Config", "Cohere2ForCausalLM", (
        {**DENSE, "sliding_window": 5, "num_hidden_layers": 4},
        {**DENSE, "attention_bias": True, "logit_scale": 1.0, "sliding_window": 4, "tie_word_embeddings": False,
         "layer_types": ["full_attention", "sliding_attention", "full_attention"]})),
    "phi": dict_of("PhiConfig", "PhiForCausalLM", (
        {**DENSE, "num_attention_heads": 3, "num_key_value_heads": 3},
        {**DENSE, "num_attention_heads": 3, "num_key_value_heads": 1, "partial_rotary_factor": 0.25})),
    "starcoder2": dict_of("Starcoder2Config", "Starcoder2ForCausalLM", (
        {**DENSE}, {**DENSE, "use_bias": False, "sliding_window": 5, "tie_word_embeddings": False})),
    "stablelm": dict_of("StableLmConfig", "StableLmForCausalLM", (
        {**DENSE, "num_attention_heads": 3, "num_key_value_heads": 1},
        {**DENSE, "num_attention_heads": 3, "num_key_value_heads": 3, "use_qkv_bias": True, "use_parallel_residual": True,
         "partial_rotary_factor": 0.5})),
    "nemotron": dict_of("NemotronConfig", "NemotronForCausalLM", (
        {**DENSE, "head_dim": 8}, {**DENSE, "head_dim": 16, "attention_bias": True, "mlp_bias": True, "partial_rotary_factor": 0.25}),
        has_defaults=False),
    "minimax_m2": dict_of("MiniMaxM2Config", "MiniMaxM2ForCausalLM", (
        {**MIXTURE, "head_dim": 16, "num_local_experts": 4},
        {**MIXTURE, "head_dim": 16, "num_local_experts": 6, "rotary_dim": 8, "tie_word_embeddings": True}), versions=(5,)),
    "qwen2_moe": dict_of("Qwen2MoeConfig", "Qwen2MoeForCausalLM", (
        {**MIXTURE, "num_experts": 4, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40},
        {**MIXTURE, "num_experts": 6, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 32, "norm_topk_prob": True,
         "mlp_only_layers": [1], "tie_word_embeddings": True}), versions=(5,)),
}
