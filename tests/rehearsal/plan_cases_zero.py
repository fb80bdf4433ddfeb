"""Plans that plan_runner_test.py trains with DeepSpeed's ZeRO-1 and ZeRO-2. Those with `PLAIN_SGD` have no optimizer states, so
that their peaks show buckets and gradients."""

from __future__ import annotations

from typing import Any

from plan_cases import Case, checkpointed

FP32 = {"parameter_dtype": "float32"}
BF16 = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"}}
FP16 = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "float16", "reduce_dtype": "float16"}}
# bf16_master_weights_and_grads and bf16_optimizer_states: no fp32 copy.
PURE_BF16 = {"parameter_dtype": "bfloat16"}
CLIP = {"optimizer": {"clip_grad_norm": 1.0}}
PLAIN_SGD = {"optimizer": {"kind": "sgd", "momentum": 0.0, "weight_decay": 0.0}}
TWICE = {"accumulation": 2}
SMALL = {"batch": 1, "seq": 256}
VIT = {"batch": 1}


def zero_case(stage: int, name: str, model: str, ranks: int, plan: dict[str, Any], dimensions: dict[str, float],
              zero: dict[str, Any] | None = None, **others: Any) -> Case:
    """A plan of ZeRO over so many ranks. Stage 1 reduces at the last micro-batch, stage 2 at each."""
    whole = {"initialization": "device", **plan, "runtime": {"name": f"deepspeed-zero{stage}", **plan.get("runtime", {})},
             "zero": zero or {}}
    if plan.get("accumulation", 1) > 1:
        whole["sync_every_micro_batch"] = stage > 1
    return Case(f"zero{stage}_{name}", model, ranks, whole, dimensions, units=[{"modules": [""]}], **others)


def buckets(elements: int, overlap: bool = False) -> dict[str, Any]:
    return {"reduce_bucket_size": elements, "overlap_comm": overlap}


ZERO_CASES = [
    zero_case(1, "gpt2", "gpt2", 4, {**BF16, **CLIP}, SMALL),
    zero_case(2, "gpt2", "gpt2", 4, {**BF16, **CLIP, "accumulation": 2}, SMALL),
    zero_case(1, "alone", "gpt2", 1, BF16, SMALL),
    # The loss is computed after the engine.
    zero_case(1, "accumulate", "llama3_2_1b", 4, {**BF16, "accumulation": 3, "runtime": {"flavor": "torchtitan"}}, SMALL, rank=3),
    # The embeddings are larger than a bucket.
    zero_case(2, "small_buckets", "qwen3_0_6b", 8, BF16, SMALL, buckets(2_000_000), rank=5),
    zero_case(1, "small_buckets_accumulate", "qwen3_0_6b", 3, {**BF16, "accumulation": 3}, SMALL, buckets(3_000_000)),
    zero_case(2, "overlap", "gpt2", 3, {**BF16, **CLIP, "accumulation": 2}, SMALL, buckets(5_000_000, overlap=True), rank=2),
    # 7 ranks: nothing divides, and the last rank has the padding.
    zero_case(1, "overlap_odd", "gpt2", 7, BF16, SMALL, buckets(4_000_000, overlap=True), rank=6),
    zero_case(1, "fp32_fused", "bert_large", 2,
              {**FP32, "initialization": "cpu", "optimizer": {"implementation": "fused", "clip_grad_norm": 1.0}},
              {"batch": 2, "seq": 128}),
    zero_case(2, "fp32_accumulate", "vit_h_14", 7, {**FP32, "initialization": "meta", "accumulation": 3}, VIT,
              buckets(20_000_000), rank=3),
    # Convolutions and buffers. In 16 bits DeepSpeed leaves the buffers of batch norms in fp32, which PyTorch refuses.
    zero_case(1, "resnet_sgd", "resnet18", 2, {**FP32, "optimizer": {"kind": "sgd", "momentum": 0.9, "implementation": "fused"}},
              {"batch": 4}, buckets(1_000_000), layers=None),
    zero_case(2, "resnet", "resnet18", 4, {**FP32, **PLAIN_SGD, "accumulation": 2}, {"batch": 4}, layers=None),
    # The large gradients come first, while most activations are still there.
    zero_case(2, "resnet_overlap", "resnet18", 4, {**FP32, **PLAIN_SGD}, {"batch": 16}, buckets(1_000_000, overlap=True),
              layers=None),
    zero_case(2, "frozen", "qwen3_0_6b", 4, {**BF16, **CLIP, "accumulation": 2}, SMALL, buckets(10_000_000),
              frozen=["model.embed_tokens.*", "model.layers.0.*"]),
    # Frozen parameters are 16 bits too, whatever the checkpoint has.
    zero_case(1, "frozen_from_cpu", "gpt2", 2, {**BF16, "initialization": "cpu"}, SMALL,
              frozen=["transformer.h.0.*"]),
    zero_case(1, "t5", "t5_3b", 4, BF16, {"batch": 1}, buckets(50_000_000), layers=2),
    zero_case(2, "experts", "mixtral_8x7b", 2, BF16, {"batch": 1, "seq": 256}, layers=1, reserved=3e-4),
    # Some parameters have no gradient.
    zero_case(2, "qwen3_tts_unused", "qwen3_tts", 4, {**BF16, **CLIP}, {"batch": 1}, layers=None),
    zero_case(1, "qwen3_tts_accumulate", "qwen3_tts", 8, {**BF16, "accumulation": 2}, {"batch": 1}, layers=None, rank=7,
              requested=0.0000001, allocated=0.0000001),
    zero_case(2, "fp16_accumulate", "gpt2", 3, {**FP16, **CLIP, "accumulation": 2}, SMALL, buckets(5_000_000, overlap=True)),
    zero_case(1, "fp16_peak", "vit_b_16", 4, {**FP16, **PLAIN_SGD}, VIT, buckets(4_000_000), layers=4),
    zero_case(1, "pure", "qwen3_0_6b", 3, {**PURE_BF16, **CLIP}, SMALL, buckets(10_000_000), rank=2),
    zero_case(2, "pure_accumulate", "gpt2", 4, {**PURE_BF16, "accumulation": 2, "optimizer": {"implementation": "fused"}}, SMALL),
    zero_case(2, "pure_peak", "vit_b_16", 7, {**PURE_BF16, **PLAIN_SGD}, VIT, buckets(4_000_000), layers=4, rank=6),
    zero_case(2, "checkpoint", "llama3_2_1b", 4,
              {**BF16, "initialization": "meta", "activation_checkpointing": checkpointed("full"),
               "optimizer": {"implementation": "fused"}}, {"batch": 1, "seq": 1024}, buckets(50_000_000)),
    zero_case(1, "checkpoint_selective", "llama3_2_1b", 2,
              {**BF16, "activation_checkpointing": checkpointed("selective"), "runtime": {"flavor": "torchtitan"}},
              {"batch": 1, "seq": 512}, buckets(50_000_000), requested=0.00001, allocated=0.00001),
    zero_case(1, "checkpoint_to_the_end", "llama3_2_1b", 4,
              {**BF16, "activation_checkpointing": checkpointed("full", early_stop=False)}, {"batch": 1, "seq": 1024},
              buckets(50_000_000)),
    zero_case(2, "checkpoint_to_the_end", "qwen3_0_6b", 4,
              {**BF16, **TWICE, "activation_checkpointing": checkpointed("full", early_stop=False)}, {"batch": 1, "seq": 1024},
              buckets(50_000_000, overlap=True)),
    zero_case(2, "selective_to_the_end", "llama3_2_1b", 4,
              {**BF16, "activation_checkpointing": checkpointed("selective", early_stop=False)}, {"batch": 1, "seq": 1024},
              buckets(50_000_000)),
]


def _peak(stage: int, name: str, *parts: dict[str, Any], ranks: int = 4, rank: int = 0, elements: int = 4_000_000,
          overlap: bool = False) -> Case:
    """Without large logits and states the peak is in the backward, or at the end of it."""
    whole: dict[str, Any] = {**PLAIN_SGD}
    for part in parts:
        whole.update(part)
    # Stage 1 keeps the gradient of the class token from one micro-batch to the next. With one sample it is a view of a larger
    # tensor (295 KiB), which stays with it; that is not predicted.
    bound = 0.0015 if stage == 1 and TWICE in parts else 0.00001
    return zero_case(stage, f"peak_{name}", "vit_b_16", ranks, whole, VIT, buckets(elements, overlap), rank=rank, layers=4,
                     requested=bound, allocated=bound)


ZERO_CASES += [_peak(stage, *words, **options) for stage in (1, 2) for words, options in [
    (("fp32", FP32), {}),
    (("bf16", BF16), {}),
    (("odd", BF16), {"ranks": 7, "rank": 6}),
    (("accumulate", BF16, TWICE), {}),
    (("accumulate_fp32", FP32, TWICE), {"rank": 2}),
    (("overlap", BF16), {"overlap": True}),
    (("overlap_accumulate", BF16, TWICE), {"overlap": True}),
    (("one_bucket", BF16, TWICE), {"elements": 500_000_000}),
]]

# Those that take longest, or that hardly differ from another one: run by name.
_MORE = ("small_buckets_accumulate", "fp32_fused", "fp32_accumulate", "resnet_sgd", "frozen_from_cpu", "t5", "experts",
         "qwen3_tts_unused", "qwen3_tts_accumulate", "checkpoint", "checkpoint_selective", "peak_fp32", "peak_bf16", "peak_overlap",
         "peak_accumulate", "peak_one_bucket", "resnet_overlap", "fp16_peak", "pure_accumulate")
ZERO_MORE_CASES = [case for case in ZERO_CASES if case.name.split("_", 1)[1] in _MORE]
ZERO_CASES = [case for case in ZERO_CASES if case not in ZERO_MORE_CASES]

# Held in every test run, and by how much the bound may be below and above what the real DeepSpeed reserves.
ZERO_HELD_CASES = [case for case in ZERO_MORE_CASES if case.name == "zero2_resnet_overlap"]
