"""Plans with reentrant checkpoints that plan_runner_test.py trains. Blocks of SGD and a short row have their peak in a block."""

from __future__ import annotations

from plan_cases import BF16, MIXED, Case, _ddp, checkpointed
from plan_cases_autocast import _fsdp1
from plan_cases_fsdp1 import plan
from plan_cases_lora import flat_units

AGAIN = {"activation_checkpointing": checkpointed("reentrant")}
AGAIN_2 = {"activation_checkpointing": checkpointed("reentrant", 2)}
SGD = {"optimizer": {"kind": "sgd", "momentum": 0.0, "weight_decay": 0.0}}
WORK = {"batch": 2, "seq": 1024}
LORA = "r=16,dropout=0.05,input_grads=yes"

REENTRANT_CASES = [
    Case("reentrant", "qwen3_0_6b", 4, {**MIXED, **AGAIN}, WORK),
    # Most of the memory is that of a block's backward.
    Case("reentrant_sgd", "gemma2_9b", 4, {**BF16, **SGD, **AGAIN_2}, {"batch": 1, "seq": 2048}, layers=2,
         requested=2e-6, allocated=2e-6, reserved=2e-4),  # As with full ones.
    Case("reentrant_kept", "llama3_2_1b", 2, {**MIXED, **SGD, **AGAIN, "accumulation": 2}, WORK,
         units=[{"modules": ["model.layers.{0..2}"], "modules_per_unit": 1, "reshard_after_forward": False}, {"modules": [""]}]),
    Case("reentrant_hsdp", "llama3_2_1b", 2, {**MIXED, **AGAIN, "accumulation": 2, "sync_every_micro_batch": False}, WORK,
         replicate=2, rank=3, allocated=2e-4),  # One MiB that the allocator does not split off in the first step.
    Case("reentrant_one_unit", "qwen3_0_6b", 4, {**MIXED, **AGAIN}, WORK, units=[{"modules": [""]}]),
    Case("reentrant_lora", "llama3_2_1b", 8, {**MIXED, **AGAIN}, WORK, lora=LORA),
    Case("reentrant_lora_units", "qwen3_0_6b", 2, {**MIXED, **AGAIN_2}, WORK, layers=2, units=flat_units(2), lora=LORA),
    Case("reentrant_packed", "llama3_2_1b", 2, {**BF16, **AGAIN}, {"batch": 1, "seq": 2048},
         packing={"document_length": "500", "attention": "varlen"}),
    Case("reentrant_fsdp1", "qwen3_0_6b", 4, plan(MIXED, AGAIN), WORK),
    Case("reentrant_fsdp1_lora", "llama3_2_1b", 4, plan({**MIXED, **AGAIN_2}), WORK, layers=2, units=flat_units(2), lora=LORA),
    Case("reentrant_fsdp1_no_prefetch", "qwen3_0_6b", 2, plan({**AGAIN_2, "accumulation": 2}, backward_prefetch="none"), WORK,
         layers=2, units=flat_units(2), lora="r=8,input_grads=yes"),
    _fsdp1("reentrant", "llama3_2_1b", 4, AGAIN, WORK),
    _ddp("reentrant", "llama3_2_1b", 4, {**BF16, **SGD, **AGAIN}, {"batch": 1, "seq": 1024}),
    _ddp("reentrant_lora", "qwen3_0_6b", 2, {**AGAIN}, WORK, lora=LORA),
]
