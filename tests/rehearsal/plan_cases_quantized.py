"""Plans of adapters on a base in four bits (QLoRA) that plan_runner_test.py trains with bitsandbytes' own layers."""

from __future__ import annotations

from plan_cases import MIXED, Case, checkpointed
from plan_cases_autocast import ACCELERATE
from plan_cases_fsdp1 import plan
from plan_cases_lora import DDP, ROOT, flat_units

# Above 1536 tokens the forward always unpacks whole weights.
WORK = {"batch": 1, "seq": 2048}
AUTOCAST_DDP = {"parameter_dtype": "float32", "mixed_precision": {"autocast": "bfloat16", "float_outputs": True}}
FULL = {"activation_checkpointing": checkpointed("full")}

QUANTIZED_CASES = [
    Case("nf4_mixed", "llama3_2_1b", 4, MIXED, WORK, lora="r=16,alpha=32", quantize="nf4"),
    Case("nf4_double_checkpoint", "llama3_2_1b", 2, {**MIXED, **FULL, "optimizer": {"clip_grad_norm": 1.0}}, WORK, lora="r=16,dropout=0.05",
         quantize="nf4,double"),
    Case("nf4_bf16_qwen3", "qwen3_0_6b", 8, {}, WORK, rank=3, lora="r=8", quantize="nf4,double"),
    Case("fp4_biases_attention", "qwen2_5_7b", 2, {**MIXED, "activation_checkpointing": checkpointed("full", 2)}, WORK, layers=2,
         lora="r=64,targets=q_proj+k_proj+v_proj+o_proj", quantize="fp4"),
    Case("nf4_hsdp_two_nodes", "qwen3_0_6b", 8, MIXED, WORK, replicate=2, nodes=2, rank=9, lora="r=16", quantize="nf4"),
    Case("nf4_one_gpu", "llama3_2_1b", 1, {**FULL}, WORK, lora="r=16", quantize="nf4,double"),
    Case("nf4_ddp_bytes", "llama3_2_1b", 1, DDP, WORK, replicate=4, units=ROOT, lora="r=16", quantize="nf4,double,uint8"),
    Case("nf4_ddp_checkpoint", "qwen3_0_6b", 1, {**DDP, **FULL}, WORK, replicate=2, units=ROOT, lora="r=16,dropout=0.1", quantize="nf4"),
    Case("nf4_fsdp1", "llama3_2_1b", 4, plan(MIXED), WORK, layers=2, units=flat_units(2), lora="r=16", quantize="nf4"),
    Case("nf4_fsdp1_bf16", "qwen3_0_6b", 2, plan({"initialization": "device"}), WORK, layers=2, units=flat_units(2), lora="r=16",
         quantize="nf4,double"),
    Case("nf4_fsdp1_autocast_checkpoint", "llama3_2_1b", 2,
         plan({"parameter_dtype": "float32", "mixed_precision": ACCELERATE, "activation_checkpointing": checkpointed("full", 2)},
              buffer_dtype="bfloat16", backward_prefetch="none"), WORK, layers=2, units=flat_units(2),
         lora="r=16,dropout=0.05,input_grads=yes", quantize="nf4,double", requested=1e-6),
    Case("nf4_ddp_autocast", "qwen3_0_6b", 1, {**DDP, **FULL, **AUTOCAST_DDP}, WORK, replicate=2, units=ROOT, lora="r=8", quantize="nf4,double"),
    Case("nf4_one_gpu_autocast", "llama3_2_1b", 1, {**DDP, **AUTOCAST_DDP, "accumulation": 2}, WORK, layers=2, units=ROOT,
         lora="r=16,dropout=0.05", quantize="nf4"),
    Case("nf4_offload_accumulate", "llama3_2_1b", 4, {**MIXED, "cpu_offload": True, "accumulation": 2}, WORK, layers=2, lora="r=16",
         quantize="nf4"),
]
