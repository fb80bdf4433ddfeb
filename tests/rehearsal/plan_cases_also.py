"""Plans with a model beside the trained one, which is not trained: the reference model of DPO and GRPO, a reward model."""

from __future__ import annotations

from typing import Any

from plan_cases import MIXED, Case, checkpointed
from plan_cases_fsdp1 import LLAMA as BLOCKS
from plan_cases_fsdp1 import plan, rows
from plan_cases_lora import DDP, ROOT


def loss(name: str) -> dict[str, Any]:
    return {"runtime": {"implementations": {"loss": name, "upcast_logits": False}}}


WORK = {"batch": 2, "seq": 512}
BF16 = {"parameter_dtype": "bfloat16"}
QWEN, LLAMA, GPT2 = "qwen3_0_6b", "llama3_2_1b", "gpt2"

ALSO_CASES = [
    # As TRL's prepare_fsdp: one unit, which is gathered whole beside the activations of the trained model.
    Case("also_root_mixed", LLAMA, 4, {**MIXED, "optimizer": {"clip_grad_norm": 1.0}}, WORK, also=[QWEN]),
    Case("also_root_bf16_checkpoint", QWEN, 8, {**BF16, "activation_checkpointing": checkpointed("full")}, WORK, rank=3, also=[QWEN]),
    # As verl: its blocks are units.
    Case("also_blocks_before", QWEN, 4, {**MIXED, "accumulation": 2}, WORK, also=[f"{LLAMA},wrap=blocks,turn=before"]),
    Case("also_blocks_16_gpus", LLAMA, 16, BF16, WORK, nodes=2, layers=2, also=[f"{LLAMA},wrap=blocks"]),
    Case("also_offload", QWEN, 4, MIXED, WORK, layers=2, also=[f"{QWEN},offload=yes"]),
    Case("also_offload_blocks", LLAMA, 2, BF16, WORK, layers=2, also=[f"{LLAMA},wrap=blocks,offload=yes,turn=before"]),
    Case("also_fp32_beside_mixed", QWEN, 2, {**MIXED, "accumulation": 3, "sync_every_micro_batch": False}, WORK, also=[f"{QWEN},dtype=fp32"]),
    Case("also_hsdp", LLAMA, 2, MIXED, WORK, replicate=2, rank=1, layers=2, also=[f"{QWEN},wrap=blocks"]),
]

ALSO_MORE_CASES = [
    Case("also_one_gpu", QWEN, 1, BF16, WORK, layers=2, also=[QWEN]),
    Case("also_whole_under_fsdp2", QWEN, 4, MIXED, WORK, layers=2, also=[f"{LLAMA},wrap=none,dtype=bf16"]),
    # PPO: a reference and a reward model.
    Case("also_two", LLAMA, 4, BF16, WORK, layers=2, also=[f"{LLAMA},turn=before", f"{QWEN},wrap=blocks,turn=before"]),
    # accelerate's prepare_model(evaluation_mode=True).
    Case("also_ddp", QWEN, 1, {**DDP, **BF16}, WORK, replicate=4, units=ROOT, layers=2, also=[LLAMA]),
    Case("also_ddp_before", LLAMA, 1, {**DDP}, WORK, replicate=2, units=ROOT, layers=2, also=[f"{QWEN},turn=before"]),
    Case("also_fsdp1", LLAMA, 4, plan(MIXED), WORK, layers=2, units=rows(BLOCKS, 2), also=[QWEN]),
    Case("also_fsdp1_bf16_before", QWEN, 2, plan(BF16), WORK, layers=2, units=rows(BLOCKS, 2), also=[f"{QWEN},turn=before"]),
    Case("also_lora", QWEN, 4, BF16, WORK, layers=2, lora="r=16", also=[f"{QWEN},wrap=blocks"]),
]

# Ends and parts of plans that the others do not have.
ALSO_REST_CASES = [
    Case("also_after_root", LLAMA, 4, {**MIXED, "runtime": {"flavor": "torchtitan"}}, WORK, layers=2, also=[QWEN]),
    Case("also_keep_logits", LLAMA, 4, {**BF16, "runtime": {"implementations": {"keep_logits": True}}}, WORK, layers=2, also=[QWEN]),
    # accelerate's policy.
    Case("also_output_bf16", QWEN, 4, {"parameter_dtype": "float32", "mixed_precision": {
        "param_dtype": "bfloat16", "reduce_dtype": "bfloat16", "output_dtype": "bfloat16"}}, WORK, layers=2, also=[QWEN]),
    Case("also_uneven", GPT2, 3, MIXED, {"batch": 2, "seq": 256}, blocks="transformer.h.{0..%d}", layers=2, also=[f"{GPT2},wrap=blocks"]),
    Case("also_uneven_offload", GPT2, 3, MIXED, {"batch": 2, "seq": 256}, blocks="transformer.h.{0..%d}", rank=2, layers=2,
         also=[f"{GPT2},offload=yes"]),
    Case("also_fp16_offload", QWEN, 2, {**MIXED, "cpu_offload": True}, WORK, layers=2, also=[f"{QWEN},dtype=fp16,wrap=blocks"]),
    Case("also_three", QWEN, 2, BF16, WORK, layers=2, also=[f"{QWEN},wrap=blocks", f"{QWEN},turn=before", f"{LLAMA},wrap=none"]),
    Case("also_fsdp1_accumulate", QWEN, 2, plan(MIXED, {"accumulation": 2}), WORK, layers=2, units=rows(BLOCKS, 2), also=[LLAMA]),
    Case("also_ddp_accumulate", QWEN, 1, {**DDP, **BF16, "accumulation": 2, "sync_every_micro_batch": False}, WORK, replicate=2,
         units=ROOT, layers=2, also=[QWEN]),
]

# With losses of other libraries, in the forwards of both models.
ALSO_LOSS_CASES = [
    Case("also_chunked_nll", LLAMA, 4, {**MIXED, **loss("chunked_nll")}, WORK, layers=2, also=[QWEN]),
    Case("also_chunked_nll_before", QWEN, 2, {**BF16, **loss("chunked_nll")}, WORK, layers=2, also=[f"{QWEN},wrap=blocks,turn=before"]),
    Case("also_liger", QWEN, 4, {**BF16, **loss("liger")}, WORK, layers=2, also=[f"{LLAMA},wrap=blocks"]),
]
