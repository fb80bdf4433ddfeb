"""Plans under torch.autocast that plan_runner_test.py trains: fp32 parameters, or adapters in fp32 on a base in bf16; and autocast
beside the policies of FSDP1 and FSDP2, with and without accelerate's copies of the outputs in fp32."""

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
CHUNKED = {"runtime": {"implementations": {"loss": "chunked_nll", "upcast_logits": False}}}
AUTOCAST_MORE_CASES = [
    _ddp("chunked", "llama3_2_1b", 2, CHUNKED, WORK),
    _ddp("chunked_one_gpu", "qwen3_0_6b", 1, {**CHUNKED, **FULL}, {"batch": 1, "seq": 5000}),
    _ddp("chunked_lora", "llama3_2_1b", 2, {**CHUNKED, **FULL}, WORK, lora="r=16"),
    _ddp("t5", "t5_3b", 2, {}, {"batch": 1}, reserved=3e-4),
    _ddp("whisper", "whisper_large_v3", 2, {}, {"batch": 1}, allocated=2e-4, reserved=8e-3),
    _ddp("lora_gpt2", "gpt2", 2, {}, WORK, lora="r=16,targets=c_attn+c_proj+c_fc"),
]

# accelerate's mixed_precision bf16 of FSDP1, and a training loop that has autocast beside FSDP2's policy.
POLICY = {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16", "autocast": "bfloat16"}
ACCELERATE = {**POLICY, "cast_forward_inputs": False, "float_outputs": True}
KEEPS = {"runtime": {"name": "pytorch-fsdp1", "implementations": {"keep_logits": True}}}
GPT2 = "transformer.h.{0..%d}"
VIT = "encoder.layers.encoder_layer_{0..%d}"
CLIP = {"optimizer": {"clip_grad_norm": 1.0}}
GPT2_FULL = {"activation_checkpointing": {"modules": [{"module": "transformer.h.{0..2}", "mode": "full"}]}}


def _fsdp1(name: str, model: str, ranks: int, given: dict[str, Any], dimensions: dict[str, float], **options: Any) -> Case:
    plan = {"parameter_dtype": "float32", "mixed_precision": ACCELERATE, "runtime": {"name": "pytorch-fsdp1"},
            "fsdp1": {"buffer_dtype": "bfloat16", "use_orig_params": True}, **given}
    # FSDP1 casts the frequencies of a rotary table, 32 numbers, which a plan has in fp32 throughout.
    return Case(f"autocast_fsdp1_{name}", model, ranks, plan, dimensions, **{"requested": 1e-6, **options})


def _fsdp2(name: str, model: str, ranks: int, given: dict[str, Any], dimensions: dict[str, float], precision: dict[str, Any] | None = None,
           **options: Any) -> Case:
    plan = {"parameter_dtype": "float32", "mixed_precision": {**POLICY, **(precision or {})}, **given}
    return Case(f"autocast_fsdp2_{name}", model, ranks, plan, dimensions, **options)


AUTOCAST_FSDP_CASES = [
    _fsdp1("llama", "llama3_2_1b", 8, CLIP, WORK),
    _fsdp1("llama_checkpoint", "llama3_2_1b", 4, {**FULL, "accumulation": 2, "sync_every_micro_batch": False}, WORK),
    _fsdp1("llama_kept_logits", "llama3_2_1b", 2, KEEPS, SMALL),
    _fsdp1("gpt2", "gpt2", 4, CLIP, WORK, blocks=GPT2),
    _fsdp1("gpt2_checkpoint", "gpt2", 16, {**GPT2_FULL, "fsdp1": {"buffer_dtype": "bfloat16"}}, WORK, blocks=GPT2, nodes=2),
    _fsdp1("bert", "bert_large", 2, {}, {"batch": 2, "seq": 128}, blocks="bert.encoder.layer.{0..%d}"),
    _fsdp2("gpt2", "gpt2", 4, {"accumulation": 2}, WORK, {"reduce_dtype": "float32"}, blocks=GPT2),
    _fsdp2("gpt2_checkpoint_float_outputs", "gpt2", 2, GPT2_FULL, WORK, {"output_dtype": "bfloat16", "float_outputs": True}, blocks=GPT2),
    _fsdp2("lora", "llama3_2_1b", 4, {}, WORK, lora="r=16,dropout=0.05"),
    _fsdp2("qwen3_lora_checkpoint", "qwen3_0_6b", 8, FULL, WORK, {"float_outputs": True}, lora="r=16"),
    _ddp("float_outputs_lora_checkpoint", "qwen3_0_6b", 2,
         {**FULL, "mixed_precision": {"autocast": "bfloat16", "float_outputs": True}}, WORK, lora="r=16"),
]

AUTOCAST_MORE_CASES += [
    _fsdp1("qwen3_moe", "qwen3_30b_a3b", 4, {}, SMALL, layers=1, reserved=6e-4),
    _fsdp1("gemma2", "gemma2_9b", 4, {}, SMALL, layers=2),
    _fsdp1("selective", "llama3_2_1b", 4, {"activation_checkpointing": checkpointed("selective")}, WORK),
    _fsdp1("packed", "llama3_2_1b", 4, {}, {"batch": 1, "seq": 512}, packing={"document_length": "200", "attention": "flash_attn"}),
    _fsdp1("on_host", "llama3_2_1b", 4, {"activation_checkpointing": checkpointed("full", offload_inputs=True)}, WORK),
    _fsdp1("vit", "vit_b_16", 2, {}, {"batch": 4}, blocks=VIT),
    _fsdp1("qwen3_one_gpu", "qwen3_0_6b", 1, {}, SMALL),
    _fsdp2("llama", "llama3_2_1b", 8, CLIP, WORK),
    _fsdp2("vit", "vit_b_16", 2, {}, {"batch": 4}, blocks=VIT),
    _ddp("float_outputs", "llama3_2_1b", 2, {"mixed_precision": {"autocast": "bfloat16", "float_outputs": True}}, WORK),
]
