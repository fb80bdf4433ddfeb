"""Plans of frameworks other than FSDP2 that frameworks_test.py trains, and the features that each of them covers."""

from __future__ import annotations

from typing import Any

from parity_cases import CLIPPED, HALF, HALF_REDUCED, MIXED, Case, checkpointed
from small_models import each_block_a_unit

# Bytes of several buckets: the smallest cap is 1 MiB.
WIDE = {8192: 1500.0}


def ddp(name: str, model: str, ranks: int, plan: dict[str, Any] | None = None, ddp_options: dict[str, Any] | None = None,
        **case: Any) -> Case:
    members = {"runtime": {"name": "pytorch-ddp"}, **(plan or {})}
    if ddp_options:
        members["ddp"] = ddp_options
    return Case(name, model, 1, members, replicate=ranks, units=[{"modules": [""]}], **case)


# Sums of two ranks are the same in any bucket; of four ranks they depend on the gradient's place in its bucket.
DDP_CASES = [
    ddp("ddp_llama", "llama3_2_1b", 2, always=True),
    ddp("ddp_llama_alone", "llama3_2_1b", 1, CLIPPED),
    ddp("ddp_llama_of_4", "llama3_2_1b", 4, CLIPPED, numbers=WIDE, always=True),
    ddp("ddp_llama_small_buckets_of_4", "llama3_2_1b", 4, ddp_options={"bucket_cap_mb": 1}, numbers=WIDE, always=True),
    ddp("ddp_llama_of_3", "llama3_2_1b", 3, ddp_options={"bucket_cap_mb": 1}, numbers=WIDE),
    ddp("ddp_llama_bf16_of_4", "llama3_2_1b", 4, {"optimizer": {"clip_grad_norm": 0.1, "weight_decay": 0.1}},
        dtype="bfloat16", always=True),
    ddp("ddp_llama_accumulate_of_4", "llama3_2_1b", 4, {"accumulation": 2}, {"bucket_cap_mb": 1}, numbers=WIDE, always=True),
    ddp("ddp_llama_accumulate_without_sync_of_4", "llama3_2_1b", 4,
        {"accumulation": 3, "sync_every_micro_batch": False, **CLIPPED}, {"bucket_cap_mb": 1}, numbers=WIDE, always=True),
    ddp("ddp_llama_views_of_4", "llama3_2_1b", 4, CLIPPED, {"bucket_cap_mb": 1, "gradient_as_bucket_view": True},
        numbers=WIDE, always=True),
    ddp("ddp_llama_views_accumulate_of_4", "llama3_2_1b", 4, {"accumulation": 3},
        {"bucket_cap_mb": 1, "gradient_as_bucket_view": True}, numbers=WIDE, always=True),
    ddp("ddp_llama_views_accumulate_without_sync_of_3", "llama3_2_1b", 3,
        {"accumulation": 3, "sync_every_micro_batch": False}, {"gradient_as_bucket_view": True}, numbers=WIDE),
    ddp("ddp_llama_finds_unused_of_4", "llama3_2_1b", 4,
        ddp_options={"bucket_cap_mb": 1, "find_unused_parameters": True}, numbers=WIDE, always=True),
    ddp("ddp_qwen3_tts_unused", "qwen3_tts", 2, CLIPPED, {"find_unused_parameters": True}, always=True),
    ddp("ddp_qwen3_tts_unused_views_accumulate", "qwen3_tts", 2, {"accumulation": 2, "sync_every_micro_batch": False},
        {"find_unused_parameters": True, "gradient_as_bucket_view": True}),
    ddp("ddp_llama_checkpointed", "llama3_2_1b", 2, checkpointed("llama3_2_1b"), always=True),
    ddp("ddp_llama_selective", "llama3_2_1b", 2, checkpointed("llama3_2_1b", "selective")),
    ddp("ddp_llama_checkpointed_to_the_end", "llama3_2_1b", 2, checkpointed("llama3_2_1b", early_stop=False)),
    ddp("ddp_qwen3_tied_and_frozen_of_3", "qwen3_0_6b", 3, frozen=["model.layers.0.*", "model.norm.*"], always=True),
    ddp("ddp_qwen3_tied_views_of_4", "qwen3_0_6b", 4, ddp_options={"gradient_as_bucket_view": True}),
    ddp("ddp_gpt2_fused_of_4", "gpt2", 4, {"optimizer": {"implementation": "fused"}}, always=True),
    ddp("ddp_resnet", "resnet18", 4, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 1e-4}},
        learning_rate=0.1, always=True),
    ddp("ddp_resnet_own_buffers", "resnet18", 2, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 1e-4}},
        {"broadcast_buffers": False}, learning_rate=0.1),
    ddp("ddp_bert_of_4", "bert_large", 4, CLIPPED),
    ddp("ddp_t5", "t5_3b", 2, {"runtime": {"name": "pytorch-ddp", "implementations": {"attention": "eager"}}}),
    ddp("ddp_whisper_of_4", "whisper_large_v3", 4),
    ddp("ddp_vit_of_3", "vit_b_16", 3, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.0}}, learning_rate=0.1),
]


def fsdp1(name: str, model: str, shard: int, plan: dict[str, Any] | None = None,
          fsdp1_options: dict[str, Any] | None = None, **case: Any) -> Case:
    members = {"runtime": {"name": "pytorch-fsdp1"}, **(plan or {})}
    if fsdp1_options:
        members["fsdp1"] = fsdp1_options
    return Case(name, model, shard, members, **case)


VIEWS = {"use_orig_params": True}
WITHOUT_SYNC = {"accumulation": 3, "sync_every_micro_batch": False}
DECAYED = {"optimizer": {"clip_grad_norm": 0.1, "weight_decay": 0.1}}
REDUCED = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"}}


def kept(model: str) -> list[dict[str, Any]]:
    """Units of SHARD_GRAD_OP."""
    return each_block_a_unit(model, reshard_after_forward=False)


FSDP1_CASES = [
    fsdp1("fsdp1_llama", "llama3_2_1b", 2, always=True),
    fsdp1("fsdp1_llama_of_4", "llama3_2_1b", 4, DECAYED, always=True),
    fsdp1("fsdp1_llama_of_3", "llama3_2_1b", 3, CLIPPED),
    fsdp1("fsdp1_llama_views_of_4", "llama3_2_1b", 4, DECAYED, VIEWS, always=True),
    fsdp1("fsdp1_llama_views_of_3", "llama3_2_1b", 3, CLIPPED, VIEWS, always=True),
    fsdp1("fsdp1_llama_alone", "llama3_2_1b", 1, CLIPPED, always=True),
    fsdp1("fsdp1_llama_no_shard", "llama3_2_1b", 1, CLIPPED, replicate=2, always=True),
    fsdp1("fsdp1_llama_no_shard_views_of_4", "llama3_2_1b", 1, {**MIXED, **CLIPPED}, VIEWS, replicate=4, always=True),
    fsdp1("fsdp1_llama_no_shard_accumulate_of_3", "llama3_2_1b", 1, {**MIXED, "accumulation": 3}, replicate=3, always=True),
    fsdp1("fsdp1_llama_no_shard_accumulate_reduced_of_4", "llama3_2_1b", 1, {**REDUCED, "accumulation": 2}, replicate=4),
    fsdp1("fsdp1_llama_no_shard_without_sync_of_4", "llama3_2_1b", 1, {**WITHOUT_SYNC, **CLIPPED}, VIEWS, replicate=4),
    fsdp1("fsdp1_llama_shard_grad_op_of_4", "llama3_2_1b", 4, CLIPPED, units=kept("llama3_2_1b"), always=True),
    fsdp1("fsdp1_llama_shard_grad_op_without_sync", "llama3_2_1b", 2, {**MIXED, **WITHOUT_SYNC}, units=kept("llama3_2_1b"),
          always=True),
    fsdp1("fsdp1_llama_hybrid", "llama3_2_1b", 2, {**MIXED, **CLIPPED}, replicate=2, always=True),
    fsdp1("fsdp1_llama_hybrid_views_accumulate", "llama3_2_1b", 2, {"accumulation": 2, **CLIPPED}, VIEWS, replicate=2),
    fsdp1("fsdp1_llama_hybrid_zero2", "llama3_2_1b", 2, WITHOUT_SYNC, replicate=2, units=kept("llama3_2_1b"), always=True),
    fsdp1("fsdp1_llama_mixed_views", "llama3_2_1b", 2, {**MIXED, **CLIPPED}, VIEWS, dtype="bfloat16", always=True),
    fsdp1("fsdp1_llama_bf16_reduced_of_4", "llama3_2_1b", 4, {**REDUCED, "accumulation": 2}, always=True),
    fsdp1("fsdp1_llama_pure_bf16_of_4", "llama3_2_1b", 4, DECAYED, dtype="bfloat16", always=True),
    fsdp1("fsdp1_llama_pure_bf16_views", "llama3_2_1b", 2, DECAYED, VIEWS, dtype="bfloat16"),
    fsdp1("fsdp1_llama_half", "llama3_2_1b", 2, {**HALF, **CLIPPED}),
    fsdp1("fsdp1_llama_half_reduced_of_3", "llama3_2_1b", 3, HALF_REDUCED, VIEWS),
    fsdp1("fsdp1_llama_cast_inputs", "llama3_2_1b", 2,
          {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16", "cast_forward_inputs": True}}),
    fsdp1("fsdp1_llama_accumulate_of_4", "llama3_2_1b", 4, {"accumulation": 2}, always=True),
    fsdp1("fsdp1_llama_accumulate_views_of_3", "llama3_2_1b", 3, {**MIXED, "accumulation": 2, **CLIPPED}, VIEWS, always=True),
    fsdp1("fsdp1_llama_without_sync_of_3", "llama3_2_1b", 3, {**MIXED, **WITHOUT_SYNC, **CLIPPED}, always=True),
    fsdp1("fsdp1_llama_without_sync_views_of_4", "llama3_2_1b", 4, {**WITHOUT_SYNC, **CLIPPED}, VIEWS, always=True),
    fsdp1("fsdp1_llama_post_of_4", "llama3_2_1b", 4, CLIPPED, {"backward_prefetch": "post", "forward_prefetch": True},
          always=True),
    fsdp1("fsdp1_llama_no_prefetch", "llama3_2_1b", 2, None, {"backward_prefetch": "none", "limit_all_gathers": False}),
    fsdp1("fsdp1_llama_forward_prefetch_views", "llama3_2_1b", 2, {**MIXED, "accumulation": 2},
          {"forward_prefetch": True, **VIEWS}),
    fsdp1("fsdp1_llama_one_unit", "llama3_2_1b", 2, CLIPPED, units=[{"modules": [""]}]),
    fsdp1("fsdp1_llama_checkpointed", "llama3_2_1b", 2, checkpointed("llama3_2_1b"), always=True),
    fsdp1("fsdp1_llama_checkpointed_to_the_end", "llama3_2_1b", 2, checkpointed("llama3_2_1b", early_stop=False)),
    fsdp1("fsdp1_llama_mixed_selective_views", "llama3_2_1b", 2, {**MIXED, **checkpointed("llama3_2_1b", "selective")}, VIEWS),
    fsdp1("fsdp1_qwen3_tied", "qwen3_0_6b", 4, CLIPPED, always=True),
    fsdp1("fsdp1_qwen3_tied_views_frozen_of_3", "qwen3_0_6b", 3, None, VIEWS, frozen=["model.layers.0.*"], always=True),
    fsdp1("fsdp1_qwen3_frozen_mixed", "qwen3_0_6b", 2, MIXED, frozen=["model.layers.0.*"], dtype="bfloat16"),
    fsdp1("fsdp1_qwen3_tts_unused", "qwen3_tts", 2, CLIPPED, always=True),
    fsdp1("fsdp1_qwen3_tts_unused_views", "qwen3_tts", 2, DECAYED, VIEWS, always=True),
    fsdp1("fsdp1_gpt2_fused_of_4", "gpt2", 4, {"optimizer": {"implementation": "fused"}}, always=True),
    fsdp1("fsdp1_gpt2_adam_for_loop_views_of_3", "gpt2", 3,
          {"optimizer": {"kind": "adam", "implementation": "for_loop", "weight_decay": 0.1}}, VIEWS),
    fsdp1("fsdp1_resnet", "resnet18", 2, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 1e-4}},
          learning_rate=0.1, always=True),
    fsdp1("fsdp1_bert_of_4", "bert_large", 4, CLIPPED, VIEWS),
    fsdp1("fsdp1_gemma2_mixed_of_3", "gemma2_9b", 3, MIXED, dtype="bfloat16"),
    fsdp1("fsdp1_t5", "t5_3b", 2, {"runtime": {"name": "pytorch-fsdp1", "implementations": {"attention": "eager"}}}),
    # Frozen parameters next to trained ones have their own unit.
    fsdp1("fsdp1_whisper_of_4", "whisper_large_v3", 4, None, VIEWS,
          units=[{"modules": ["model.encoder.embed_positions"]}, *each_block_a_unit("whisper_large_v3")]),
    fsdp1("fsdp1_vit_of_3", "vit_b_16", 3, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.0}}, learning_rate=0.1),
]


def zero(name: str, stage: int, model: str, ranks: int, plan: dict[str, Any] | None = None, zero_options: dict[str, Any] | None = None,
         **case: Any) -> Case:
    members = {"parameter_dtype": "float32", **(plan or {})}
    members["runtime"] = {"name": f"deepspeed-zero{stage}", **members.get("runtime", {})}
    # Few elements, so that there are several buckets; by default small models have one.
    members["zero"] = {"reduce_bucket_size": 20_000, **(zero_options or {})}
    if members.get("accumulation", 1) > 1:
        members["sync_every_micro_batch"] = stage > 1
    return Case(name, model, ranks, members, units=[{"modules": [""]}], **case)


HALF_OF_ZERO = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"}}
LARGE = {"reduce_bucket_size": 3_000}  # Smaller than the largest parameters.
# Modules of a block are gathered, some ahead, and released.
STAGE_3 = {"prefetch_bucket_size": 5_000, "param_persistence_threshold": 100, "max_live_parameters": 40_000, "max_reuse_distance": 0}
NOTHING_STAYS = {"prefetch_bucket_size": 0, "param_persistence_threshold": 0, "max_reuse_distance": 0}
FEW_TOKENS = {"seq": 6}  # Makes blocks, not logits, decide the peak.
# The owners of a bucket's parts decide the copies, and the jointly summed elements decide the order of sums.
ZERO_CASES = [
    zero("zero1_llama", 1, "llama3_2_1b", 2, CLIPPED, always=True),
    zero("zero1_llama_alone", 1, "llama3_2_1b", 1, CLIPPED, always=True),
    zero("zero1_llama_bf16_of_4", 1, "llama3_2_1b", 4, {**HALF_OF_ZERO, **CLIPPED}, dtype="bfloat16", always=True),
    zero("zero1_llama_accumulate_of_3", 1, "llama3_2_1b", 3, {**HALF_OF_ZERO, "accumulation": 3}, dtype="bfloat16", always=True),
    zero("zero1_llama_large_of_4", 1, "llama3_2_1b", 4, CLIPPED, LARGE, always=True),
    zero("zero1_llama_overlap_of_3", 1, "llama3_2_1b", 3, CLIPPED, {"overlap_comm": True}),
    zero("zero2_llama", 2, "llama3_2_1b", 2, always=True),
    zero("zero2_llama_one_bucket_of_4", 2, "llama3_2_1b", 4, CLIPPED, {"reduce_bucket_size": 500_000_000}, always=True),
    zero("zero2_llama_bf16_of_4", 2, "llama3_2_1b", 4, {**HALF_OF_ZERO, **CLIPPED}, dtype="bfloat16", always=True),
    zero("zero2_llama_pure_bf16_of_3", 2, "llama3_2_1b", 3, {"parameter_dtype": "bfloat16", **CLIPPED}, dtype="bfloat16", always=True),
    zero("zero2_llama_large_of_4", 2, "llama3_2_1b", 4, {**HALF_OF_ZERO, **CLIPPED}, LARGE, dtype="bfloat16", always=True),
    zero("zero2_llama_accumulate_of_3", 2, "llama3_2_1b", 3, {**HALF_OF_ZERO, **CLIPPED, "accumulation": 3}, dtype="bfloat16", always=True),
    zero("zero2_llama_accumulate_large_of_4", 2, "llama3_2_1b", 4, {"accumulation": 2}, LARGE),
    zero("zero2_llama_overlap_of_4", 2, "llama3_2_1b", 4, CLIPPED, {"overlap_comm": True}, always=True),
    zero("zero1_llama_checkpointed_to_the_end", 1, "llama3_2_1b", 2, checkpointed("llama3_2_1b", early_stop=False)),
    zero("zero2_llama_checkpointed_of_3", 2, "llama3_2_1b", 3, checkpointed("llama3_2_1b"), always=True),
    zero("zero2_qwen3_tied_and_frozen_of_3", 2, "qwen3_0_6b", 3, {**HALF_OF_ZERO, **CLIPPED}, {"reduce_bucket_size": 9_000},
         frozen=["model.layers.0.*", "model.norm.*"], dtype="bfloat16", always=True),
    zero("zero2_qwen3_tts_unused_of_4", 2, "qwen3_tts", 4, CLIPPED, always=True),
    zero("zero1_qwen3_tts_unused_accumulate", 1, "qwen3_tts", 2, {"accumulation": 2}),
    zero("zero1_gpt2_fused_of_4", 1, "gpt2", 4, {"optimizer": {"implementation": "fused"}}, always=True),
    zero("zero2_gpt2_adam_for_loop_of_3", 2, "gpt2", 3,
         {"optimizer": {"kind": "adam", "implementation": "for_loop", "weight_decay": 0.1}}),
    zero("zero2_resnet", 2, "resnet18", 2, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 1e-4}},
         {"reduce_bucket_size": 3_000}, learning_rate=0.1, always=True),
    zero("zero3_llama", 3, "llama3_2_1b", 2, CLIPPED, STAGE_3, always=True),
    zero("zero3_llama_alone", 3, "llama3_2_1b", 1, CLIPPED, STAGE_3, always=True),
    zero("zero3_llama_of_3", 3, "llama3_2_1b", 3, CLIPPED, {**STAGE_3, "prefetch_bucket_size": 0, "param_persistence_threshold": 0}, always=True),
    zero("zero3_llama_bf16_of_4", 3, "llama3_2_1b", 4, {**HALF_OF_ZERO, **CLIPPED}, STAGE_3, dtype="bfloat16", always=True),
    zero("zero3_llama_pure_bf16_of_3", 3, "llama3_2_1b", 3, {"parameter_dtype": "bfloat16", **CLIPPED}, STAGE_3, dtype="bfloat16"),
    zero("zero3_llama_sub_groups_of_4", 3, "llama3_2_1b", 4, {**HALF_OF_ZERO, **CLIPPED}, {**STAGE_3, "sub_group_size": 8_000},
         dtype="bfloat16", always=True),
    zero("zero3_llama_large_of_4", 3, "llama3_2_1b", 4, CLIPPED, {**STAGE_3, **LARGE}, always=True),
    zero("zero3_llama_accumulate_of_3", 3, "llama3_2_1b", 3, {**HALF_OF_ZERO, **CLIPPED, "accumulation": 3}, STAGE_3, dtype="bfloat16",
         always=True),
    zero("zero3_llama_defaults_of_4", 3, "llama3_2_1b", 4, CLIPPED, {"reduce_bucket_size": 500_000_000}),
    zero("zero3_llama_checkpointed", 3, "llama3_2_1b", 2, {**CLIPPED, **checkpointed("llama3_2_1b")}, STAGE_3, always=True),
    zero("zero3_llama_checkpointed_of_3", 3, "llama3_2_1b", 3, {**HALF_OF_ZERO, **CLIPPED, **checkpointed("llama3_2_1b")},
         {**STAGE_3, "prefetch_bucket_size": 0, "param_persistence_threshold": 0}, dtype="bfloat16", always=True),
    zero("zero3_llama_checkpointed_accumulate_of_3", 3, "llama3_2_1b", 3, {**CLIPPED, **checkpointed("llama3_2_1b"), "accumulation": 2}, STAGE_3),
    zero("zero3_llama_selective", 3, "llama3_2_1b", 2, {**CLIPPED, **checkpointed("llama3_2_1b", "selective")}, STAGE_3),
    # The peak is while a block is recomputed, or runs backward.
    zero("zero3_llama_checkpointed_reused_of_4", 3, "llama3_2_1b", 4, {**HALF_OF_ZERO, **checkpointed("llama3_2_1b")},
         {**NOTHING_STAYS, "max_reuse_distance": 20_000}, dtype="bfloat16", dimensions=FEW_TOKENS),
    zero("zero3_llama_checkpointed_ahead_of_3", 3, "llama3_2_1b", 3, {**CLIPPED, **checkpointed("llama3_2_1b")},
         {**NOTHING_STAYS, "prefetch_bucket_size": 20_000}, frozen=["model.layers.0.*", "model.norm.*"], dimensions=FEW_TOKENS),
    zero("zero3_llama_selective_attention_of_3", 3, "llama3_2_1b", 3,
         {**HALF_OF_ZERO, **checkpointed("llama3_2_1b", "selective", selective_keep=["attention"])}, NOTHING_STAYS, dtype="bfloat16",
         dimensions=FEW_TOKENS),
    zero("zero3_llama_selective_matmuls_of_3", 3, "llama3_2_1b", 3,
         {**checkpointed("llama3_2_1b", "selective", every_second_linear=False)}, NOTHING_STAYS, dimensions=FEW_TOKENS, always=True),
    zero("zero3_vit_checkpointed_of_3", 3, "vit_b_16", 3,
         {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.0}, **checkpointed("vit_b_16")}, NOTHING_STAYS,
         learning_rate=0.1, always=True),
    zero("zero3_gpt2_checkpointed_of_4", 3, "gpt2", 4, checkpointed("gpt2"), NOTHING_STAYS),
    zero("zero3_llama_overlap_of_3", 3, "llama3_2_1b", 3, CLIPPED, {**STAGE_3, "overlap_comm": True}),
    zero("zero3_qwen3_tied_and_frozen_of_3", 3, "qwen3_0_6b", 3, {**HALF_OF_ZERO, **CLIPPED}, STAGE_3,
         frozen=["model.layers.0.*", "model.norm.*"], dtype="bfloat16", always=True),
    zero("zero3_qwen3_tts_unused_of_4", 3, "qwen3_tts", 4, CLIPPED, STAGE_3),
    zero("zero3_qwen3_tts_unused_checkpointed_of_3", 3, "qwen3_tts", 3, checkpointed("qwen3_tts"), STAGE_3),
    zero("zero3_gpt2_fused_of_4", 3, "gpt2", 4, {"optimizer": {"implementation": "fused"}}, STAGE_3, always=True),
    zero("zero3_resnet", 3, "resnet18", 2, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 1e-4}}, {**STAGE_3, **LARGE},
         learning_rate=0.1),
    zero("zero3_bert_of_3", 3, "bert_large", 3, CLIPPED, STAGE_3),
    zero("zero3_t5_selective_of_3", 3, "t5_3b", 3,
         {"runtime": {"implementations": {"attention": "eager"}}, **checkpointed("t5_3b", "selective")}, NOTHING_STAYS),
    zero("zero2_bert_of_4", 2, "bert_large", 4, CLIPPED),
    zero("zero1_vit_of_3", 1, "vit_b_16", 3, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.0}}, learning_rate=0.1),
]


def simple_fsdp(name: str, model: str, shard: int, plan: dict[str, Any] | None = None, **case: Any) -> Case:
    given = plan or {}
    members = {**given, "runtime": {"name": "torchtitan-simple-fsdp", **given.get("runtime", {})}}
    return Case(f"simple_fsdp_{name}", model, shard, members, units=[{"modules": [""]}], **case)


# Gradients are reduced in the dtype of the stored parameters, not in that of the computation: the whole policy is left out.
HALF_A_POLICY = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16"}}
# Sums of two ranks have one order; rows that do not divide are padded, and some ranks have none.
SIMPLE_FSDP_CASES = [
    simple_fsdp("llama", "llama3_2_1b", 2, CLIPPED, always=True),
    simple_fsdp("llama_of_3", "llama3_2_1b", 3, DECAYED, always=True),
    simple_fsdp("llama_mixed_of_4", "llama3_2_1b", 4, {**MIXED, **CLIPPED}, dtype="bfloat16", always=True),
    simple_fsdp("llama_pure_bf16_of_3", "llama3_2_1b", 3, DECAYED, dtype="bfloat16"),
    simple_fsdp("llama_reduced_of_4", "llama3_2_1b", 4, {**REDUCED, "accumulation": 2}, always=True),
    simple_fsdp("llama_half_a_policy_of_3", "llama3_2_1b", 3, {**HALF_A_POLICY, **CLIPPED}),
    simple_fsdp("llama_half", "llama3_2_1b", 2, {**HALF, **CLIPPED}),
    simple_fsdp("llama_alone", "llama3_2_1b", 1, CLIPPED, always=True),
    simple_fsdp("llama_alone_mixed", "llama3_2_1b", 1, {**MIXED, "accumulation": 2}, always=True),
    simple_fsdp("llama_replicate_of_3", "llama3_2_1b", 1, CLIPPED, replicate=3, always=True),
    simple_fsdp("llama_replicate_mixed_of_4", "llama3_2_1b", 1, {**REDUCED, **CLIPPED}, replicate=4),
    simple_fsdp("llama_hybrid", "llama3_2_1b", 2, {**MIXED, **CLIPPED}, replicate=2, always=True),
    simple_fsdp("llama_hybrid_accumulate", "llama3_2_1b", 2, {**REDUCED, "accumulation": 2}, replicate=2),
    simple_fsdp("llama_accumulate_of_3", "llama3_2_1b", 3, {"accumulation": 3, **CLIPPED}, always=True),
    simple_fsdp("llama_checkpointed", "llama3_2_1b", 2, checkpointed("llama3_2_1b"), always=True),
    simple_fsdp("llama_checkpointed_to_the_end_of_3", "llama3_2_1b", 3, {**MIXED, **checkpointed("llama3_2_1b", early_stop=False)}),
    simple_fsdp("llama_selective", "llama3_2_1b", 2, {**MIXED, **checkpointed("llama3_2_1b", "selective")}, always=True),
    simple_fsdp("qwen3_tied_and_frozen_of_3", "qwen3_0_6b", 3, {"accumulation": 2}, frozen=["model.layers.0.*", "model.norm.*"], always=True),
    simple_fsdp("qwen3_tied_mixed_of_4", "qwen3_0_6b", 4, {**MIXED, **CLIPPED}, dtype="bfloat16"),
    simple_fsdp("qwen3_tts_unused", "qwen3_tts", 2, CLIPPED, always=True),
    simple_fsdp("gpt2_fused_of_4", "gpt2", 4, {"optimizer": {"implementation": "fused"}}, always=True),
    simple_fsdp("resnet", "resnet18", 2, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 1e-4}}, learning_rate=0.1),
    simple_fsdp("bert_of_3", "bert_large", 3, CLIPPED),
    simple_fsdp("t5", "t5_3b", 2, {"runtime": {"implementations": {"attention": "eager"}}}),
]
