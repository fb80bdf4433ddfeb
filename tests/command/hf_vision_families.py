"""Configurations of models with a tower for images, and of encoders, for hf_models_test.py: classes, and small sizes."""

from __future__ import annotations

from typing import Any

Families = dict[str, tuple[str, str, tuple[dict[str, Any], ...]]]

LOCAL_AND_GLOBAL = ["sliding_attention", "full_attention", "sliding_attention"]
QWEN_TOWER = {"depth": 3, "hidden_size": 32, "num_heads": 2, "intermediate_size": 40, "out_hidden_size": 48, "patch_size": 4}
TOWER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40, "image_size": 16,
               "patch_size": 4}


def of_vision_models(small: dict[str, Any]) -> Families:
    """`small`: sizes of a decoder."""
    mrope = {**small, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}}
    hybrid = {**small, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
              "rope_parameters": {**mrope["rope_parameters"], "partial_rotary_factor": 0.5},
              "layer_types": ["linear_attention", "full_attention", "linear_attention"]}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40}
    return {
        "qwen3_5_vision": ("Qwen3_5Config", "Qwen3_5ForConditionalGeneration", ({"text_config": hybrid, "vision_config": QWEN_TOWER},)),
        "qwen3_5_moe_vision": ("Qwen3_5MoeConfig", "Qwen3_5MoeForConditionalGeneration", (
            {"text_config": {**hybrid, **experts}, "vision_config": QWEN_TOWER, "tie_word_embeddings": True},)),
        "qwen2_vl": ("Qwen2VLConfig", "Qwen2VLForConditionalGeneration", (
            {"text_config": mrope, "vision_config": {"depth": 2, "embed_dim": 32, "num_heads": 2, "hidden_size": 48, "mlp_ratio": 3}},)),
        "qwen2_5_vl": ("Qwen2_5_VLConfig", "Qwen2_5_VLForConditionalGeneration", (
            {"text_config": mrope, "vision_config": QWEN_TOWER},
            {"text_config": mrope, "vision_config": {**QWEN_TOWER, "fullatt_block_indexes": [1], "window_size": 16},
             "tie_word_embeddings": True})),
        "qwen3_vl": ("Qwen3VLConfig", "Qwen3VLForConditionalGeneration", (
            {"text_config": {**mrope, "head_dim": 8}, "vision_config": {**QWEN_TOWER, "deepstack_visual_indexes": [0, 1]}},
            {"text_config": {**mrope, "head_dim": 8, "attention_bias": True}, "tie_word_embeddings": True,
             "vision_config": {**QWEN_TOWER, "deepstack_visual_indexes": [2]}})),
        "qwen3_vl_moe": ("Qwen3VLMoeConfig", "Qwen3VLMoeForConditionalGeneration", (
            {"text_config": {**mrope, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "mlp_only_layers": [1]},
             "vision_config": {**QWEN_TOWER, "deepstack_visual_indexes": [0, 1]}},)),
        "gemma3_vision": ("Gemma3Config", "Gemma3ForConditionalGeneration", (
            {"text_config": {**small, "head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 12, "layer_types": LOCAL_AND_GLOBAL},
             "mm_tokens_per_image": 4,
             "vision_config": {"model_type": "siglip_vision_model", **TOWER, "vision_use_head": False}},
            {"text_config": {**small, "head_dim": 8, "sliding_window": 5, "layer_types": LOCAL_AND_GLOBAL}, "mm_tokens_per_image": 4,
             "tie_word_embeddings": False,
             "vision_config": {"model_type": "siglip_vision_model", **TOWER}})),
        "llama4": ("Llama4Config", "Llama4ForConditionalGeneration", (
            {"text_config": {**small, "head_dim": 8, "intermediate_size_mlp": 56, "num_local_experts": 4, "num_experts_per_tok": 2},
             "vision_config": {**TOWER, "projector_input_dim": 40, "projector_output_dim": 40, "vision_output_dim": 40}},)),
        "mistral3": ("Mistral3Config", "Mistral3ForConditionalGeneration", (
            {"text_config": {"model_type": "mistral", **small, "sliding_window": None}, "tie_word_embeddings": False,
             "vision_config": {"model_type": "pixtral", **TOWER}},
            {"text_config": {"model_type": "ministral3", **small, "head_dim": 8}, "multimodal_projector_bias": True,
             "vision_feature_layer": [-1, -2], "vision_config": {"model_type": "pixtral", **TOWER}})),
    }


def of_encoders(small: dict[str, Any]) -> Families:
    """`small`: sizes of BERT."""
    return {
        "roberta_classes": ("RobertaConfig", "RobertaForSequenceClassification", ({**small, "num_labels": 3}, {**small, "num_labels": 4, "type_vocab_size": 1, "layer_norm_eps": 1e-5})),
        "xlm_roberta_classes": ("XLMRobertaConfig", "XLMRobertaForSequenceClassification", ({**small, "num_labels": 5},)),
    }
