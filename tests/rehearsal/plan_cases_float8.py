"""Plans of torchao's float8 layers that plan_runner_test.py trains with the library's own functions."""

from __future__ import annotations

from plan_cases import BF16, MIXED, Case, _ddp, checkpointed

WORK = {"batch": 1, "seq": 1024}
# Scales are replaced one by one: 4 bytes for each weight.
SCALES = {"requested": 1e-7, "allocated": 1e-5}
FULL = {"activation_checkpointing": checkpointed("full")}


def _of_ddp(name: str, model: str, ranks: int, plan: dict[str, object], float8: str) -> Case:
    case = _ddp(name, model, ranks, plan, WORK)
    case.name, case.float8 = f"float8_{name}", float8
    return case


FLOAT8_CASES = [
    Case("float8_tensorwise", "llama3_2_1b", 4, {**MIXED, "optimizer": {"clip_grad_norm": 1.0}}, WORK, float8="tensorwise"),
    Case("float8_tensorwise_bf16", "qwen3_0_6b", 8, BF16, WORK, float8="tensorwise"),
    Case("float8_tensorwise_checkpoint", "llama3_1_8b", 16, {**MIXED, **FULL}, WORK, nodes=2, rank=9, float8="tensorwise"),
    Case("float8_rowwise", "llama3_2_1b", 4, MIXED, WORK, float8="rowwise"),
    Case("float8_rowwise_head", "llama3_1_8b", 8, {**MIXED, "activation_checkpointing": checkpointed("full", 2)}, WORK, layers=2, float8="rowwise,skip=q_proj+k_proj",
         units=[{"modules": ["model.layers.{0..1}"], "modules_per_unit": 1}, {"modules": [""]}]),
    Case("float8_gw_hp", "qwen3_0_6b", 4,
         {**MIXED, "activation_checkpointing": checkpointed("selective", selective_keep=["attention"])}, WORK, float8="rowwise_with_gw_hp"),
    Case("float8_gather", "llama3_2_1b", 4, {**MIXED, "optimizer": {"clip_grad_norm": 1.0}}, WORK, float8="tensorwise,all_gather"),
    Case("float8_gather_ahead", "qwen3_0_6b", 8, MIXED, WORK, rank=3, float8="tensorwise,all_gather,precompute",
         **SCALES),
]

FLOAT8_MORE_CASES = [
    Case("float8_small", "llama3_1_8b", 4, MIXED, {"batch": 2, "seq": 512}, layers=2, float8="tensorwise,skip=auto_filter_small_kn+lm_head"),
    Case("float8_rowwise_fp32", "qwen3_0_6b", 2, {}, WORK, recipe="", float8="rowwise"),
    Case("float8_tensorwise_biases", "qwen2_5_7b", 4, {**MIXED, "activation_checkpointing": checkpointed("full", 2)}, WORK, layers=2,
         float8="tensorwise"),
    Case("float8_gw_hp_biases_bf16", "qwen2_5_7b", 8, BF16, WORK, layers=2, float8="rowwise_with_gw_hp"),
    Case("float8_titan_policy", "llama3_2_1b", 4,
         {**MIXED, "activation_checkpointing": checkpointed("selective"), "runtime": {"flavor": "torchtitan"}}, WORK,
         float8="tensorwise,all_gather", **SCALES),
    Case("float8_save_matmuls", "qwen3_0_6b", 4,
         {**MIXED, "activation_checkpointing": checkpointed("selective", every_second_linear=False)}, WORK, float8="rowwise"),
    Case("float8_gw_hp_fp32", "llama3_2_1b", 2, {}, WORK, layers=2, float8="rowwise_with_gw_hp"),
    Case("float8_hsdp_accumulate", "qwen3_0_6b", 4, {**MIXED, "accumulation": 2}, WORK, replicate=2, rank=5, float8="rowwise"),
    Case("float8_gather_hsdp_ahead", "llama3_2_1b", 4, {**MIXED, **FULL}, WORK, replicate=2, nodes=2, rank=5,
         float8="tensorwise,all_gather,precompute", **SCALES),
    Case("float8_gather_bf16", "llama3_1_8b", 16, {**BF16, "accumulation": 2, "sync_every_micro_batch": False}, WORK, nodes=2, layers=2,
         float8="tensorwise,all_gather", **SCALES),
    # The units of self_attn and of mlp have no other weights than those in 8 bits.
    Case("float8_gather_parts", "llama3_2_1b", 4, MIXED, WORK, layers=2, float8="tensorwise,all_gather", **SCALES,
         units=[{"modules": ["model.layers.{0..1}.self_attn"], "modules_per_unit": 1},
                {"modules": ["model.layers.{0..1}.mlp"], "modules_per_unit": 1}, {"modules": [""]}]),
    Case("float8_one_gpu", "llama3_2_1b", 1, {**MIXED, **FULL}, WORK, float8="tensorwise"),
    _of_ddp("ddp", "qwen3_0_6b", 2, BF16, "tensorwise"),
    _of_ddp("ddp_alone", "llama3_2_1b", 1, BF16, "rowwise_with_gw_hp"),
    Case("float8_offload", "llama3_2_1b", 4, {**MIXED, "cpu_offload": True}, WORK, layers=2, float8="tensorwise"),
]
