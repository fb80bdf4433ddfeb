"""Plans whose checkpointed blocks keep their inputs in pinned host memory."""

from __future__ import annotations

from typing import Any

from plan_cases import BF16, MIXED, Case, checkpointed


def _case(name: str, model: str, shard: int, plan: dict[str, Any], dimensions: dict[str, float], mode: str = "full",
          layers: int = 3, **others: Any) -> Case:
    return Case(f"host_{name}", model, shard, {**plan, "activation_checkpointing": checkpointed(mode, layers, offload_inputs=True)},
                dimensions, layers=layers, **others)


FSDP1 = {"runtime": {"name": "pytorch-fsdp1"}}
DDP = {"runtime": {"name": "pytorch-ddp"}, "ddp": {}}

HOST_CASES = [
    _case("llama_mixed", "llama3_2_1b", 4, MIXED, {"batch": 1, "seq": 2048}),
    _case("llama_bf16", "llama3_2_1b", 8, BF16, {"batch": 2, "seq": 1024}, layers=4),
    _case("qwen_mixed_hybrid", "qwen3_0_6b", 4, {**MIXED, "accumulation": 2}, {"batch": 2, "seq": 512}, replicate=4, rank=9),
    _case("qwen_clipped", "qwen3_0_6b", 16, {**MIXED, "optimizer": {"clip_grad_norm": 1.0}}, {"batch": 1, "seq": 1536},
          nodes=2),
    _case("qwen_alone", "qwen3_0_6b", 1, BF16, {"batch": 1, "seq": 1024}),
    _case("llama_selective", "llama3_2_1b", 4, MIXED, {"batch": 1, "seq": 1024}, mode="selective"),
    _case("llama_to_the_end", "llama3_2_1b", 2, {**MIXED, "accumulation": 3, "sync_every_micro_batch": False},
          {"batch": 1, "seq": 1024}),
    # Without a gradient of its input the first block keeps it on the host as well.
    _case("qwen_frozen_embedding", "qwen3_0_6b", 4, MIXED, {"batch": 1, "seq": 1024}, frozen=["model.embed_tokens.*"]),
    _case("llama_fsdp1", "llama3_2_1b", 4, {**MIXED, **FSDP1}, {"batch": 1, "seq": 1024}),
    _case("llama_ddp", "llama3_2_1b", 1, {**BF16, **DDP}, {"batch": 1, "seq": 1024}, replicate=2, units=[{"modules": [""]}]),
]
