"""Plans on packed rows: kernels that take the boundaries of documents, flash-attn's and PyTorch's, and the mask of transformers."""

from __future__ import annotations

from typing import Any

from plan_cases import BF16, MIXED, Case, checkpointed
from plan_cases_fsdp1 import plan

DDP = {"runtime": {"name": "pytorch-ddp"}}
TORCHTITAN = {"runtime": {"flavor": "torchtitan", "implementations": {"loss_after_root": False}}}


def _case(name: str, model: str, shard: int, given: dict[str, Any], tokens: int, lengths: str, attention: str = "flash_attn",
          **others: Any) -> Case:
    return Case(f"packed_{name}", model, shard, given, {"batch": 1, "seq": tokens},
                packing={"document_length": lengths, "attention": attention}, **others)


PACKING_CASES = [
    _case("mixed", "llama3_2_1b", 4, {**MIXED, "optimizer": {"clip_grad_norm": 1.0}}, 2048, "300:100"),
    _case("bf16", "qwen3_0_6b", 2, BF16, 4096, "900"),
    # So many documents, and so few tokens in a vocabulary, that the backward of attention sets the peak.
    _case("many", "llama2_7b", 8, BF16, 2048, "2", layers=2),
    _case("varlen_many", "llama2_7b", 8, MIXED, 1024, "2", "varlen", layers=2),
    _case("checkpoint", "qwen3_0_6b", 16, {**MIXED, "activation_checkpointing": checkpointed("full")}, 4096, "512", nodes=2, rank=9),
    _case("selective", "llama3_2_1b", 4, {**BF16, "activation_checkpointing": checkpointed("selective")}, 2048, "256"),
    _case("window", "mistral_7b_v0_1", 8, BF16, 8192, "1024", layers=2),
    _case("gpt2", "gpt2", 2, MIXED, 1024, "100",
          units=[{"modules": ["transformer.h.{0..2}"], "modules_per_unit": 1}, {"modules": [""]}]),
    _case("fsdp1", "llama3_2_1b", 4, plan(MIXED), 2048, "512", layers=2),
    _case("accumulate", "qwen3_0_6b", 2, {**MIXED, "accumulation": 2, "sync_every_micro_batch": False}, 2048, "3x512,300,212",
          replicate=2, rank=3),
    _case("ddp", "qwen3_0_6b", 1, {**BF16, **DDP}, 2048, "512", replicate=2, units=[{"modules": [""]}]),
    _case("alone", "llama3_2_1b", 1, BF16, 2048, "512"),
    _case("lora", "llama3_2_1b", 4, MIXED, 2048, "512", layers=2, lora="r=16"),
    _case("varlen", "llama3_2_1b", 4, MIXED, 2048, "300:100", "varlen"),
    _case("varlen_torchtitan", "qwen3_0_6b", 8, {**BF16, **TORCHTITAN}, 4096, "256", "varlen"),
    _case("varlen_checkpoint", "qwen3_0_6b", 4, {**MIXED, "activation_checkpointing": checkpointed("full")}, 2048, "512", "varlen"),
    _case("varlen_selective", "llama3_2_1b", 4, {**BF16, "activation_checkpointing": checkpointed("selective")}, 2048, "256", "varlen"),
    _case("sdpa", "llama3_2_1b", 4, MIXED, 2048, "300:100", "sdpa"),
    _case("sdpa_bf16", "qwen3_0_6b", 2, BF16, 4096, "512", "sdpa"),
    _case("sdpa_checkpoint", "llama3_2_1b", 8, {**BF16, "activation_checkpointing": checkpointed("full")}, 4096, "512", "sdpa"),
    _case("sdpa_gpt2", "gpt2", 2, MIXED, 1024, "100", "sdpa",
          units=[{"modules": ["transformer.h.{0..2}"], "modules_per_unit": 1}, {"modules": [""]}]),
    _case("sdpa_fsdp1", "qwen3_0_6b", 4, plan(BF16), 2048, "512", "sdpa", layers=2),
]


def _flash(name: str, model: str, shard: int, given: dict[str, Any], dimensions: dict[str, float], **others: Any) -> Case:
    runtime = {**given.get("runtime", {}), "implementations": {"attention": "flash_attn"}}
    return Case(f"flash_{name}", model, shard, {**given, "runtime": runtime}, dimensions, **others)


# Rows of one length, which flash-attn's kernel takes without boundaries.
FLASH_CASES = [
    _flash("mixed", "llama3_2_1b", 4, {**MIXED, "optimizer": {"clip_grad_norm": 1.0}}, {"batch": 2, "seq": 2048}),
    _flash("bf16", "qwen3_0_6b", 2, BF16, {"batch": 1, "seq": 1000}),
    _flash("checkpoint", "qwen3_0_6b", 16, {**MIXED, "activation_checkpointing": checkpointed("full")}, {"batch": 2, "seq": 2048},
           nodes=2, rank=9),
    _flash("selective", "llama3_2_1b", 4, {**BF16, "activation_checkpointing": checkpointed("selective")}, {"batch": 1, "seq": 2048}),
    # Another free block is found for one tensor of 64 MiB.
    _flash("window", "mistral_7b_v0_1", 8, BF16, {"batch": 1, "seq": 8192}, layers=2, reserved=0.007),
    _flash("softcap", "gemma2_9b", 8, MIXED, {"batch": 1, "seq": 1024}, layers=2),
    _flash("dropout", "gpt2", 2, MIXED, {"batch": 2, "seq": 512},
           units=[{"modules": ["transformer.h.{0..2}"], "modules_per_unit": 1}, {"modules": [""]}]),
    _flash("few_rows", "llama3_1_8b", 4, BF16, {"batch": 1, "seq": 128}, layers=1),  # Its keys are split.
    _flash("fsdp1", "llama3_2_1b", 4, plan(MIXED), {"batch": 1, "seq": 2048}, layers=2),
    _flash("ddp_lora", "qwen3_0_6b", 1, {**BF16, **DDP}, {"batch": 2, "seq": 512}, replicate=2, units=[{"modules": [""]}], lora="r=16"),
]
