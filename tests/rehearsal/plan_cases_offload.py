"""Plans that plan_runner_test.py trains with DeepSpeed's ZeRO and its offload: the optimizer on the host, and of ZeRO-3 the parameters,
too. What is pinned is compared as well, in PyTorch's blocks."""

from __future__ import annotations

from typing import Any

from plan_cases import Case
from plan_cases_zero import BF16, CLIP, FP16, FP32, PLAIN_SGD, PURE_BF16, SMALL, TWICE, VIT, buckets, zero_case

# Every parameter is gathered just before its module runs, and freed after it.
NOTHING_STAYS = {"param_persistence_threshold": 0, "max_reuse_distance": 0, "prefetch_bucket_size": 0}
ALL = {"offload_param": True}


def _case(stage: int, name: str, model: str, ranks: int, plan: dict[str, Any], dimensions: dict[str, float],
          zero: dict[str, Any] | None = None, **others: Any) -> Case:
    initialization = {"initialization": "meta"} if stage == 3 else {}
    return zero_case(stage, f"offload_{name}", model, ranks, {**initialization, "cpu_offload": True, **plan}, dimensions, zero, **others)


_CASES = [
    _case(1, "gpt2", "gpt2", 4, {**BF16, **CLIP}, SMALL),
    _case(2, "gpt2", "gpt2", 4, {**BF16, **CLIP, **TWICE}, SMALL),
    # 7 ranks: nothing divides, and the last rank has the padding.
    _case(1, "accumulate_odd", "gpt2", 7, {**BF16, "accumulation": 3}, SMALL, buckets(4_000_000, overlap=True), rank=6),
    _case(2, "alone", "gpt2", 1, BF16, SMALL),
    # The embeddings are larger than a bucket, and reach into the parts of several ranks.
    _case(2, "small_buckets", "qwen3_0_6b", 8, {**BF16, "accumulation": 3}, SMALL, {**buckets(2_000_000), "pin_memory": False}),
    _case(2, "overlap", "qwen3_0_6b", 3, {**BF16, **CLIP}, SMALL, buckets(5_000_000, overlap=True)),
    _case(1, "small_buckets", "qwen3_0_6b", 4, BF16, SMALL, buckets(3_000_000), rank=2),
    _case(2, "fp32", "bert_large", 2, {**FP32, "initialization": "cpu"}, {"batch": 2, "seq": 128}),
    _case(1, "sgd", "resnet18", 2, {**FP32, "optimizer": {"kind": "sgd", "momentum": 0.9}}, {"batch": 4}, buckets(1_000_000),
          layers=None),
    _case(2, "frozen", "qwen3_0_6b", 4, {**BF16, **CLIP, **TWICE}, SMALL, buckets(10_000_000),
          frozen=["model.embed_tokens.*", "model.layers.0.*"]),
    _case(1, "fp16", "gpt2", 3, {**FP16, **CLIP}, SMALL),
    _case(2, "pure", "gpt2", 4, {**PURE_BF16, **CLIP, **TWICE}, SMALL, buckets(5_000_000)),
    _case(1, "pure_overlap", "gpt2", 3, {**PURE_BF16, "accumulation": 3}, SMALL, buckets(5_000_000, overlap=True)),
    # Some parameters have no gradient.
    _case(2, "unused", "qwen3_tts", 4, {**BF16, **TWICE}, {"batch": 1}, layers=None, requested=0.00011, allocated=0.00011),
    # What stage 1 keeps of the class token is not predicted (plan_cases_zero.py).
    *[_case(stage, f"peak_{name}", "vit_b_16", ranks, {**precision, **PLAIN_SGD, **more}, VIT, buckets(4_000_000, overlap), layers=4,
            rank=ranks - 1, **(dict.fromkeys(("requested", "allocated"), 0.0016) if stage == 1 and more else {}))
      for stage in (1, 2) for name, ranks, precision, more, overlap in [
          ("bf16", 4, BF16, {}, False),
          ("fp32", 4, FP32, TWICE, False),
          ("odd", 7, BF16, TWICE, True),
      ]],
    _case(3, "gpt2", "gpt2", 4, {**BF16, **CLIP}, SMALL),
    _case(3, "accumulate_odd", "gpt2", 7, {**BF16, **TWICE}, SMALL, {"max_reuse_distance": 0}, rank=3),
    _case(3, "fp16", "gpt2", 4, {**FP16, **TWICE}, SMALL, {"max_reuse_distance": 0}),
    # 4 of 13 sub-groups are updated on the device.
    _case(3, "ratio", "gpt2", 4, {**BF16, **CLIP, **TWICE}, SMALL,
          {"max_reuse_distance": 0, "sub_group_size": 1_000_000, "offload_ratio": 0.65}),
    _case(3, "ratio_all", "qwen3_0_6b", 4, PURE_BF16, SMALL, {**ALL, "sub_group_size": 30_000_000, "offload_ratio": 0.3}, rank=2),
    _case(3, "hpz", "gpt2", 4, {**BF16, **TWICE}, SMALL, {"hpz_partition_size": 2, **NOTHING_STAYS}),
    _case(3, "pure", "gpt2", 4, {**PURE_BF16, **TWICE}, SMALL, {"max_reuse_distance": 0, "sub_group_size": 10_000_000}),
    _case(3, "all_pure", "gpt2", 3, PURE_BF16, SMALL, ALL),
    _case(3, "alone", "gpt2", 1, BF16, SMALL),
    _case(3, "sub_groups", "qwen3_0_6b", 4, BF16, SMALL, {"sub_group_size": 50_000_000, "max_reuse_distance": 0}),
    _case(3, "small_buckets", "qwen3_0_6b", 8, {**BF16, **TWICE}, SMALL,
          {"reduce_bucket_size": 3_000_000, "overlap_comm": False, "pin_memory": False, **NOTHING_STAYS}, rank=5),
    _case(3, "frozen", "qwen3_0_6b", 4, BF16, SMALL, {"max_reuse_distance": 0}, frozen=["model.embed_tokens.*", "model.layers.0.*"]),
    _case(3, "fp32", "bert_large", 2, FP32, {"batch": 2, "seq": 128}, NOTHING_STAYS),
    _case(3, "all_gpt2", "gpt2", 4, {**BF16, **CLIP}, SMALL, ALL),
    _case(3, "all_nothing_stays", "llama3_2_1b", 4, {**BF16, **TWICE}, SMALL, {**ALL, **NOTHING_STAYS}),
    _case(3, "all_prefetch", "llama3_2_1b", 4, BF16, SMALL, {**ALL, "max_reuse_distance": 0, "prefetch_bucket_size": 20_000_000}),
    _case(3, "all_no_overlap", "qwen3_0_6b", 3, BF16, SMALL, {**ALL, "overlap_comm": False, **NOTHING_STAYS}, rank=2),
    _case(3, "all_frozen", "qwen3_0_6b", 4, {**BF16, **CLIP}, SMALL, {**ALL, "max_reuse_distance": 0, "pin_memory": False},
          frozen=["model.embed_tokens.*", "model.layers.0.*"]),
    _case(3, "all_alone", "gpt2", 1, BF16, SMALL, ALL),
    *[_case(3, f"{name}_peak", "vit_b_16", 4, {**precision, **PLAIN_SGD, **more}, VIT,
            {**NOTHING_STAYS, "reduce_bucket_size": 4_000_000, **zero}, rank=3, layers=4, **bounds)
      for name, precision, more, zero, bounds in [
          ("bf16", BF16, {}, {}, {}),
          ("all_bf16", BF16, TWICE, ALL, {}),
          # Less is split off a block in the first step, whose peak is below that of later ones.
          ("all_fp32", FP32, {}, ALL, {"allocated": 0.006}),
      ]],
]

# Those that every test run trains; the others are trained by name: "offload_more".
_IN_CI = ("zero1_offload_gpt2", "zero2_offload_gpt2", "zero1_offload_accumulate_odd", "zero2_offload_overlap", "zero2_offload_peak_odd",
          "zero1_offload_pure_overlap", "zero3_offload_gpt2", "zero3_offload_sub_groups", "zero3_offload_all_nothing_stays", "zero3_offload_all_bf16_peak")
OFFLOAD_CASES = [case for case in _CASES if case.name in _IN_CI]
OFFLOAD_MORE_CASES = [case for case in _CASES if case not in OFFLOAD_CASES]

# Held in every test run, and by how much the bound may be below and above what the real DeepSpeed reserves.
_HELD_IN_CI = ("zero2_offload_overlap", "zero3_offload_all_nothing_stays")
OFFLOAD_HELD_CASES = [case for case in _CASES if case.name in _HELD_IN_CI]
