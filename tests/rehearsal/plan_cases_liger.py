"""Plans with kernels of liger-kernel that plan_runner_test.py trains: the library's own functions run, under each framework. They need
the packages of ./scripts/rehearsal_env finetuning."""

from __future__ import annotations

from typing import Any

from plan_cases import BF16, MIXED, Case, checkpointed
from plan_cases_fsdp1 import plan

SMALL = {"batch": 1, "seq": 256}
WORK = {"batch": 2, "seq": 512}
LONG = {"batch": 1, "seq": 2048}
TWICE = {"accumulation": 2}
CLIP = {"optimizer": {"clip_grad_norm": 1.0}}
FULL = {"activation_checkpointing": checkpointed("full", 2)}
ROOT = [{"modules": [""]}]
AUTOCAST = {"parameter_dtype": "float32", "mixed_precision": {"autocast": "bfloat16"}}
# Few bytes beside the activations, so that a block's own moment is the peak.
PLAIN_SGD = {"optimizer": {"kind": "sgd", "momentum": 0.0, "weight_decay": 0.0}}


def _ddp(*parts: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {"runtime": {"name": "pytorch-ddp"}}
    for part in parts:
        merged.update(part)
    return merged


def _with_loss(*parts: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {"runtime": {"name": "pytorch-fsdp2", "implementations": {"loss": "liger", "upcast_logits": False}}}
    for part in parts:
        merged.update(part)
    return merged


LIGER_CASES = [
    Case("liger_mixed", "llama3_2_1b", 4, MIXED, WORK, liger="all"),
    Case("liger_bf16_loss", "llama3_1_8b", 8, _with_loss(BF16, PLAIN_SGD), LONG, layers=2, liger="all"),
    Case("liger_qwen3_checkpoint", "qwen3_8b", 16, {**MIXED, **FULL}, LONG, layers=2, nodes=2, rank=15, liger="all"),
    Case("liger_qwen3_bf16", "qwen3_0_6b", 2, {**BF16, **PLAIN_SGD}, {"batch": 4, "seq": 512}, layers=2, liger="all"),
    Case("liger_gemma2", "gemma2_9b", 8, {**MIXED, **CLIP}, SMALL, layers=2, liger="all"),
    Case("liger_qwen2_hsdp", "qwen2_5_7b", 2, {**BF16, **TWICE}, {"batch": 1, "seq": 512}, layers=2, replicate=2, rank=3, liger="all"),
    Case("liger_rope", "llama3_2_1b", 4, {**BF16, **PLAIN_SGD}, WORK, layers=2, liger="rope"),
    Case("liger_norm", "llama3_2_1b", 4, {**BF16, **PLAIN_SGD}, WORK, layers=2, liger="rms_norm"),
    Case("liger_glu", "llama3_2_1b", 4, {**BF16, **PLAIN_SGD}, WORK, layers=2, liger="glu"),
    Case("liger_one_gpu", "llama3_2_1b", 1, {"parameter_dtype": "float32", **PLAIN_SGD}, WORK, layers=2, liger="all"),
    Case("liger_fsdp1", "llama3_2_1b", 4, plan(MIXED), WORK, layers=2, liger="all"),
    Case("liger_fsdp1_checkpoint", "qwen3_0_6b", 8, plan(BF16, FULL), WORK, layers=2, liger="all"),
    Case("liger_ddp", "llama3_2_1b", 1, _ddp(BF16, PLAIN_SGD), WORK, layers=2, replicate=2, units=ROOT, liger="all"),
    Case("liger_ddp_checkpoint", "qwen3_0_6b", 1, _ddp(FULL), WORK, layers=2, replicate=8, units=ROOT, liger="all"),
]
LIGER_MORE_CASES = [
    Case("liger_checkpoint_nested", "llama3_2_1b", 2, {**BF16, **PLAIN_SGD, "activation_checkpointing": checkpointed("nested")},
         {"batch": 4, "seq": 1024}, liger="all"),
    Case("liger_lora", "llama3_2_1b", 4, MIXED, WORK, layers=2, lora="r=16", liger="all"),
    Case("liger_lora_checkpoint", "qwen3_0_6b", 2, {**FULL}, WORK, layers=2, lora="r=16,targets=q_proj+up_proj", liger="all"),
    Case("liger_qlora", "llama3_2_1b", 4, {**MIXED, **FULL}, LONG, layers=2, lora="r=16", quantize="nf4", liger="all"),
    Case("liger_selective", "qwen3_8b", 4, {**MIXED, "activation_checkpointing": checkpointed("selective", 2)}, LONG, layers=2, liger="all"),
    Case("liger_frozen", "llama3_2_1b", 4, {**BF16, **PLAIN_SGD}, WORK, layers=2, frozen=["model.embed_tokens.*", "model.layers.0.*"], liger="all"),
    Case("liger_offload", "mistral_7b_v0_3", 4, {**MIXED, "cpu_offload": True}, LONG, layers=2, liger="all"),
    Case("liger_mixture", "mixtral_8x7b", 8, MIXED, SMALL, layers=2, liger="rope,rms_norm",
         requested=3e-4, allocated=3e-4, reserved=4e-4),  # As without them.
    Case("liger_gemma2_checkpoint", "gemma2_9b", 2, {**BF16, **FULL, **PLAIN_SGD}, {"batch": 2, "seq": 256}, layers=2, liger="all"),
    Case("liger_autocast", "llama3_2_1b", 1, _ddp(AUTOCAST), WORK, layers=2, replicate=2, units=ROOT, liger="all"),
    Case("liger_autocast_checkpoint", "qwen3_0_6b", 1, _ddp(AUTOCAST, FULL), WORK, layers=2, units=ROOT, liger="all"),
]
