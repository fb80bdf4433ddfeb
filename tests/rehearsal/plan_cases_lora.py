"""Plans of LoRA adapters that plan_runner_test.py trains: PEFT's layers as the expanded model has them, under each framework."""

from __future__ import annotations

from typing import Any

from plan_cases import MIXED, Case, checkpointed
from plan_cases_fsdp1 import plan
from plan_cases_zero import BF16, zero_case
from plan_cases_zero3 import SHARDED

LLAMA = "model.layers.{0..%d}"
WORK = {"batch": 1, "seq": 1024}
SMALL = {"batch": 1, "seq": 256}
DDP = {"runtime": {"name": "pytorch-ddp"}}
ROOT = [{"modules": [""]}]

PROJECTIONS = [f"self_attn.{name}_proj" for name in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]


def flat_units(layers: int) -> list[dict[str, Any]]:
    """Those of peft's fsdp_auto_wrap_policy: each adapter, each block, and the root."""
    units: list[dict[str, Any]] = []
    for i in range(layers):
        block = f"model.layers.{i}"
        units += [{"modules": [f"{block}.{name}.lora_{part}.default"], "reshard_after_forward": True} for name in PROJECTIONS for part in "AB"]
        units.append({"modules": [block], "reshard_after_forward": True})
    return [*units, {"modules": [""]}]


LORA_CASES = [
    Case("lora_mixed", "llama3_2_1b", 4, MIXED, WORK, lora="r=16,alpha=32"),
    Case("lora_bf16_dropout", "qwen3_0_6b", 2, {}, WORK, lora="r=8,dropout=0.05"),
    Case("lora_checkpoint", "llama3_2_1b", 8, {**MIXED, "activation_checkpointing": checkpointed("full")}, {"batch": 2, "seq": 1024},
         lora="r=16,dropout=0.1"),
    Case("lora_selective", "qwen3_0_6b", 4, {**MIXED, "activation_checkpointing": checkpointed("selective")}, {"batch": 2, "seq": 1024},
         lora="r=16"),
    Case("lora_attention_hsdp", "qwen2_5_7b", 2, {**MIXED, "optimizer": {"clip_grad_norm": 1.0}}, {"batch": 1, "seq": 512}, replicate=2,
         rank=3, layers=2, lora="r=64,targets=q_proj+k_proj+v_proj+o_proj"),
    Case("lora_accumulate", "llama3_2_1b", 4, {**MIXED, "accumulation": 2, "sync_every_micro_batch": False}, WORK, layers=2, lora="r=16"),
    Case("lora_offload", "llama3_2_1b", 4, {**MIXED, "cpu_offload": True}, WORK, layers=2, lora="r=16"),
    Case("lora_kept", "qwen3_0_6b", 16, {}, WORK, lora="r=32", nodes=2, rank=9,
         units=[{"modules": [LLAMA % 2], "modules_per_unit": 1, "reshard_after_forward": False}, {"modules": [""]}]),
    Case("lora_one_gpu", "llama3_2_1b", 1, MIXED, WORK, layers=2, lora="r=16"),
    Case("lora_ddp", "qwen3_0_6b", 1, DDP, SMALL, replicate=2, units=ROOT, lora="r=16,dropout=0.05"),
    Case("lora_ddp_checkpoint", "llama3_2_1b", 1, {**DDP, "activation_checkpointing": checkpointed("full")}, WORK, replicate=4, units=ROOT,
         lora="r=16,targets=q_proj+v_proj"),
    Case("lora_fsdp1", "llama3_2_1b", 4, plan(MIXED), WORK, layers=2, units=flat_units(2), lora="r=16"),
    Case("lora_fsdp1_checkpoint", "llama3_2_1b", 4, plan({**MIXED, "activation_checkpointing": checkpointed("full", 2)}), WORK, layers=2,
         units=flat_units(2), lora="r=16,input_grads=yes"),
    Case("lora_fsdp1_checkpoint_no_prefetch", "qwen3_0_6b", 2,
         plan({"activation_checkpointing": checkpointed("full", 2), "accumulation": 2}, backward_prefetch="none"), WORK, layers=2,
         units=flat_units(2), lora="r=8"),
    # As axolotl shards them.
    Case("lora_units", "llama3_2_1b", 4, MIXED, WORK, layers=2, units=flat_units(2), lora="r=16,dropout=0.05,input_grads=yes"),
    Case("lora_units_checkpoint", "qwen3_0_6b", 2, {**MIXED, "activation_checkpointing": checkpointed("full", 2)}, WORK, layers=2,
         units=flat_units(2), lora="r=16,dropout=0.05,input_grads=yes"),
]
ZERO_LORA_CASES = [
    zero_case(1, "lora", "llama3_2_1b", 2, BF16, SMALL, lora="r=16"),
    zero_case(2, "lora_accumulate", "qwen3_0_6b", 4, {**BF16, "accumulation": 2}, SMALL, lora="r=16,dropout=0.05"),
    zero_case(3, "lora", "llama3_2_1b", 4, {**SHARDED, **BF16}, SMALL, lora="r=16"),
]
