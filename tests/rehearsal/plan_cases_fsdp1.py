"""Plans that plan_runner_test.py trains with FSDP1 (FullyShardedDataParallel). A freed block that another stream has used
is free at once there (record_stream), which is what a prediction has."""

from __future__ import annotations

from typing import Any

from plan_cases import MIXED, Case, checkpointed

GPT2 = "transformer.h.{0..%d}"
VIT = "encoder.layers.encoder_layer_{0..%d}"
FP32 = {"parameter_dtype": "float32"}


def plan(*parts: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Members of a plan; `options` are those of FSDP1."""
    merged: dict[str, Any] = {"runtime": {"name": "pytorch-fsdp1"}, "fsdp1": options}
    for part in parts:
        merged.update(part)
    return merged


def rows(blocks: str, layers: int, reshard: bool = True) -> list[dict[str, Any]]:
    return [{"modules": [blocks % (layers - 1)], "modules_per_unit": 1, "reshard_after_forward": reshard},
            {"modules": [""]}]


LLAMA = "model.layers.{0..%d}"
CLIP = {"optimizer": {"clip_grad_norm": 1.0}}
SMALL = {"batch": 1, "seq": 256}
NO_SYNC = {"accumulation": 3, "sync_every_micro_batch": False}
TWICE = {"accumulation": 2}
OFFLOAD = {"cpu_offload": True}
PLAIN_SGD = {"optimizer": {"kind": "sgd", "momentum": 0.0, "weight_decay": 0.0}}


def two_passes(name: str, *parts: dict[str, Any], shard: int = 4, replicate: int = 1, **options: Any) -> Case:
    """Nothing but an embedding that is called twice is trained: the peak is where its gradients meet."""
    others = ["talker.model.text_embedding.*", "talker.model.layers.*", "talker.model.norm.*", "talker.codec_head.*",
              "talker.code_predictor.*", "talker.text_projection.*", "speaker_encoder.*"]
    return Case(f"fsdp1_two_passes_{name}", "qwen3_tts", shard, plan(PLAIN_SGD, *parts, **options),
                {"batch": 1, "clip_seconds": 0.5, "reference_seconds": 1}, replicate=replicate, layers=1,
                units=[{"modules": ["talker.model.codec_embedding"]}, {"modules": [""]}], frozen=others)


FSDP1_CASES = [
    Case("fsdp1_full_shard", "gpt2", 4, plan(FP32, CLIP), SMALL, blocks=GPT2),
    Case("fsdp1_mixed", "qwen3_0_6b", 4, plan(MIXED, CLIP), SMALL),
    # 7 ranks: nothing divides, so that shards and the reduction's input are padded. The last rank pads its shard.
    Case("fsdp1_odd", "gpt2", 7, plan(MIXED), SMALL, rank=6, blocks=GPT2),
    Case("fsdp1_orig_params_tied", "qwen3_0_6b", 4, plan(FP32, use_orig_params=True), SMALL),
    Case("fsdp1_shard_grad_op", "qwen3_0_6b", 4, plan(MIXED), SMALL, units=rows(LLAMA, 3, False)),
    Case("fsdp1_no_sync_orig_params", "gpt2", 4,
         plan(MIXED, {"accumulation": 3, "sync_every_micro_batch": False}, use_orig_params=True), SMALL, blocks=GPT2),
    Case("fsdp1_no_shard", "gpt2", 1, plan(MIXED, CLIP), SMALL, replicate=2, blocks=GPT2),
    Case("fsdp1_no_shard_no_sync_orig", "vit_b_16", 1,
         plan(MIXED, {"accumulation": 2, "sync_every_micro_batch": False}, use_orig_params=True), {"batch": 4},
         replicate=3, blocks=VIT),
    Case("fsdp1_one_gpu", "gpt2", 1, plan(FP32, CLIP), SMALL, blocks=GPT2),
    # The root casts its inputs, and no other unit; a buffer_dtype that no buffer has.
    Case("fsdp1_root_casts", "vit_b_16", 2,
         plan({"parameter_dtype": "float32", "mixed_precision": {**MIXED["mixed_precision"], "cast_forward_inputs": False}},
              buffer_dtype="bfloat16"), {"batch": 8}, blocks=VIT, inputs={"pixel_values": "float32"}),
    # The root is a unit: whatever it says of itself, it casts.
    Case("fsdp1_units_cast", "vit_b_16", 2, plan(MIXED, PLAIN_SGD, cast_root_forward_inputs=False), {"batch": 8}, blocks=VIT,
         inputs={"pixel_values": "float32"}),
    Case("fsdp1_hybrid", "qwen3_0_6b", 2, plan(MIXED, CLIP), SMALL, replicate=4, rank=5),
    Case("fsdp1_forward_prefetch", "gpt2", 4, plan(MIXED, forward_prefetch=True), SMALL, layers=5, blocks=GPT2),
    Case("fsdp1_checkpoint", "qwen3_0_6b", 4, plan(MIXED, {"activation_checkpointing": checkpointed("full")}),
         {"batch": 1, "seq": 1024}),
    Case("fsdp1_checkpoint_to_the_end", "qwen3_0_6b", 4, plan(MIXED, {"activation_checkpointing": checkpointed("full", early_stop=False)}),
         {"batch": 1, "seq": 1024}),
    Case("fsdp1_checkpoint_selective", "llama3_2_1b", 4,
         plan(MIXED, {"activation_checkpointing": checkpointed("selective"),
                      "runtime": {"name": "pytorch-fsdp1", "flavor": "torchtitan"}}), {"batch": 1, "seq": 512}),
    # The first block has no argument that needs a gradient; the embeddings have no backward.
    Case("fsdp1_frozen", "qwen3_0_6b", 4, plan(MIXED, CLIP), SMALL,
         frozen=["model.layers.1.*", "model.embed_tokens.*", "model.norm.*"]),
    Case("fsdp1_frozen_prefix", "llama2_7b", 4, plan(MIXED), SMALL,
         units=[{"modules": ["model.embed_tokens"]}, {"modules": [LLAMA % 2], "modules_per_unit": 1},
                {"modules": ["model.norm"]}, {"modules": ["lm_head"]}, {"modules": [""]}],
         frozen=["model.embed_tokens.*", "model.layers.0.*"]),
    Case("fsdp1_bf16_sgd", "vit_b_16", 2,
         plan({"parameter_dtype": "bfloat16",
               "optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.0, "implementation": "fused"}}),
         {"batch": 4}, blocks=VIT),
    Case("fsdp1_reduce_in_bf16", "gpt2", 4,
         plan({"parameter_dtype": "float32",
               "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": None}, "initialization": "cpu"}),
         SMALL, blocks=GPT2),
    Case("fsdp1_root_alone", "gpt2", 2,
         plan(FP32, {"initialization": "device", "accumulation": 2, "sync_every_micro_batch": False}), SMALL,
         units=[{"modules": [""]}]),
    # A decoder whose layers read what the encoder made. A frozen one is freed when the gradients of all its arguments are
    # there; the hook holds those that came first until then, which is not predicted.
    Case("fsdp1_t5", "t5_3b", 8, plan(MIXED, CLIP), {"batch": 1}, layers=2,
         units=[{"modules": ["encoder.block.{0..1}"], "modules_per_unit": 1},
                {"modules": ["decoder.block.{0..1}"], "modules_per_unit": 1}, {"modules": [""]}],
         frozen=["decoder.block.1.*"], requested=1e-3, allocated=1e-3),
    # Modules that run several times in one forward, each pass with views of its own.
    Case("fsdp1_qwen3_tts", "qwen3_tts", 4, plan(MIXED, CLIP), {"batch": 2}, layers=None,
         units=[{"modules": ["talker.model.layers.{0..27}"], "modules_per_unit": 1},
                {"modules": ["talker.code_predictor.model.layers.{0..4}"], "modules_per_unit": 1},
                {"modules": ["talker.model.text_embedding"]}, {"modules": ["talker.model.codec_embedding"]},
                {"modules": [""]}]),
    # What an earlier micro-batch has left takes in the sum of a unit's passes.
    two_passes("accumulate", MIXED, TWICE),
    two_passes("no_sync", MIXED, NO_SYNC),
    two_passes("no_sync_orig_params", MIXED, NO_SYNC, use_orig_params=True),
    two_passes("no_shard", MIXED, TWICE, shard=1, replicate=4),
    two_passes("no_shard_no_sync", MIXED, NO_SYNC, shard=1, replicate=4),
    # Convolutions and buffers.
    Case("fsdp1_resnet", "resnet18", 2, plan(FP32), {"batch": 4}, layers=None,
         units=[{"modules": ["layer1.0"]}, {"modules": ["layer2.0"]}, {"modules": [""]}]),
    # Shards come from the host before each pass, also of what is still gathered; gradients go there at the end.
    Case("fsdp1_offload", "gpt2", 4, plan(MIXED, CLIP, OFFLOAD), SMALL, blocks=GPT2),
    Case("fsdp1_offload_fp32", "gpt2", 3, plan(FP32, OFFLOAD), SMALL, rank=2, blocks=GPT2),
    Case("fsdp1_offload_frozen_shard_grad_op", "qwen3_0_6b", 4, plan(MIXED, OFFLOAD), SMALL, units=rows(LLAMA, 3, False),
         frozen=["model.layers.1.*"]),
    Case("fsdp1_offload_no_sync_orig_params", "gpt2", 2, plan(MIXED, CLIP, OFFLOAD, NO_SYNC, use_orig_params=True), SMALL,
         replicate=2, rank=3, blocks=GPT2),
    Case("fsdp1_experts", "mixtral_8x7b", 4, plan(MIXED), {"batch": 1, "seq": 256}, layers=2,
         requested=3e-4, allocated=3e-4, reserved=4e-4),
]

REDUCED_IN_BF16 = {"parameter_dtype": "float32", "mixed_precision": {"reduce_dtype": "bfloat16"}}


def backward_peak(name: str, *parts: dict[str, Any], shard: int = 4, replicate: int = 1, rank: int = 0,
                  reshard: bool = True, **options: Any) -> Case:
    """Without large logits and states the peak is in the backward of a block, or at the end of it."""
    return Case(f"fsdp1_peak_{name}", "vit_b_16", shard, plan(PLAIN_SGD, *parts, **options), {"batch": 1},
                replicate=replicate, rank=rank, layers=4, units=rows(VIT, 4, reshard))


FSDP1_CASES += [
    backward_peak("fp32", FP32),
    backward_peak("mixed", MIXED),
    backward_peak("odd", MIXED, shard=7, rank=6),
    backward_peak("orig_params", MIXED, shard=7, rank=2, use_orig_params=True),
    backward_peak("shard_grad_op", MIXED, reshard=False),
    backward_peak("shard_grad_op_no_sync", MIXED, NO_SYNC, reshard=False),
    backward_peak("no_sync", MIXED, NO_SYNC),
    backward_peak("accumulate", MIXED, TWICE),
    backward_peak("no_shard", MIXED, shard=1, replicate=4),
    backward_peak("no_shard_accumulate", MIXED, TWICE, shard=1, replicate=4),
    backward_peak("no_shard_no_sync", MIXED, NO_SYNC, shard=1, replicate=4),
    backward_peak("no_shard_reduced_in_bf16", REDUCED_IN_BF16, TWICE, shard=1, replicate=4),
    backward_peak("hybrid", MIXED, TWICE, shard=2, replicate=2),
    backward_peak("reduced_in_bf16", REDUCED_IN_BF16, TWICE),
    backward_peak("offload", MIXED, OFFLOAD),
    backward_peak("offload_fp32_shard_grad_op", FP32, OFFLOAD, reshard=False),
    backward_peak("offload_hybrid", MIXED, OFFLOAD, shard=2, replicate=2),
    backward_peak("offload_no_limit", MIXED, OFFLOAD, reshard=False, limit_all_gathers=False),
    backward_peak("prefetch_post", MIXED, backward_prefetch="post"),
    backward_peak("prefetch_none", MIXED, backward_prefetch="none"),
    backward_peak("forward_prefetch", MIXED, forward_prefetch=True),
]

# How far the bound of what is reserved with held memory may lie below and above what FSDP1 reserves, relative. For all
# others it is equal to the byte.
HELD_BANDS: dict[str, tuple[float, float]] = {
    # Below: which of two blocks of one size is free first, and so which one is cut, is the order of the real events.
    "fsdp1_experts": (0.001, 0), "fsdp1_mixed": (0.04, 0), "fsdp1_peak_no_shard_reduced_in_bf16": (0.004, 0),
    "fsdp1_peak_odd": (0.006, 0), "fsdp1_qwen3_tts": (0.02, 0),
    # Above: something makes PyTorch's CPU wait that the walk has no instruction for (an all-reduce in place, one GPU without
    # collectives, an argument whose gradients come one by one).
    "fsdp1_no_shard": (0, 0.24), "fsdp1_one_gpu": (0, 0.15), "fsdp1_peak_no_shard_accumulate": (0, 0.14),
    "fsdp1_t5": (0, 0.09), "fsdp1_two_passes_no_shard": (0, 0.12), "fsdp1_two_passes_no_shard_no_sync": (0, 0.14),
}
