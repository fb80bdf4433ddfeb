"""Plans that plan_runner_test.py trains with ZeRO-Infinity: what ZeRO-3 offloads is on an NVMe drive. nvme_test.py holds host memory
and what goes to the drive.

The queue of reads and writes is replaced (python/fsdp_plan_runner/nvme.py). With the compiled one, async_io of DeepSpeed 0.19.8
against libaio 0.3.113 and files on ext4, all that is measured of opt, opt_sub_groups, pipelined, both_pipelined, all and
one that accumulates is the same to the byte: device memory in each phase, collectives, tensors on the host, pinned blocks,
page-locked buffers, bytes read and written in each step, and the sizes of the files."""

from __future__ import annotations

from typing import Any

from plan_cases import Case
from plan_cases_offload import ALL, NOTHING_STAYS
from plan_cases_zero import BF16, CLIP, FP16, FP32, SMALL, TWICE, VIT, zero_case

OPTIMIZER = {"optimizer": True}
PARAMETERS = {"parameters": True, "max_in_cpu": 0}
# Few activations, so that the peak is in the backward, where gradients wait for the drive.
TINY = {"batch": 1, "seq": 16}


def _case(name: str, model: str, ranks: int, plan: dict[str, Any], dimensions: dict[str, float], zero: dict[str, Any],
          nvme: dict[str, Any], **others: Any) -> Case:
    return zero_case(3, f"nvme_{name}", model, ranks, {"initialization": "meta", "cpu_offload": True, **plan}, dimensions,
                     {**zero, "nvme": nvme}, **others)


def _tiny(name: str, ranks: int, plan: dict[str, Any], zero: dict[str, Any], nvme: dict[str, Any], **others: Any) -> Case:
    return _case(name, "gpt2", ranks, plan, TINY, {**ALL, **NOTHING_STAYS, "reduce_bucket_size": 4_000_000, **zero}, nvme,
                 layers=12, **others)


_REUSES_NOTHING = {"sub_group_size": 30_000_000, "max_reuse_distance": 0}
_CASES = [
    _case("opt", "gpt2", 4, {**BF16, **CLIP}, SMALL, {}, OPTIMIZER),
    _case("opt_sub_groups", "qwen3_0_6b", 4, {**BF16, **TWICE}, SMALL, _REUSES_NOTHING, OPTIMIZER, reserved=6e-4),
    _case("pipelined", "qwen3_0_6b", 4, BF16, SMALL, _REUSES_NOTHING, {**OPTIMIZER, "pipeline_read": True, "buffer_count": 8}),
    _case("both_pipelined", "qwen3_0_6b", 4, BF16, SMALL, _REUSES_NOTHING,
          {**OPTIMIZER, "pipeline_read": True, "pipeline_write": True, "buffer_count": 12}),
    _case("fp32", "bert_large", 2, FP32, {"batch": 2, "seq": 128}, NOTHING_STAYS, OPTIMIZER),
    # Some sub-groups are too small for a file.
    _case("small_groups", "vit_b_16", 4, {**BF16, **CLIP}, VIT,
          {**NOTHING_STAYS, "reduce_bucket_size": 4_000_000, "sub_group_size": 2_000_000}, OPTIMIZER, layers=4),
    _case("threads", "gpt2", 3, {**BF16, **CLIP, **TWICE}, SMALL, {"overlap_comm": False},
          {**OPTIMIZER, "intra_op_parallelism": 4, "block_size": 4 << 20}, rank=2),
    _case("all", "llama3_2_1b", 4, BF16, SMALL, {**ALL, **NOTHING_STAYS}, {**OPTIMIZER, **PARAMETERS}),
    _case("parameters", "llama3_2_1b", 4, BF16, SMALL, {**ALL, **NOTHING_STAYS}, PARAMETERS),
    # What is away is not gathered ahead before it has been read ahead: other collectives than with the host.
    _case("all_ahead", "llama3_2_1b", 4, BF16, SMALL, {**ALL, "max_reuse_distance": 0, "prefetch_bucket_size": 20_000_000},
          {**OPTIMIZER, **PARAMETERS, "param_buffer_count": 12}),
    _case("half", "qwen3_0_6b", 4, BF16, SMALL, {**ALL, **NOTHING_STAYS, "sub_group_size": 10_000_000},
          {**OPTIMIZER, "parameters": True, "max_in_cpu": 30_000_000}),
    _case("frozen", "qwen3_0_6b", 4, {**BF16, **CLIP}, SMALL,
          {**ALL, "max_reuse_distance": 0, "prefetch_bucket_size": 0, "pin_memory": False},
          {**OPTIMIZER, **PARAMETERS, "param_buffer_count": 8}, frozen=["model.embed_tokens.*", "model.layers.0.*"]),
    _case("unused", "qwen3_tts", 4, {**BF16, **TWICE}, {"batch": 1}, {}, OPTIMIZER, layers=None,
          requested=1.2e-4, allocated=6e-4, reserved=3e-4),
    _case("hpz", "gpt2", 4, {**BF16, **TWICE}, SMALL, {"hpz_partition_size": 2, **NOTHING_STAYS}, OPTIMIZER),
    _tiny("waiting", 3, BF16, {"sub_group_size": 3_000_000}, OPTIMIZER),
    _tiny("waiting_fp32", 3, FP32, {}, OPTIMIZER),
    _tiny("waiting_fp16", 1, {**FP16, **CLIP}, {}, OPTIMIZER),
    _tiny("waiting_twice", 1, {**BF16, **TWICE}, {"overlap_comm": False}, OPTIMIZER),
    _tiny("sgd", 1, {**BF16, "optimizer": {"kind": "sgd", "momentum": 0.9}}, {}, OPTIMIZER),
]

# Those that every test run trains; the others are trained by name: "nvme_more".
_IN_CI = ("opt", "pipelined", "small_groups", "all", "parameters", "all_ahead", "waiting", "waiting_fp32")
NVME_CASES = [case for case in _CASES if case.name.removeprefix("zero3_nvme_") in _IN_CI]
NVME_MORE_CASES = [case for case in _CASES if case not in NVME_CASES]
