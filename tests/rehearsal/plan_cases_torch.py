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

# Relative differences of requested, allocated and reserved bytes, as large as they are, rounded up. Releases and cases that are
# not here come as near as on 2.11.
RELEASE_BANDS = {
    # The fused RMSNorm of the flavor torchtitan is of 2.9 and later.
    "2.8": {"checkpoint_selective": (7e-3, 7e-3, 0), "checkpoint_selective_loss_behind": (7e-3, 7e-3, 0)},
    "2.12": {"ddp_gpt2": (0, 4e-4, 0), "ddp_qwen3_tts_unused": (0, 3e-5, 0), "ddp_whisper": (0, 5e-4, 0),
             "prefetch_groups": (0, 0, 3e-4), "qwen3_tts": (0, 4e-4, 7e-2), "keep_gradients_of_the_release": (0, 4e-4, 0),
             "reduce_in_less": (0, 5e-4, 0)},
    "2.13": {"ddp_no_sync": (0, 0, 5e-3), "prefetch_groups": (0, 2e-4, 0)},
    "2.14": {"ddp_no_sync": (0, 0, 5e-3), "ddp_vit_from_cpu": (1e-6, 1e-5, 0), "prefetch_groups": (0, 2e-4, 0),
             "vit_sgd": (1e-6, 1e-5, 0)},
    "2.15": {"ddp_frozen_small_buckets": (0, 2e-3, 0.13), "ddp_vit_from_cpu": (1e-6, 1e-5, 0), "vit_sgd": (1e-6, 1e-5, 0),
             "qwen3_tts": (0, 2e-3, 8e-2), "frozen_between": (0, 0, 4e-3), "keep_gradients_of_the_release": (0, 2e-3, 3e-3),
             "recomputed_units": (0, 0, 3e-3), "reduce_dtype_of_the_release": (0, 0, 3e-3),
             "reduce_in_less": (0, 1e-3, 7e-2), "two_inputs": (0, 0, 4e-3), "three_inputs_apart": (0, 0, 6e-3)},
}
