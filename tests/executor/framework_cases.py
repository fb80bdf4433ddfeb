"""Plans of other frameworks than FSDP2 that parity_test.py trains twice, and what each of them covers."""

from __future__ import annotations

from typing import Any

from parity_cases import CLIPPED, Case, checkpointed

# Bytes of several buckets: the smallest cap is 1 MiB.
WIDE = {8192: 1500.0}
# What several blocks read, as the output of an encoder, gets a gradient from each of their uses. DDP has no hook between
# blocks, and autograd adds them one by one; fsdp-exec adds those of a block first, as under FSDP2. Measured: 5.2e-7 after
# three steps, in which parameters move by about 3e-3.
SUMS_OF_BLOCKS = 1e-6


def ddp(name: str, model: str, ranks: int, plan: dict[str, Any] | None = None, ddp_options: dict[str, Any] | None = None,
        **case: Any) -> Case:
    members = {"runtime": {"name": "pytorch-ddp"}, **(plan or {})}
    if ddp_options:
        members["ddp"] = ddp_options
    return Case(name, model, 1, members, replicate=ranks, units=[{"modules": [""]}], **case)


# Sums of two ranks are the same in any bucket; of four ranks they depend on where a gradient lies in it.
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
    ddp("ddp_qwen3_tied_and_frozen_of_3", "qwen3_0_6b", 3, frozen=["model.layers.0.*", "model.norm.*"], always=True),
    ddp("ddp_qwen3_tied_views_of_4", "qwen3_0_6b", 4, ddp_options={"gradient_as_bucket_view": True}),
    ddp("ddp_gpt2_fused_of_4", "gpt2", 4, {"optimizer": {"implementation": "fused"}}, always=True),
    ddp("ddp_resnet", "resnet18", 4, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 1e-4}},
        learning_rate=0.1, always=True),
    ddp("ddp_resnet_own_buffers", "resnet18", 2, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 1e-4}},
        {"broadcast_buffers": False}, learning_rate=0.1),
    ddp("ddp_bert_of_4", "bert_large", 4, CLIPPED),
    ddp("ddp_t5", "t5_3b", 2, {"runtime": {"name": "pytorch-ddp", "implementations": {"attention": "eager"}}},
        tolerance=SUMS_OF_BLOCKS),
    ddp("ddp_whisper_of_4", "whisper_large_v3", 4, tolerance=SUMS_OF_BLOCKS),
    ddp("ddp_vit_of_3", "vit_b_16", 3, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.0}}, learning_rate=0.1),
]
