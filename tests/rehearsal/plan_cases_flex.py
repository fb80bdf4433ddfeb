"""Plans whose attention is FlexAttention: a block mask of the documents of packed rows."""

from __future__ import annotations

from typing import Any

from plan_cases import BF16, MIXED, Case, checkpointed
from plan_cases_fsdp1 import plan

DDP = {"runtime": {"name": "pytorch-ddp"}}
TORCHTITAN = {"runtime": {"flavor": "torchtitan", "implementations": {"loss_after_root": False}}}


def _case(name: str, model: str, shard: int, given: dict[str, Any], tokens: int, lengths: str, batch: int = 1, **others: Any) -> Case:
    return Case(f"flex_{name}", model, shard, given, {"batch": batch, "seq": tokens},
                packing={"document_length": lengths, "attention": "flex"}, **{"layers": 2, **others})


FLEX_CASES = [
    _case("mixed", "llama3_2_1b", 4, {**MIXED, "optimizer": {"clip_grad_norm": 1.0}}, 2048, "300:100"),
    _case("peak", "llama2_7b", 8, BF16, 1024, "row"),
    _case("torchtitan", "qwen3_0_6b", 8, {**BF16, **TORCHTITAN}, 4096, "256"),
    _case("rows", "llama3_2_1b", 2, MIXED, 1024, "200", batch=3),
    _case("checkpoint", "qwen3_0_6b", 16, {**MIXED, "activation_checkpointing": checkpointed("full", 2)}, 2048, "512", nodes=2, rank=9),
    _case("selective", "llama3_2_1b", 4, {**BF16, "activation_checkpointing": checkpointed("selective", 2)}, 2048, "256"),
    _case("fsdp1", "llama3_2_1b", 4, plan(MIXED), 2048, "512"),
    _case("accumulate", "qwen3_0_6b", 2, {**MIXED, "accumulation": 2, "sync_every_micro_batch": False}, 1000, "300,212", replicate=2, rank=3,
          allocated=1e-4),
    _case("ddp", "qwen3_0_6b", 1, {**BF16, **DDP}, 2048, "512", replicate=2, units=[{"modules": [""]}]),
    _case("alone", "qwen3_0_6b", 1, {}, 1024, "100"),
]
