"""Plans that plan_runner_test.py trains with torchtitan's SimpleFSDP, without a compiler. Each differs from another one in a single thing."""

from __future__ import annotations

from typing import Any

from plan_cases import BF16, MIXED, Case, checkpointed

CLIP = {"optimizer": {"clip_grad_norm": 1.0}}
SMALL = {"batch": 1, "seq": 256}
# Reduced in what it computes in, which is not what lies there: the gradient is cast back.
NARROW = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"}}
# The whole policy is left out: the gradient is reduced in what lies there.
HALF = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16"}}


def _simple(name: str, model: str, shard: int, plan: dict[str, Any], dimensions: dict[str, float], **others: Any) -> Case:
    whole = {**plan, "runtime": {"name": "torchtitan-simple-fsdp", **plan.get("runtime", {})}}
    return Case(f"simple_fsdp_{name}", model, shard, whole, dimensions, units=[{"modules": [""]}], **others)


_CASES = [
    _simple("mixed", "llama3_2_1b", 4, {**MIXED, **CLIP}, SMALL),
    _simple("bf16", "llama3_2_1b", 4, {**BF16, **CLIP}, SMALL),
    _simple("fp32", "gpt2", 4, CLIP, SMALL),
    _simple("narrow_reduction", "llama3_2_1b", 4, NARROW, SMALL),
    _simple("half_a_policy", "llama3_2_1b", 4, HALF, SMALL),
    # Rows that do not divide, seen from the first rank and from the last, which lacks some.
    _simple("uneven", "gpt2", 3, MIXED, SMALL),
    _simple("uneven_last", "gpt2", 3, {**MIXED, **CLIP}, SMALL, rank=2),
    _simple("uneven_bf16", "gpt2", 3, BF16, SMALL, rank=2),
    # More ranks than some parameters have rows.
    _simple("many_ranks", "gpt2", 5, {**NARROW, **CLIP}, SMALL, rank=4),
    _simple("replicate", "gpt2", 1, {**MIXED, **CLIP}, SMALL, replicate=2),
    _simple("replicate_fp32", "gpt2", 1, CLIP, SMALL, replicate=2),
    _simple("replicate_narrow", "llama3_2_1b", 1, NARROW, SMALL, replicate=4, layers=2),
    _simple("hybrid", "llama3_2_1b", 2, {**MIXED, **CLIP}, SMALL, replicate=2, rank=3),
    _simple("hybrid_bf16", "qwen3_0_6b", 2, BF16, SMALL, replicate=2),
    _simple("hybrid_uneven", "gpt2", 3, {**NARROW, "accumulation": 2}, SMALL, replicate=2, rank=2),
    _simple("alone", "gpt2", 1, {**MIXED, **CLIP}, SMALL),
    _simple("alone_fp32", "gpt2", 1, {"accumulation": 2}, SMALL),
    _simple("alone_bf16", "llama3_2_1b", 1, {**BF16, "accumulation": 2}, SMALL, layers=2),
    _simple("accumulate", "llama3_2_1b", 4, {**MIXED, "accumulation": 3}, SMALL),
    _simple("tied", "qwen3_0_6b", 4, {**MIXED, "accumulation": 2}, SMALL),
    _simple("frozen", "qwen3_0_6b", 4, {**MIXED, **CLIP}, SMALL, frozen=["model.embed_tokens.*", "model.layers.0.*"]),
    _simple("checkpoint", "llama3_2_1b", 4, {**MIXED, "activation_checkpointing": checkpointed("full")}, {"batch": 1, "seq": 1024}),
    _simple("checkpoint_to_the_end", "qwen3_0_6b", 4,
            {**MIXED, "activation_checkpointing": checkpointed("full", early_stop=False)}, {"batch": 1, "seq": 1024}),
    _simple("selective", "llama3_2_1b", 4,
            {**MIXED, "activation_checkpointing": checkpointed("selective"), "runtime": {"flavor": "torchtitan"}},
            {"batch": 1, "seq": 1024}),
    _simple("selective_all_matmuls", "qwen3_0_6b", 4,
            {**MIXED, "activation_checkpointing": checkpointed("selective", every_second_linear=False)}, {"batch": 1, "seq": 1024}),
    _simple("torchtitan", "llama3_2_1b", 4, {**MIXED, **CLIP, "runtime": {"flavor": "torchtitan"}}, {"batch": 1, "seq": 1024}),
    _simple("expandable", "qwen3_0_6b", 4,
            {**BF16, "runtime": {"allocator_settings": "expandable_segments:True"}}, {"batch": 1, "seq": 1024}),
    _simple("vit_sgd", "vit_b_16", 4, {"optimizer": {"kind": "sgd", "momentum": 0.9}}, {"batch": 4},
            allocated=4e-3),
    _simple("fused", "bert_large", 2, {**MIXED, "optimizer": {"implementation": "fused"}}, {"batch": 2, "seq": 128}),
    _simple("t5", "t5_3b", 4, BF16, {"batch": 1}, layers=2),
    _simple("whisper", "whisper_large_v3", 2, MIXED, {"batch": 1}, layers=2),
    _simple("experts", "mixtral_8x7b", 4, MIXED, {"batch": 1, "seq": 256}, layers=1,
            requested=5e-4, allocated=5e-4, reserved=5e-4),
    _simple("resnet", "resnet18", 4, {}, {"batch": 4}, layers=None),
    # A module that runs several times in one forward: each run gathers and reduces for itself.
    _simple("qwen3_tts", "qwen3_tts", 4, {**BF16, **CLIP}, {"batch": 1}, layers=None, reserved=4e-4),
]

# Those that every test run trains; the others are trained by name: "simple_fsdp_more".
_IN_CI = ("mixed", "fp32", "narrow_reduction", "uneven_last", "many_ranks", "replicate", "hybrid", "hybrid_uneven", "alone", "alone_bf16",
          "tied", "frozen", "checkpoint", "selective", "t5", "experts")
SIMPLE_FSDP_CASES = [case for case in _CASES if case.name.removeprefix("simple_fsdp_") in _IN_CI]
SIMPLE_FSDP_MORE_CASES = [
    *(case for case in _CASES if case not in SIMPLE_FSDP_CASES),
    _simple("packed", "qwen3_0_6b", 4, MIXED, {"batch": 1, "seq": 2048}, packing={"document_length": "300:100", "attention": "varlen"})]
