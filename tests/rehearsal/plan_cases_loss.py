"""Plans that plan_runner_test.py trains with losses of other libraries, whose own functions run (python/fsdp_plan_runner/losses.py).
They need the packages of ./scripts/rehearsal_env finetuning."""

from __future__ import annotations

import dataclasses
from typing import Any

from plan_cases import BF16, MIXED, Case, checkpointed

TWICE = {"accumulation": 2}
CLIP = {"optimizer": {"clip_grad_norm": 1.0}}
# Few bytes beside the loss, so that its moments are the peak.
PLAIN_SGD = {"optimizer": {"kind": "sgd", "momentum": 0.0, "weight_decay": 0.0}}


def _plan(loss: str, *parts: dict[str, Any], name: str = "pytorch-fsdp2") -> dict[str, Any]:
    plan: dict[str, Any] = {"runtime": {"name": name, "implementations": {"loss": loss, "upcast_logits": False}}}
    for part in parts:
        plan.update(part)
    return plan


def _cases(loss: str) -> list[Case]:
    ends = [{"modules": ["model.embed_tokens"]}, {"modules": ["model.layers.{0..1}"], "modules_per_unit": 1}, {"modules": [""]}]
    return [
        Case(f"loss_{loss}_mixed_tied", "llama3_2_1b", 4, _plan(loss, MIXED, CLIP), {"batch": 2, "seq": 1024}, layers=2),
        Case(f"loss_{loss}_bf16", "llama3_1_8b", 8, _plan(loss, BF16, PLAIN_SGD), {"batch": 1, "seq": 2048}, layers=2, units=ends),
        Case(f"loss_{loss}_rest", "qwen3_8b", 16, _plan(loss, MIXED, PLAIN_SGD), {"batch": 1, "seq": 1000}, layers=2, rank=15),
        Case(f"loss_{loss}_no_sync", "qwen3_0_6b", 4, _plan(loss, MIXED, TWICE, {"sync_every_micro_batch": False}),
             {"batch": 1, "seq": 1024}, layers=2),
        Case(f"loss_{loss}_accumulate", "mistral_7b_v0_3", 2, _plan(loss, BF16, TWICE, PLAIN_SGD), {"batch": 2, "seq": 512}, layers=2,
             replicate=2, rank=3),
        # As under LoRA: the head is frozen.
        Case(f"loss_{loss}_frozen_head", "qwen3_8b", 8, _plan(loss, BF16, PLAIN_SGD), {"batch": 1, "seq": 2048}, layers=2,
             frozen=["lm_head.*", "model.embed_tokens.*"]),
        Case(f"loss_{loss}_checkpointed", "qwen2_5_7b", 4,
             _plan(loss, MIXED, {"activation_checkpointing": checkpointed("full", layers=2)}), {"batch": 1, "seq": 4096}, layers=2),
        Case(f"loss_{loss}_fp32", "llama3_2_1b", 2, _plan(loss, {"parameter_dtype": "float32"}, PLAIN_SGD), {"batch": 1, "seq": 512},
             layers=2),
        Case(f"loss_{loss}_softcap", "gemma2_9b", 8, _plan(loss, MIXED), {"batch": 1, "seq": 512}, layers=2),
        # accelerate's unit of the final norm and the head, which never runs; tied, the embedding is in it, too.
        Case(f"loss_{loss}_norm_and_head", "qwen3_8b", 4, _plan(loss, MIXED, TWICE), {"batch": 1, "seq": 1024}, layers=2,
             units=[*ends[:2], {"modules": ["model.norm", "lm_head"], "reshard_after_forward": False}, {"modules": [""]}]),
        Case(f"loss_{loss}_norm_and_tied_head", "llama3_2_1b", 4, _plan(loss, BF16), {"batch": 1, "seq": 1024}, layers=2,
             units=[ends[1], {"modules": ["model.norm", "model.embed_tokens", "lm_head"], "reshard_after_forward": False},
                    {"modules": [""]}]),
        Case(f"loss_{loss}_fsdp1", "qwen3_0_6b", 4, _plan(loss, MIXED, PLAIN_SGD, name="pytorch-fsdp1"), {"batch": 1, "seq": 512},
             layers=2),
        Case(f"loss_{loss}_ddp", "llama3_2_1b", 1, _plan(loss, BF16, PLAIN_SGD, name="pytorch-ddp"), {"batch": 1, "seq": 512},
             layers=2, replicate=2, units=[{"modules": [""]}]),
        Case(f"loss_{loss}_alone", "qwen3_1_7b", 1, _plan(loss, BF16, TWICE, name="pytorch-ddp"), {"batch": 1, "seq": 1024}, layers=2,
             units=[{"modules": [""]}]),
    ]


# Cut cross entropy takes no hidden states in fp32, and is predicted under FSDP2 alone.
LOSS_GROUPS = {"loss_liger": _cases("liger"), "loss_chunked_nll": _cases("chunked_nll"),
               "loss_cut": [dataclasses.replace(case, allocated=5e-5, reserved=7e-3)
                            for case in _cases("cut_cross_entropy")
                            if not case.name.endswith(("_fp32", "_softcap", "_fsdp1", "_ddp", "_alone"))]}
LOSS_CASES = [case for cases in LOSS_GROUPS.values() for case in cases]
# verl's engine is FSDP. They need the packages of ./scripts/rehearsal_env verl and flash-attn.
VERL_CASES = [*(case for case in _cases("verl") if not case.name.endswith(("_ddp", "_alone"))),
              # The last loss keeps the output of the embedding, which was given a gradient.
              Case("loss_verl_adapters", "llama3_1_8b", 4, _plan("verl", MIXED, TWICE), {"batch": 1, "seq": 2048}, layers=2,
                   lora="r=16,input_grads=yes,base=float32")]


TITAN = {"loss": "torchtitan_chunked", "upcast_logits": False}
# torchtitan divides no gradients, casts no inputs, and wraps norm and head as one unit. It is left from PyTorch 2.13 on.
_FIRST, _BLOCKS = {"modules": ["model.embed_tokens"]}, {"modules": ["model.layers.{0..1}"], "modules_per_unit": 1}
_LAST = {"modules": ["model.norm", "lm_head"], "reshard_after_forward": False}
_TIED = {"modules": ["model.embed_tokens", "model.norm", "lm_head"], "reshard_after_forward": False}
_ROOT = {"modules": [""]}


def _titan(*parts: dict[str, Any], chunks: int = 0) -> dict[str, Any]:
    plan: dict[str, Any] = {"runtime": {"name": "pytorch-fsdp2", "flavor": "torchtitan",
                                        "implementations": {**TITAN, **({"loss_chunks": chunks} if chunks else {})}}}
    for part in parts:
        plan.update(part)
    return plan


# The root has norm and head.
LOSS_TITAN_CASES = [
    Case("titan_root_mixed", "llama3_1_8b", 8, _titan(MIXED, CLIP), {"batch": 2, "seq": 1024}, layers=2),
    Case("titan_root_tied", "qwen3_0_6b", 4, _titan(BF16, PLAIN_SGD, chunks=4), {"batch": 1, "seq": 2048}, layers=2),
    Case("titan_root_fp32", "llama3_2_1b", 2, _titan({"parameter_dtype": "float32"}, PLAIN_SGD), {"batch": 2, "seq": 512}, layers=2),
    Case("titan_root_accumulate", "qwen3_8b", 4, _titan(MIXED, TWICE), {"batch": 1, "seq": 1024}, layers=2, replicate=2, rank=3),
    Case("titan_root_frozen_head", "qwen3_8b", 4, _titan(BF16, PLAIN_SGD), {"batch": 1, "seq": 1024}, layers=2,
         frozen=["lm_head.*", "model.embed_tokens.*"]),
]

# PyTorch 2.13 and later. Requested bytes are equal; the allocator cuts a few blocks elsewhere.
LOSS_TITAN_UNIT_CASES = [
    Case("titan_mixed", "llama3_1_8b", 8, _titan(MIXED, CLIP), {"batch": 1, "seq": 2048}, layers=2,
         units=[_FIRST, _BLOCKS, _LAST, _ROOT], allocated=2e-4),
    Case("titan_batch", "qwen3_8b", 16, _titan(MIXED, PLAIN_SGD, chunks=16), {"batch": 4, "seq": 512}, layers=2, rank=15,
         units=[_FIRST, _BLOCKS, _LAST, _ROOT]),
    Case("titan_bf16", "llama3_1_8b", 4, _titan(BF16, PLAIN_SGD), {"batch": 2, "seq": 1024}, layers=2,
         units=[_FIRST, _BLOCKS, {**_LAST, "reshard_after_forward": True}, _ROOT]),
    Case("titan_tied", "qwen3_0_6b", 4, _titan(MIXED, CLIP), {"batch": 1, "seq": 1024}, layers=2, units=[_BLOCKS, _TIED, _ROOT]),
    Case("titan_tied_twice", "llama3_2_1b", 4, _titan(MIXED, TWICE), {"batch": 2, "seq": 512}, layers=2,
         units=[_BLOCKS, _TIED, _ROOT]),
    Case("titan_hybrid", "qwen3_8b", 4, _titan(MIXED, TWICE, CLIP), {"batch": 1, "seq": 1024}, layers=2, replicate=2, rank=5,
         units=[_FIRST, _BLOCKS, _LAST, _ROOT], allocated=1e-4),
    Case("titan_alone", "llama3_1_8b", 1, _titan(MIXED, PLAIN_SGD), {"batch": 1, "seq": 1024}, layers=2,
         units=[_FIRST, _BLOCKS, _LAST, _ROOT]),
    Case("titan_checkpointed", "llama3_1_8b", 8,
         _titan(MIXED, {"activation_checkpointing": checkpointed("full", layers=2, early_stop=False)}), {"batch": 1, "seq": 4096},
         layers=2, units=[_FIRST, _BLOCKS, _LAST, _ROOT], allocated=1e-4, reserved=0.022),
    Case("titan_frozen_norm", "qwen3_8b", 2, _titan(BF16, PLAIN_SGD), {"batch": 1, "seq": 1024}, layers=2,
         frozen=["model.norm.*"], units=[_FIRST, _BLOCKS, _LAST, _ROOT], allocated=2e-4),
    Case("titan_kept", "qwen3_8b", 8, _titan(MIXED), {"batch": 1, "seq": 1024}, layers=2,
         units=[{**_FIRST, "reshard_after_forward": False}, {**_BLOCKS, "reshard_after_forward": False}, _LAST, _ROOT]),
    Case("titan_offload", "llama3_1_8b", 4, _titan(MIXED, {"cpu_offload": True}), {"batch": 1, "seq": 1024}, layers=2,
         units=[_FIRST, _BLOCKS, _LAST, _ROOT]),
    Case("titan_buffers", "llama3_1_8b", 4, _titan(MIXED, {"reduce_scatter_buffers": 2}), {"batch": 1, "seq": 1024}, layers=2,
         units=[_FIRST, _BLOCKS, _LAST, _ROOT], allocated=2e-4),
    # Liger's loss leaves accelerate's unit to the root, too.
    Case("titan_liger_left_by_root", "qwen3_8b", 4, _plan("liger", MIXED, TWICE), {"batch": 1, "seq": 1024}, layers=2,
         units=[_FIRST, _BLOCKS, {"modules": ["model.norm", "lm_head"]}, _ROOT]),
]
