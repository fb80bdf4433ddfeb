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


LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12}
SHARED = {**MIXTURE, "num_experts": 4, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40}
TURNED = {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}}


DECODERS = {
    "qwen3_5": dict_of("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", (
        {**DENSE, **LINEAR, "head_dim": 16, **TURNED}, {**DENSE, **LINEAR, "head_dim": 8, "attention_bias": True, "tie_word_embeddings": True,
         "linear_conv_kernel_dim": 3, "linear_num_key_heads": 4, **TURNED, "layer_types": ["full_attention", "linear_attention", "full_attention"]}),
        versions=(5,)),
    "qwen3_5_moe": dict_of("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM", ({**SHARED, **LINEAR, "head_dim": 16, **TURNED},), versions=(5,)),
    "nemotron_h": dict_of("NemotronHConfig", "NemotronHForCausalLM", (
        {**DENSE, "head_dim": 8, "mamba_num_heads": 4, "mamba_head_dim": 12, "ssm_state_size": 6, "n_groups": 2, "chunk_size": 4,
         "layers_block_type": ["linear_attention", "mlp", "full_attention"]},
        {**DENSE, "head_dim": 16, "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 5, "n_groups": 4, "chunk_size": 8, "conv_kernel": 3,
         "use_conv_bias": False, "use_bias": True, "mlp_bias": True, "layers_block_type": ["full_attention", "linear_attention"]}),
        versions=(5,), has_defaults=False),
    "qwen3_next": dict_of("Qwen3NextConfig", "Qwen3NextForCausalLM", (
        {**SHARED, **LINEAR, "head_dim": 16, **TURNED}, {**SHARED, **LINEAR, "head_dim": 8, "norm_topk_prob": False, "mlp_only_layers": [1],
         "layer_types": ["full_attention", "linear_attention", "full_attention"], **TURNED}), versions=(5,)),
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
    "llama4_text": dict_of("Llama4TextConfig", "Llama4ForCausalLM", (
        {**MIXTURE, "head_dim": 8, "intermediate_size_mlp": 56, "num_local_experts": 4, "attention_chunk_size": 5},
        {**MIXTURE, "head_dim": 16, "intermediate_size_mlp": 64, "num_local_experts": 3, "interleave_moe_layer_step": 2,
         "no_rope_layers": [1, 0, 1], "use_qk_norm": False, "attention_bias": True, "attn_temperature_tuning": False,
         "tie_word_embeddings": True}), versions=(5,)),
    "qwen2_moe": dict_of("Qwen2MoeConfig", "Qwen2MoeForCausalLM", (
        {**MIXTURE, "num_experts": 4, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40},
        {**MIXTURE, "num_experts": 6, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 32, "norm_topk_prob": True,
         "mlp_only_layers": [1], "tie_word_embeddings": True}), versions=(5,)),
}
