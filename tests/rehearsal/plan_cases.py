"""Plans that plan_runner_test.py trains: small models of the library, and what each is to cover."""

from __future__ import annotations

import copy
import json
import pathlib
import re
from dataclasses import dataclass, field
from typing import Any

MIXED = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"}}


@dataclass
class Case:
    """A plan, the ranks that it is seen from, and how near the prediction must come."""

    name: str
    model: str  # From the library.
    shard: int
    plan: dict[str, Any] = field(default_factory=dict)  # Members of the plan file that differ from its defaults.
    dimensions: dict[str, float] = field(default_factory=dict)
    replicate: int = 1
    rank: int = 0
    layers: int | None = 3  # Rows of blocks are cut to so many; None: as they are.
    blocks: str = "model.layers.{0..%d}"
    units: list[dict[str, Any]] | None = None  # Without: one for each block, and the root.
    recipe: str = ""
    frozen: list[str] = field(default_factory=list)
    lora: str = ""  # As --lora reads it.
    packing: dict[str, str] = field(default_factory=dict)  # The plan file's key; empty: rows are not packed.
    quantize: str = ""  # As --quantize reads it.
    liger: str = ""  # As --liger reads it.
    float8: str = ""  # As --fp8 reads it.
    also: list[str] = field(default_factory=list)  # As --also reads them; models of the library, cut like the trained one.
    inputs: dict[str, str] = field(default_factory=dict)  # Dtypes of inputs that are not the activations'.
    gpu: str = "H100 SXM"
    nodes: int = 1
    # Relative differences allowed in each kind of peak: as large as they are, rounded up; 0: equal in every byte.
    requested: float = 0
    allocated: float = 0
    reserved: float = 0

    @property
    def flavor(self) -> str:
        """Whose model code the expanded model is: the runtime's, or one that has the loss where the plan wants it."""
        runtime = self.plan.get("runtime", {})
        is_inside = not runtime.get("implementations", {}).get("loss_after_root", True)
        return "transformers" if is_inside else runtime.get("flavor", "transformers")

    @property
    def loss(self) -> str:
        """That of another library, with which the expanded model ends."""
        return self.plan.get("runtime", {}).get("implementations", {}).get("loss", "")

    def unit_rows(self) -> list[dict[str, Any]]:
        if self.units is not None:
            return self.units
        return [{"modules": [self.blocks % (self.layers - 1)], "modules_per_unit": 1}, {"modules": [""]}]


def shrink(spec: dict[str, Any], layers: int | None) -> dict[str, Any]:
    """The spec with at most so many blocks in each row of them. Blocks of a row are alike, so nothing else changes."""
    spec = copy.deepcopy(spec)
    if layers is None:
        return spec

    def shorter(match: re.Match[str]) -> str:
        first, last = int(match.group(1)), int(match.group(2))
        return f"{{{first}..{min(last, max(first, layers - 1))}}}"

    for module in spec["modules"]:
        module["name"] = re.sub(r"\{(\d+)\.\.(\d+)\}", shorter, module["name"])
    return spec


def lora_key(text: str) -> dict[str, Any]:
    """The plan file's key for "r=16,alpha=32,targets=q_proj+v_proj"."""
    given = dict(part.split("=") for part in text.split(","))
    targets = {"targets": given.pop("targets").split("+")} if "targets" in given else {}
    flags = {"input_grads": True} if given.pop("input_grads", "no") == "yes" else {}
    if given.pop("base", "checkpoint") == "float32":
        flags["float32_base"] = True
    return {name: int(value) if name == "r" else float(value) for name, value in given.items()} | targets | flags


def other_file(text: str, folder: pathlib.Path) -> pathlib.Path:
    """The file of a model beside the trained one."""
    return folder / f"{text.split(',')[0]}.other.json"


def write_others(case: Case, library: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Writes the specs of the models beside the trained one; returns the plan file's key."""
    for text in case.also:
        spec = shrink(json.loads((library / f"{text.split(',')[0]}.json").read_text(encoding="utf-8")), case.layers)
        spec.pop("$schema", None)
        other_file(text, folder).write_text(json.dumps(spec), encoding="utf-8")
    return [",".join([str(other_file(text, folder)), *text.split(",")[1:]]) for text in case.also]


def write_case(case: Case, library: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes the case's spec and plan; returns their files."""
    spec = shrink(json.loads((library / f"{case.model}.json").read_text(encoding="utf-8")), case.layers)
    spec.pop("$schema", None)
    for name, dtype in case.inputs.items():
        spec["inputs"][name]["dtype"] = dtype
    spec_file, plan_file = folder / "spec.json", folder / "plan.json"
    spec_file.write_text(json.dumps(spec), encoding="utf-8")
    plan = {
        "format_version": "1.0",
        "model": {"name": spec["name"], "file": str(spec_file), "recipe": case.recipe, "dimensions": case.dimensions,
                  "frozen": case.frozen, **({"lora": lora_key(case.lora)} if case.lora else {}),
                  **({"packing": case.packing} if case.packing else {}),
                  **({"quantization": case.quantize} if case.quantize else {}),
                  **({"liger_kernels": case.liger} if case.liger else {}),
                  **({"float8": case.float8} if case.float8 else {}),
                  **({"also": write_others(case, library, folder)} if case.also else {})},
        "mesh": {"replicate": case.replicate, "shard": case.shard},
        "units": case.unit_rows(),
        **case.plan,
    }
    plan_file.write_text(json.dumps(plan), encoding="utf-8")
    return spec_file, plan_file


def checkpointed(mode: str, layers: int = 3, **options: Any) -> dict[str, Any]:
    return {"modules": [{"module": "model.layers.{0..%d}" % (layers - 1), "mode": mode}], **options}


QWEN3_TTS_UNITS: list[dict[str, Any]] = [
    {"modules": ["talker.model.layers.{0..27}"], "modules_per_unit": 1},
    {"modules": ["talker.code_predictor.model.layers.{0..4}"], "modules_per_unit": 1},
    {"modules": ["talker.model.text_embedding"]}, {"modules": ["talker.model.codec_embedding"]}, {"modules": [""]}]

CASES = [
    Case("mixed_precision", "llama3_2_1b", 4, {**MIXED, "optimizer": {"clip_grad_norm": 1.0}}, {"batch": 1, "seq": 2048}),
    # The loss is computed in fp32, and the root returns it in bf16.
    Case("output_dtype", "llama3_2_1b", 4,
         {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32",
                                                            "output_dtype": "bfloat16"}},
         {"batch": 1, "seq": 1024}, layers=2),
    Case("gpt2_fp32_fused", "gpt2", 4, {"optimizer": {"implementation": "fused"}}, {"batch": 2, "seq": 512}, rank=3,
         units=[{"modules": ["transformer.h.{0..2}"], "modules_per_unit": 1, "reshard_after_forward": False},
                {"modules": [""]}]),
    Case("vit_sgd", "vit_b_16", 2, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.0}}, {"batch": 4},
         units=[{"modules": ["encoder.layers.encoder_layer_{0..2}"], "modules_per_unit": 1}, {"modules": [""]}]),
    Case("hsdp_tied_accumulate", "qwen3_0_6b", 2, {**MIXED, "accumulation": 2}, {"batch": 1, "seq": 1024}, replicate=2,
         rank=3),
    Case("accumulate_without_sync", "llama3_2_1b", 4,
         {**MIXED, "accumulation": 3, "sync_every_micro_batch": False, "optimizer": {"clip_grad_norm": 1.0}},
         {"batch": 1, "seq": 1024},
         units=[{"modules": ["model.layers.{0..2}"], "modules_per_unit": 1, "reshard_after_forward": 2},
                {"modules": [""]}]),
    Case("frozen_part", "qwen3_0_6b", 4, MIXED, {"batch": 1, "seq": 1024},
         frozen=["model.embed_tokens.*", "model.layers.0.*"]),
    Case("checkpoint_full", "qwen3_0_6b", 4,
         {"activation_checkpointing": checkpointed("full", early_stop=False)}, {"batch": 2, "seq": 1024}),
    # A checkpoint in each module of a block, inside of the block's own.
    Case("checkpoint_nested", "qwen3_0_6b", 4, {**MIXED, "activation_checkpointing": checkpointed("nested")}, {"batch": 2, "seq": 1024}),
    Case("checkpoint_nested_sgd", "gemma2_9b", 4,
         {"parameter_dtype": "bfloat16", "optimizer": {"kind": "sgd", "momentum": 0.0, "weight_decay": 0.0},
          "activation_checkpointing": checkpointed("nested", 2)}, {"batch": 1, "seq": 2048}, layers=2,
         requested=2e-6, allocated=2e-6, reserved=2e-4),  # As with full ones.
    Case("checkpoint_selective", "llama3_2_1b", 4,
         {"activation_checkpointing": checkpointed("selective"),
          "runtime": {"flavor": "torchtitan", "implementations": {"loss_after_root": False},
                      "allocator_settings": "expandable_segments:True"}},
         {"batch": 2, "seq": 1024}),
    Case("checkpoint_selective_loss_behind", "llama3_2_1b", 4,
         {"activation_checkpointing": checkpointed("selective"),
          "runtime": {"flavor": "torchtitan", "allocator_settings": "expandable_segments:True"}},
         {"batch": 2, "seq": 1024}),
    Case("checkpoint_save_matmuls", "qwen3_0_6b", 4,
         {**MIXED, "activation_checkpointing": checkpointed("selective", every_second_linear=False)}, {"batch": 2, "seq": 1024}),
    Case("checkpoint_save_attention", "llama3_2_1b", 4,
         {**MIXED, "activation_checkpointing": checkpointed("selective", selective_keep=["attention"])},
         {"batch": 2, "seq": 1024}),
    Case("checkpoint_save_matmuls_gpt2", "gpt2", 2,
         {"activation_checkpointing": {"modules": [{"module": "transformer.h.{0..1}", "mode": "selective"}],
                                       "every_second_linear": False}},
         {"batch": 2, "seq": 512},
         units=[{"modules": ["transformer.h.{0..2}"], "modules_per_unit": 1}, {"modules": [""]}]),
    # Gradient norms on the host are reduced by gloo, which the stub does not see: no clipping here.
    Case("cpu_offload", "llama3_2_1b", 8, {**MIXED, "cpu_offload": True},
         {"batch": 1, "seq": 1024}),
    # Rows that do not divide, seen from the last rank; the second micro-batch adds to gradients on the host.
    Case("cpu_offload_uneven", "gpt2", 3, {**MIXED, "cpu_offload": True, "accumulation": 2}, {"batch": 1, "seq": 128},
         rank=2, blocks="transformer.h.{0..%d}"),
    Case("prefetch_groups", "llama3_1_8b", 4, {**MIXED, "forward_prefetch": 2, "backward_prefetch": 2},
         {"batch": 1, "seq": 1024}, layers=4,
         units=[{"modules": ["model.embed_tokens"]}, {"modules": ["model.layers.{0..3}"], "modules_per_unit": 1},
                {"modules": ["model.norm", "lm_head"]}, {"modules": [""]}]),
    Case("experts", "mixtral_8x7b", 4, MIXED, {"batch": 1, "seq": 256}, layers=2,
         requested=3e-4, allocated=3e-4, reserved=4e-4),
    Case("qwen3_tts", "qwen3_tts", 4, {"optimizer": {"clip_grad_norm": 1.0}}, {"batch": 2}, layers=None,
         units=QWEN3_TTS_UNITS),
    # Long clips of many speakers: the graph of their encoder, which leads nowhere, goes before the text embedding is gathered.
    Case("qwen3_tts_checkpoint", "qwen3_tts", 4,
         {"parameter_dtype": "bfloat16", "optimizer": {"kind": "sgd", "momentum": 0.0, "weight_decay": 0.0},
          "activation_checkpointing": {"modules": [{"module": row["modules"][0], "mode": "full"} for row in QWEN3_TTS_UNITS[:2]]}},
         {"batch": 8, "reference_seconds": 60, "clip_seconds": 3}, layers=None, units=QWEN3_TTS_UNITS, allocated=1e-5, reserved=1.1e-3),
]


def _ddp(name: str, model: str, ranks: int, plan: dict[str, Any], dimensions: dict[str, float], *,
         ddp: dict[str, Any] | None = None, **others: Any) -> Case:
    """A plan of DistributedDataParallel over so many ranks; of one: without any wrapper."""
    whole = {**plan, "runtime": {"name": "pytorch-ddp", **plan.get("runtime", {})}, "ddp": ddp or {}}
    return Case(f"ddp_{name}", model, 1, whole, dimensions, replicate=ranks, units=[{"modules": [""]}], **others)


BF16 = {"parameter_dtype": "bfloat16"}

DDP_CASES = [
    _ddp("gpt2", "gpt2", 2, {"optimizer": {"clip_grad_norm": 1.0}}, {"batch": 1, "seq": 256}),
    _ddp("alone", "gpt2", 1, {"optimizer": {"clip_grad_norm": 1.0}, "accumulation": 2}, {"batch": 1, "seq": 256}),
    _ddp("tied_view_accumulate", "qwen3_0_6b", 4, {**BF16, "accumulation": 2}, {"batch": 1, "seq": 512},
         ddp={"gradient_as_bucket_view": True}),
    _ddp("no_sync_view", "llama3_2_1b", 4,
         {**BF16, "accumulation": 3, "sync_every_micro_batch": False, "optimizer": {"clip_grad_norm": 1.0},
          "activation_checkpointing": checkpointed("full")}, {"batch": 1, "seq": 512},
         ddp={"gradient_as_bucket_view": True}),
    _ddp("no_sync", "qwen3_0_6b", 2,
         {**BF16, "accumulation": 3, "sync_every_micro_batch": False, "activation_checkpointing": checkpointed("full"),
          "runtime": {"allocator_settings": "expandable_segments:True"}}, {"batch": 2, "seq": 512}),
    _ddp("checkpoint_to_the_end", "llama3_2_1b", 4, {**BF16, "activation_checkpointing": checkpointed("full", early_stop=False)},
         {"batch": 1, "seq": 1024}),
    _ddp("selective_to_the_end", "llama3_2_1b", 4, {**BF16, "activation_checkpointing": checkpointed("selective", early_stop=False)},
         {"batch": 1, "seq": 1024}),
    _ddp("frozen_small_buckets", "qwen3_0_6b", 8, {**BF16, "optimizer": {"kind": "sgd", "momentum": 0.9}},
         {"batch": 1, "seq": 256}, ddp={"bucket_cap_mb": 5}, frozen=["model.embed_tokens.*", "model.layers.0.*"], allocated=1e-5),
    _ddp("vit_from_cpu", "vit_b_16", 2, {"initialization": "cpu", "optimizer": {"implementation": "fused"}}, {"batch": 4}),
    _ddp("bert_made_there", "bert_large", 2, {"initialization": "device"}, {"batch": 2, "seq": 128}),
    _ddp("t5", "t5_3b", 4, BF16, {"batch": 1}),
    _ddp("whisper", "whisper_large_v3", 2, {}, {"batch": 1}),
    _ddp("resnet", "resnet18", 4, {"accumulation": 2}, {"batch": 4}, layers=None),
    _ddp("resnet_buffers_stay", "resnet18", 4, {}, {"batch": 4}, layers=None, ddp={"broadcast_buffers": False}),
    _ddp("experts", "mixtral_8x7b", 2, BF16, {"batch": 1, "seq": 256}, layers=1, reserved=3e-4),
    _ddp("qwen3_tts_unused", "qwen3_tts", 4, {**BF16, "optimizer": {"clip_grad_norm": 1.0}}, {"batch": 1}, layers=None,
         ddp={"find_unused_parameters": True}),
    _ddp("qwen3_tts_unused_view", "qwen3_tts", 2, {**BF16, "accumulation": 2}, {"batch": 1}, layers=None,
         ddp={"find_unused_parameters": True, "gradient_as_bucket_view": True}),
]
