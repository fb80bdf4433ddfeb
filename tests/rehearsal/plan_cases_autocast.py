"""Plans under torch.autocast that plan_runner_test.py trains: fp32 parameters, or adapters in fp32 on a base in bf16."""

from __future__ import annotations

from typing import Any

from plan_cases import Case, checkpointed

AUTOCAST = {"parameter_dtype": "float32", "mixed_precision": {"autocast": "bfloat16"}}
FULL = {"activation_checkpointing": checkpointed("full")}
SMALL = {"batch": 1, "seq": 256}
WORK = {"batch": 2, "seq": 512}


def _ddp(name: str, model: str, ranks: int, given: dict[str, Any], dimensions: dict[str, float],
         ddp: dict[str, Any] | None = None, **options: Any) -> Case:
    plan = {**AUTOCAST, **given, "runtime": {"name": "pytorch-ddp", **given.get("runtime", {})}, **({"ddp": ddp} if ddp else {})}
    return Case(f"autocast_{name}", model, 1, plan, dimensions, replicate=ranks, units=[{"modules": [""]}], **options)


AUTOCAST_CASES = [
    _ddp("gpt2", "gpt2", 1, {"optimizer": {"clip_grad_norm": 1.0}, "accumulation": 2}, WORK),
    _ddp("llama", "llama3_2_1b", 8, {}, WORK, ddp={"gradient_as_bucket_view": True}),
    _ddp("llama_checkpoint", "llama3_2_1b", 8, FULL, WORK),
    _ddp("llama_checkpoint_to_the_end", "llama3_2_1b", 2, {"activation_checkpointing": checkpointed("full", early_stop=False)}, SMALL,
         reserved=4e-4),
    _ddp("qwen3_no_sync", "qwen3_0_6b", 2, {"accumulation": 2, "sync_every_micro_batch": False, **FULL}, WORK),
    _ddp("qwen3_frozen", "qwen3_0_6b", 2, {}, SMALL, frozen=["model.embed_tokens.*", "model.layers.0.*"]),
    _ddp("vit", "vit_b_16", 2, {}, {"batch": 4}),
    _ddp("bert", "bert_large", 2, {}, {"batch": 2, "seq": 128}),
    _ddp("resnet", "resnet18", 2, {}, {"batch": 4}, layers=None),
    _ddp("lora", "llama3_2_1b", 8, {}, WORK, lora="r=16,dropout=0.05"),
    _ddp("lora_checkpoint", "qwen3_0_6b", 2, FULL, WORK, lora="r=16,targets=q_proj+v_proj"),
    _ddp("lora_alone", "llama3_2_1b", 1, {**FULL, "accumulation": 2}, WORK, lora="r=16"),
]
AUTOCAST_MORE_CASES = [
    _ddp("t5", "t5_3b", 2, {}, {"batch": 1}, reserved=3e-4),
    _ddp("whisper", "whisper_large_v3", 2, {}, {"batch": 1}, allocated=2e-4, reserved=8e-3),
    _ddp("lora_gpt2", "gpt2", 2, {}, WORK, lora="r=16,targets=c_attn+c_proj+c_fc"),
]
