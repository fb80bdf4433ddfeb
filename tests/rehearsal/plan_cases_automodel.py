"""Plans of NeMo Automodel's flavors that plan_runner_test.py trains, with the library's own norm and adapters. They need the packages of
./scripts/rehearsal_env automodel."""

from __future__ import annotations

from plan_cases import BF16, MIXED, Case

FLAVOR = {"runtime": {"flavor": "automodel"}}
CLIP = {"optimizer": {"clip_grad_norm": 1.0, "implementation": "for_loop", "weight_decay": 0.0}}
WORK = {"batch": 2, "seq": 512}

AUTOMODEL_CASES = [
    Case("automodel_llama", "llama3_2_1b", 4, {**BF16, **FLAVOR}, WORK, layers=2),
    Case("automodel_qwen2_accumulate", "qwen2_5_7b", 8, {**BF16, **FLAVOR, **CLIP, "accumulation": 2}, WORK, layers=2),
    Case("automodel_qwen3_mixed", "qwen3_0_6b", 2, {**MIXED, **FLAVOR, **CLIP}, WORK, layers=2),
    Case("automodel_lora", "llama3_2_1b", 4, {**BF16, **FLAVOR}, WORK, layers=1, lora="r=8,targets=*q_proj+*down_proj"),
]
