"""Plans with the optimizers of other libraries, and with Adafactor, that plan_runner_test.py trains. They need the packages of
the environment finetuning."""

from __future__ import annotations

from typing import Any

from plan_cases import BF16, MIXED, Case, _ddp
from plan_cases_fsdp1 import FP32, plan

SMALL = {"batch": 1, "seq": 256}


def _optimizer(kind: str, **more: Any) -> dict[str, Any]:
    return {"optimizer": {"kind": kind, **more}}


def _fsdp1(name: str, model: str, shard: int, kind: str, precision: dict[str, Any], *, options: dict[str, Any] | None = None,
           **others: Any) -> Case:
    return Case(f"optimizer_{name}", model, shard, plan(precision, _optimizer(kind), **(options or {})), SMALL, **others)


def _of_ddp(name: str, model: str, ranks: int, kind: str, precision: dict[str, Any], **others: Any) -> Case:
    case = _ddp(name, model, ranks, {**precision, **_optimizer(kind)}, SMALL, **others)
    case.name = f"optimizer_{name}"
    return case


def _fsdp2(name: str, model: str, shard: int, kind: str, precision: dict[str, Any], **others: Any) -> Case:
    return Case(f"optimizer_{name}", model, shard, {**precision, **_optimizer(kind)}, SMALL, **others)


# bitsandbytes takes whole and flat parameters.
BITSANDBYTES_CASES = [
    _of_ddp("bnb_adamw_8bit_ddp", "llama3_2_1b", 2, "adamw_8bit", BF16),
    _of_ddp("bnb_adamw_8bit_alone", "qwen3_0_6b", 1, "adamw_8bit", FP32),
    _fsdp1("bnb_adamw_8bit_fsdp1", "llama3_2_1b", 8, "adamw_8bit", MIXED),
    _fsdp1("bnb_adamw_8bit_views", "qwen3_0_6b", 4, "adamw_8bit", BF16, options={"use_orig_params": True}),
    _fsdp1("bnb_adam_8bit_odd", "gpt2", 7, "adam_8bit", MIXED, rank=6, blocks="transformer.h.{0..%d}"),
    _fsdp1("bnb_paged_8bit_fsdp1", "llama3_2_1b", 16, "paged_adamw_8bit", MIXED, nodes=2),
    _of_ddp("bnb_paged_32bit_ddp", "qwen3_0_6b", 4, "paged_adamw_32bit", BF16),
    _of_ddp("bnb_lion_8bit_ddp", "llama3_2_1b", 4, "lion_8bit", FP32),
    _fsdp1("bnb_lion_32bit_fsdp1", "qwen3_0_6b", 4, "lion_32bit", MIXED),
    _fsdp1("bnb_paged_lion_8bit_fsdp1", "qwen3_0_6b", 2, "paged_lion_8bit", BF16),
]

# torchao's updates of DTensors need fp32 parameters.
TORCHAO_CASES = [
    _fsdp2("ao_adamw_8bit", "llama3_2_1b", 4, "adamw_torch_8bit", MIXED),
    _fsdp2("ao_adamw_8bit_tied", "qwen3_0_6b", 16, "adamw_torch_8bit", MIXED, nodes=2),
    _of_ddp("ao_adamw_8bit_ddp", "qwen3_0_6b", 2, "adamw_torch_8bit", BF16),
    _fsdp1("ao_adamw_8bit_fsdp1", "llama3_2_1b", 4, "adamw_torch_8bit", MIXED),
    _fsdp2("ao_adamw_4bit", "llama3_2_1b", 8, "adamw_torch_4bit", MIXED),
    _of_ddp("ao_adamw_4bit_ddp", "qwen3_0_6b", 2, "adamw_torch_4bit", BF16),
    _fsdp2("ao_adamw_fp8", "qwen3_0_6b", 4, "adamw_torch_fp8", MIXED),
    _of_ddp("ao_adamw_fp8_alone", "llama3_2_1b", 1, "adamw_torch_fp8", BF16),
]

FACTOR_CASES = [
    _of_ddp("adafactor_ddp", "llama3_2_1b", 2, "adafactor", BF16),
    _of_ddp("adafactor_alone", "qwen3_0_6b", 1, "adafactor", FP32),
    _fsdp1("adafactor_fsdp1", "llama3_2_1b", 4, "adafactor", MIXED),
    _fsdp1("adafactor_fsdp1_bf16", "qwen3_0_6b", 8, "adafactor", BF16, allocated=4e-4),
    _of_ddp("adafactor_torch_ddp", "qwen3_0_6b", 4, "adafactor_torch", BF16),
    _fsdp1("adafactor_torch_fsdp1", "llama3_2_1b", 2, "adafactor_torch", FP32),
]

SCHEDULE_FREE_CASES = [
    _fsdp2("schedule_free", "qwen3_0_6b", 4, "schedule_free_adamw", MIXED),
    _fsdp2("schedule_free_bf16", "llama3_2_1b", 8, "schedule_free_adamw", BF16),
    _of_ddp("schedule_free_ddp", "llama3_2_1b", 2, "schedule_free_adamw", BF16),
    _fsdp1("schedule_free_fsdp1", "qwen3_0_6b", 2, "schedule_free_adamw", MIXED),
]

# Muon of the matrices in blocks, and AdamW of the rest.
MUON: dict[str, Any] = {"optimizer": {"kind": "adamw", "muon": {}}}
MUON_CASES = [
    Case("optimizer_muon", "llama3_2_1b", 2, {**MIXED, **MUON}, SMALL),
    Case("optimizer_muon_bf16", "qwen3_0_6b", 4, {**BF16, **MUON}, SMALL),
    _ddp("muon", "qwen3_0_6b", 2, {**BF16, **MUON}, SMALL),
]

OPTIMIZER_CASES = [*BITSANDBYTES_CASES, *TORCHAO_CASES, *FACTOR_CASES, *SCHEDULE_FREE_CASES, *MUON_CASES]
# The same in parts that one test each trains in time.
OPTIMIZER_GROUPS = {
    "optimizers_bitsandbytes": BITSANDBYTES_CASES[::2], "optimizers_bitsandbytes_more": BITSANDBYTES_CASES[1::2],
    "optimizers_torchao": TORCHAO_CASES, "optimizers_other": [*FACTOR_CASES, *SCHEDULE_FREE_CASES, *MUON_CASES]}


# What does not update FSDP2's parameters, with a part of the library's error and of the refusal.
MIXED_TENSORS = "got mixed torch.Tensor and DTensor"
OPTIMIZER_FAILURES = [
    (_fsdp2("bnb_adamw_8bit_fails", "llama3_2_1b", 2, "adamw_8bit", MIXED, layers=1), MIXED_TENSORS),
    (_fsdp2("bnb_paged_fails", "llama3_2_1b", 2, "paged_adamw_32bit", MIXED, layers=1), MIXED_TENSORS),
    (_fsdp2("bnb_lion_fails", "llama3_2_1b", 2, "lion_32bit", BF16, layers=1), "does not have a sharding strategy registered"),
    (_fsdp2("ao_adamw_8bit_fails", "llama3_2_1b", 2, "adamw_torch_8bit", BF16, layers=1), "aten.view"),
    (_fsdp2("ao_adamw_4bit_fails", "llama3_2_1b", 2, "adamw_torch_4bit", BF16, layers=1), "aten.view"),
    (_fsdp2("adafactor_fails", "llama3_2_1b", 2, "adafactor", MIXED, layers=1), MIXED_TENSORS),
    (_fsdp2("adafactor_torch_fails", "llama3_2_1b", 2, "adafactor_torch", MIXED, layers=1),
     "in-place operations that require placement changes are not supported"),
]


def package_of(case: Case) -> str:
    """The package whose optimizer the case trains with."""
    return {"adamw": "torch", "adafactor": "transformers", "adafactor_torch": "torch", "schedule_free_adamw": "schedulefree"}.get(
        case.plan["optimizer"]["kind"], "bitsandbytes" if "bnb" in case.name else "torchao")


def group_of_failure(case: Case) -> str:
    """The part that trains it."""
    package = package_of(case)
    return f"optimizers_{package}" if package in ("bitsandbytes", "torchao") else "optimizers_other"
