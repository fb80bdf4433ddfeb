"""Plans that parity_test.py trains twice, and the features that each of them covers."""

from __future__ import annotations

import json
import pathlib
from dataclasses import dataclass, field
from typing import Any

from small_models import CUTS, each_block_a_unit, small_spec

MIXED = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"}}
CLIPPED = {"optimizer": {"clip_grad_norm": 0.1}}  # Well below the norms of small models.


CONVOLUTIONS = ("vit_b_16", "whisper_large_v3", "resnet18", "qwen3_tts")


@dataclass
class Case:
    name: str
    model: str  # A key of small_models.CUTS.
    shard: int
    plan: dict[str, Any] = field(default_factory=dict)  # Members of the plan file that differ from its defaults.
    replicate: int = 1
    units: list[dict[str, Any]] | None = None  # Defaults to one for each block, and the root.
    frozen: list[str] = field(default_factory=list)
    dimensions: dict[str, float] = field(default_factory=dict)
    steps: int = 3
    learning_rate: float = 1e-3
    dtype: str = "float32"  # The checkpoint's, in place of the spec's own.
    always: bool = False  # In the default run, which as a whole covers every feature.
    layers: dict[str, Any] = field(default_factory=dict)  # Options of its decoder layers in addition to the spec's.
    numbers: dict[float, float] = field(default_factory=dict)  # Like small_models.Cut, in place of the model's own.

    @property
    def ranks(self) -> int:
        return self.shard * self.replicate

    def spec(self) -> dict[str, Any]:
        spec = small_spec(self.model, self.dtype, self.numbers)
        spec["modules"] = [{**module, **self.layers} if module.get("block") == "decoder_layer" else module
                           for module in spec["modules"]]
        return spec

    def plan_of(self, spec_file: str) -> dict[str, Any]:
        return {
            "format_version": "1.0",
            "model": {"name": self.spec()["name"], "file": spec_file, "frozen": self.frozen,
                      "dimensions": {**CUTS[self.model].dimensions, **self.dimensions}},
            "mesh": {"replicate": self.replicate, "shard": self.shard},
            "units": self.units or each_block_a_unit(self.model),
            **self.plan,
        }

    def teacher(self) -> Case | None:
        """The same model in the same precision as the plainest plan: one rank, one unit, no checkpointing, nothing frozen.
        oneDNN uses the same memory there as in this case. None if it uses none."""
        kept = ("parameter_dtype", "mixed_precision", "runtime")
        plan = {member: self.plan[member] for member in kept if member in self.plan}
        if "runtime" in plan:
            plan["runtime"] = {member: value for member, value in plan["runtime"].items() if member != "name"}
        if "mixed_precision" not in plan and self.dtype == "float32" and self.model not in CONVOLUTIONS:
            return None
        return Case(f"teacher of {self.model}", self.model, 1, plan, units=[{"modules": [""]}],
                    dimensions=self.dimensions, dtype=self.dtype, layers=self.layers, numbers=self.numbers)

    def write(self, folder: pathlib.Path, name: str = "plan", **changes: Any) -> pathlib.Path:
        """Writes the plan's file, NAME.json, next to its spec; `changes` are members of the plan."""
        spec_file, plan_file = folder / f"{name}.spec.json", folder / f"{name}.json"
        # The schema is only next to the shipped specs.
        spec = {member: value for member, value in self.spec().items() if member != "$schema"}
        spec_file.write_text(json.dumps(spec), encoding="utf-8")
        plan_file.write_text(json.dumps({**self.plan_of(str(spec_file)), **changes}), encoding="utf-8")
        return plan_file


def checkpointed(model: str, mode: str = "full", **options: Any) -> dict[str, Any]:
    rows = [{"module": row, "mode": mode} for row in CUTS[model].rows]
    return {"activation_checkpointing": {"modules": rows, **options}}


HALF = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "float16", "reduce_dtype": "float32"}}
HALF_REDUCED = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "float16", "reduce_dtype": "float16"}}
CASES = [
    Case("llama_fp32", "llama3_2_1b", 4),
    Case("llama_fp32_of_3", "llama3_2_1b", 3),
    Case("llama_alone", "llama3_2_1b", 1, always=True),
    Case("llama_mixed_clip", "llama3_2_1b", 2, {**MIXED, **CLIPPED}, dtype="bfloat16", always=True),
    Case("llama_fp32_clip_of_3", "llama3_2_1b", 3, CLIPPED),
    Case("llama_pure_bf16", "llama3_2_1b", 2, {"optimizer": {"clip_grad_norm": 0.1, "weight_decay": 0.1}},
         dtype="bfloat16", always=True),
    Case("llama_adam_for_loop", "llama3_2_1b", 2,
         {"optimizer": {"kind": "adam", "implementation": "for_loop", "weight_decay": 0.1}}, always=True),
    # A CPU has one memory: offload moves nothing, and the optimizer is the loop.
    Case("llama_offload_of_3", "llama3_2_1b", 3, {"cpu_offload": True}, always=True),
    Case("llama_hsdp", "llama3_2_1b", 2, {**MIXED, **CLIPPED}, replicate=2, always=True),
    Case("llama_hsdp_accumulate_without_sync", "llama3_2_1b", 2,
         {**MIXED, "accumulation": 2, "sync_every_micro_batch": False}, replicate=2),
    Case("llama_replicated", "llama3_2_1b", 1, CLIPPED, replicate=2, always=True),
    Case("llama_half", "llama3_2_1b", 2, {**HALF, **CLIPPED}),
    Case("llama_half_reduced_of_3", "llama3_2_1b", 3, HALF_REDUCED),
    Case("llama_accumulate", "llama3_2_1b", 2, {"accumulation": 2}, always=True),
    Case("llama_accumulate_without_sync", "llama3_2_1b", 3,
         {**MIXED, "accumulation": 5, "sync_every_micro_batch": False, **CLIPPED}, always=True),
    # The computation needs less memory than making the model's buffers.
    Case("llama_few_tokens", "llama3_2_1b", 2, dimensions={"batch": 1, "seq": 7}, always=True),
    Case("llama_few_tokens_of_3", "llama3_2_1b", 3, dimensions={"batch": 1, "seq": 8}),
    # Autograd adds to the gradients of earlier micro-batches one by one.
    Case("llama_accumulate_in_bf16_without_sync", "llama3_2_1b", 2,
         {**MIXED, "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"}, "accumulation": 4,
          "sync_every_micro_batch": False}, layers={"qkv_bias": True}, always=True),
    Case("llama_reshard_to_2", "llama3_2_1b", 4,
         units=each_block_a_unit("llama3_2_1b", reshard_after_forward=2), always=True),
    Case("llama_checkpointed", "llama3_2_1b", 2, checkpointed("llama3_2_1b"), always=True),
    Case("llama_mixed_checkpointed", "llama3_2_1b", 2, {**MIXED, **checkpointed("llama3_2_1b")}),
    Case("llama_checkpointed_to_the_end", "llama3_2_1b", 2, checkpointed("llama3_2_1b", early_stop=False)),
    Case("llama_selective", "llama3_2_1b", 2, checkpointed("llama3_2_1b", "selective"), always=True),
    Case("llama_mixed_selective", "llama3_2_1b", 2,
         {**MIXED, **checkpointed("llama3_2_1b", "selective", every_second_linear=False),
          "runtime": {"flavor": "torchtitan"}}),
    Case("gpt2_selective", "gpt2", 2, checkpointed("gpt2", "selective", selective_keep=["linear"], early_stop=False)),
    Case("t5_selective", "t5_3b", 2, {**checkpointed("t5_3b", "selective", selective_keep=["softmax", "linear"]),
                                      "runtime": {"implementations": {"attention": "eager"}}}),
    Case("whisper_selective", "whisper_large_v3", 2,
         checkpointed("whisper_large_v3", "selective", selective_keep=["attention"])),
    Case("llama_prefetch_groups", "llama3_2_1b", 2, {"forward_prefetch": 2, "backward_prefetch": 2},
         units=[*each_block_a_unit("llama3_2_1b")[:-1], {"modules": ["model.norm"]}, {"modules": [""]}]),
    Case("llama_groups", "llama3_2_1b", 2,
         units=[{"modules": ["model.layers.0", "model.layers.1", "model.norm"]}, {"modules": [""]}]),
    Case("llama_one_unit", "llama3_2_1b", 2, units=[{"modules": [""]}]),
    Case("llama_mixed_output", "llama3_2_1b", 2,
         {**MIXED, "mixed_precision": {**MIXED["mixed_precision"], "output_dtype": "bfloat16"}},
         learning_rate=0.05, always=True),  # Otherwise the rounded losses repeat.
    Case("llama_one_unit_output", "llama3_2_1b", 2, {"mixed_precision": {"output_dtype": "float16"}},
         units=[{"modules": [""]}]),
    Case("llama_sgd_decay", "llama3_2_1b", 2,
         {"optimizer": {"kind": "sgd", "momentum": 0.5, "weight_decay": 0.1}}, learning_rate=0.1),
    Case("gpt2_fused_kept", "gpt2", 2, {"optimizer": {"implementation": "fused"}},
         units=each_block_a_unit("gpt2", reshard_after_forward=False), always=True),
    Case("gpt2_mixed_of_3", "gpt2", 3, {**MIXED, **CLIPPED}),
    Case("vit_sgd_momentum", "vit_b_16", 2,
         {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.0}}, learning_rate=0.1, always=True),
    Case("vit_sgd_plain", "vit_b_16", 3,
         {"optimizer": {"kind": "sgd", "implementation": "for_loop", "weight_decay": 0.1}}, learning_rate=0.1),
    Case("qwen3_tied_and_frozen", "qwen3_0_6b", 3, frozen=["model.layers.0.*", "model.norm.*"], always=True),
    Case("qwen3_embeddings_frozen", "qwen3_0_6b", 2, MIXED, frozen=["model.embed_tokens.*", "model.layers.0.*"],
         dtype="bfloat16"),
    Case("qwen3_tied_fp32", "qwen3_0_6b", 4),
    Case("qwen3_tts", "qwen3_tts", 2, CLIPPED, dtype="bfloat16", always=True,
         units=[*each_block_a_unit("qwen3_tts")[:-1], {"modules": ["talker.model.text_embedding"]},
                {"modules": ["talker.model.codec_embedding"]}, {"modules": [""]}]),
    # At the peak the graph of the speaker encoder, which leads to no output, is freed: with it the peak would be 1.4 % higher.
    Case("qwen3_tts_checkpointed", "qwen3_tts", 2, checkpointed("qwen3_tts"), always=True),
    Case("qwen3_tts_mixed_accumulate", "qwen3_tts", 2,
         {**MIXED, "accumulation": 2, **CLIPPED}, frozen=["speaker_encoder.*"]),
    Case("t5", "t5_3b", 2, {"runtime": {"implementations": {"attention": "eager"}}}, always=True),
    Case("whisper", "whisper_large_v3", 2),
    Case("whisper_mixed", "whisper_large_v3", 2, {**MIXED, **CLIPPED}, always=True),
    Case("bert", "bert_large", 2, CLIPPED, always=True),
    Case("gemma2", "gemma2_9b", 2, CLIPPED, always=True),
    Case("gemma2_mixed", "gemma2_9b", 3, MIXED, dtype="bfloat16"),
    Case("resnet", "resnet18", 2, {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 1e-4}},
         learning_rate=0.1, always=True),
    Case("llama_of_torchtitan", "llama3_2_1b", 2, {**MIXED, "runtime": {"flavor": "torchtitan"}}, always=True),
    Case("llama_repeat_kv", "llama3_2_1b", 2, {"runtime": {"flavor": "transformers-repeat-kv"}}),
    Case("llama_math", "llama3_2_1b", 2, {"runtime": {"implementations": {"attention": "math"}}}, always=True),
    Case("gemma2_longer", "gemma2_9b", 2, dimensions={"seq": 300}),  # The scores of attention cause its peak.
    Case("llama_eager", "llama3_2_1b", 2, {"runtime": {"implementations": {"attention": "eager"}}}),
]
