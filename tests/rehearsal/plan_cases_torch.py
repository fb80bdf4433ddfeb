"""What releases of PyTorch do in different ways: small plans that plan_runner_test.py trains with the release at hand."""

from __future__ import annotations

from plan_cases import MIXED, Case, checkpointed

# Gradients are reduced in bfloat16 up to 2.14, and in float32 from 2.15 on.
COMPUTED_IN_BF16 = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16"}}
_BLOCKS = [{"modules": ["model.layers.{0..2}"], "modules_per_unit": 1}, {"modules": [""]}]
_PARTS = [{"modules": [f"model.layers.{layer}.{part}"]} for layer in range(3) for part in ("self_attn", "mlp")]

TORCH_CASES = [
    Case("reduce_dtype_of_the_release", "llama3_2_1b", 4, COMPUTED_IN_BF16, {"batch": 1, "seq": 512}),
    Case("keep_gradients_of_the_release", "qwen3_0_6b", 2,
         {**COMPUTED_IN_BF16, "accumulation": 3, "sync_every_micro_batch": False}, {"batch": 1, "seq": 512}),
    Case("reduce_in_less", "gpt2", 4, {"mixed_precision": {"reduce_dtype": "bfloat16"}, "accumulation": 2,
                                       "sync_every_micro_batch": False},
         {"batch": 1, "seq": 256}, blocks="transformer.h.{0..%d}"),
    Case("frozen_between", "llama3_2_1b", 4, MIXED, {"batch": 1, "seq": 512}, frozen=["model.layers.1.*"]),
    Case("recomputed_units", "llama3_2_1b", 4, {**MIXED, "activation_checkpointing": checkpointed("full")},
         {"batch": 1, "seq": 512}, units=[*_PARTS, *_BLOCKS]),
    Case("alone_in_its_group", "llama3_2_1b", 1, MIXED, {"batch": 1, "seq": 512}, replicate=2),
]

# What 2.13 and later can be told.
REDUCTION_CASES = [
    Case("two_inputs", "llama3_2_1b", 4, {**MIXED, "reduce_scatter_buffers": 2}, {"batch": 1, "seq": 512}, layers=4,
         units=[{"modules": ["model.layers.{0..3}"], "modules_per_unit": 1}, {"modules": [""]}]),
    Case("three_inputs_apart", "qwen3_0_6b", 2,
         {**COMPUTED_IN_BF16, "reduce_scatter_buffers": 3, "separate_reduce_scatter_group": True, "accumulation": 2},
         {"batch": 1, "seq": 512}, replicate=2, rank=1, layers=5,
         units=[{"modules": ["model.layers.{0..4}"], "modules_per_unit": 1}, {"modules": [""]}]),
]
