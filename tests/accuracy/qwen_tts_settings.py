"""Settings of the fine-tuning of Qwen3-TTS: for each the published model code's command, and the plan that says the same."""

from __future__ import annotations

import dataclasses
from typing import Any

GIB = 1 << 30
TALKER, PREDICTOR = "talker.model.layers.{0..27}", "talker.code_predictor.model.layers.{0..4}"
EMBEDDINGS = ["talker.model.text_embedding", "talker.model.codec_embedding"]


# Settings whose reserved memory is off by more than 3 % in one of the two steps, and by how much at most. Their live bytes are
# equal; the order of a few small allocations is not (masks and positions; docs/accuracy.md), and decides which hole a block of
# hundreds of MB finds.
CHAOTIC = {
    "clip_15s_mixed": 0.042,
    "fp32": 0.037,
    "frozen_half_of_the_talker": 0.093,
    "accumulate_4_bf16": 0.078,
    "accumulate_4_without_sync_mixed": 0.035,
    "hybrid_2x2_bf16": 0.048,
    "hybrid_2x2_accumulate_2": 0.042,
    "gpus_2": 0.048,
    "T4_fp16_batch_2": 0.055,
}


@dataclasses.dataclass(frozen=True)
class Setting:
    name: str
    precision: str = "bf16"
    units: str = "good"
    batch: int = 2
    seconds: float = 10
    checkpoint: str = "none"
    freeze: tuple[str, ...] = ()
    accumulate: int = 1
    sync: bool = True
    reshard: bool = True
    replicate: int = 1
    gpus: int = 4
    optimizer: str = "foreach"
    gpu: str = "A100-40G"
    allocator: str = ""

    def command(self, script: str, config: str) -> list[str]:
        words = ["torchrun", "--nproc-per-node", str(self.gpus), script, config, "--units", self.units, "--precision",
                 self.precision, "--batch_size", str(self.batch), "--seconds", str(self.seconds), "--checkpoint", self.checkpoint,
                 "--accumulate", str(self.accumulate), "--replicate", str(self.replicate), "--optimizer", self.optimizer]  # fmt: skip
        words += ["--freeze", *self.freeze] if self.freeze else []
        return words + ["--no_sync"] * (not self.sync) + ["--no_reshard"] * (not self.reshard)

    def plan(self) -> dict[str, Any]:
        """The plan file, but for the cluster."""
        patterns = ([TALKER] if self.units != "trap" else []) + [PREDICTOR]
        rows = [{"modules": [pattern], "modules_per_unit": 1} for pattern in patterns]
        rows += [{"modules": [name]} for name in EMBEDDINGS if self.units == "good"]
        rows = [{**row, "reshard_after_forward": self.reshard} for row in rows] + [{"modules": [""]}]
        blocks = {"none": [], "talker": [TALKER], "all": [TALKER, PREDICTOR]}[self.checkpoint]
        plan: dict[str, Any] = {
            "format_version": "1.0",
            "model": {"name": "Qwen3-TTS-12Hz-1.7B-Base", "file": "qwen3_tts", "recipe": "sft",
                      "dimensions": {"batch": self.batch, "clip_seconds": self.seconds}, "frozen": list(self.freeze)},
            "mesh": {"replicate": self.replicate, "shard": self.gpus // self.replicate},
            "units": rows,
            "activation_checkpointing": {"modules": [{"module": block, "mode": "full"} for block in blocks]},
            "accumulation": self.accumulate,
            "sync_every_micro_batch": self.sync,
            "optimizer": {"implementation": self.optimizer.replace("loop", "for_loop"), "weight_decay": 0.01, "clip_grad_norm": 1.0},
            "runtime": {"flavor": "transformers", "allocator_settings": self.allocator},
        }  # fmt: skip
        if self.precision in ("mixed", "fp16", "fp32"):
            plan["parameter_dtype"] = "float16" if self.precision == "fp16" else "float32"
        if self.precision == "mixed":
            plan["mixed_precision"] = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
        return plan


def _pairs(name: str, **changes: Any) -> list[Setting]:
    """In pure bf16, and with fp32 master weights."""
    return [Setting(f"{name}_{precision}", precision, **changes) for precision in ("bf16", "mixed")]


def settings() -> list[Setting]:
    rows = []
    for batch in (1, 2, 4, 8):
        rows += _pairs(f"batch_{batch}", batch=batch)
    for seconds in (3, 15, 30):
        rows += _pairs(f"clip_{seconds}s", seconds=seconds)
    rows += [Setting("fp32", "fp32", batch=1), Setting("clip_5.5s_batch_3", seconds=5.5, batch=3)]
    for units in ("blocks", "trap"):
        rows += _pairs(f"units_{units}", units=units)
    rows += _pairs("units_trap_batch_1", units="trap", batch=1)
    for batch in (2, 8):
        rows += _pairs(f"checkpoint_all_batch_{batch}", checkpoint="all", batch=batch)
    rows += _pairs("checkpoint_talker_batch_4", checkpoint="talker", batch=4)
    rows += _pairs("frozen_text_embedding", freeze=("talker.model.text_embedding.*",))
    rows += _pairs("frozen_embeddings", freeze=("talker.model.*_embedding.*", "talker.code_predictor.model.codec_embedding.*"))
    rows += [Setting("frozen_half_of_the_talker", freeze=tuple(f"talker.model.layers.{i}.*" for i in range(14)))]
    rows += [Setting("frozen_speaker_encoder_mixed", "mixed", freeze=("speaker_encoder.*",))]
    rows += _pairs("accumulate_4", accumulate=4)
    rows += _pairs("accumulate_4_without_sync", accumulate=4, sync=False)
    rows += _pairs("kept_after_forward", reshard=False)
    rows += _pairs("hybrid_2x2", replicate=2)
    rows += [Setting("hybrid_2x2_accumulate_2", replicate=2, accumulate=2)]
    rows += [Setting("fused_mixed", "mixed", optimizer="fused"), Setting("loop_bf16", optimizer="loop")]
    rows += _pairs("expandable_segments", allocator="expandable_segments:True")
    rows += [Setting("gpus_2", gpus=2), Setting("gpus_8_mixed", "mixed", gpus=8)]
    rows += [Setting("H100_batch_2", gpu="H100"), Setting("L4_batch_2", gpu="L4")]
    rows += [Setting(f"T4_fp16_batch_{batch}", "fp16", batch=batch, gpu="T4") for batch in (1, 2, 4)]
    return rows
