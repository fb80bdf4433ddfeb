#!/usr/bin/env python3
"""A line that starts TRL's fine-tuning, read without running it, held to its rehearsal: collectives are equal, and so is memory.

    trl_job_test.py STUB PROGRAM [unittest options]

Needs trl, peft and accelerate beside PyTorch; exits with 77 without them.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
import sys
import unittest
from dataclasses import dataclass, field
from typing import Any

from job_tables import rows_of
from transformers_plans import TransformersPlans

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch"]
FSDP = {"distributed_type": "FSDP", "mixed_precision": "bf16", "num_machines": 1,
        "fsdp_config": {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_reshard_after_forward": True,
                        "fsdp_cpu_ram_efficient_loading": False, "fsdp_state_dict_type": "SHARDED_STATE_DICT"}}


def launcher(gpus: int, precision: str = "bf16", **fsdp: Any) -> dict[str, Any]:
    changed = {f"fsdp_{key}": value for key, value in fsdp.items()}
    return {**FSDP, "num_processes": gpus, "num_machines": max(1, gpus // 8), "mixed_precision": precision,
            "fsdp_config": {**FSDP["fsdp_config"], **changed}}


# One process for each GPU, or one.
DDP = {"distributed_type": "MULTI_GPU", "mixed_precision": "bf16", "num_machines": 1, "num_processes": 2}
ONE = {"distributed_type": "NO", "mixed_precision": "bf16", "num_machines": 1, "num_processes": 1}
# The loss passes over padding, which is counted.
PADDED = (0.006, 0.005, 0.03)
REENTRANT = ["--gradient_checkpointing_kwargs", '{"use_reentrant": true}']
LORA_ALONE = ["--use_peft", "--lora_r", "16", "--lora_alpha", "32"]
LORA = [*LORA_ALONE, "--dtype", "bfloat16"]


@dataclass
class Job:
    name: str
    model: str
    gpus: int
    launch: dict[str, Any]
    arguments: list[str] = field(default_factory=list)
    data: str = "long"
    # What the Trainer logs beside the step is up to half a MiB, much of these small models.
    bounds: tuple[float, float, float] = (0.001, 0.005, 0.03)


JOBS = [
    Job("as it comes", "llama", 4, launcher(4), ["--per_device_train_batch_size", "1"]),
    Job("kept after forward", "qwen3", 8, launcher(8, reshard_after_forward=False),
        ["--per_device_train_batch_size", "1", "--gradient_checkpointing", "false", "--gradient_accumulation_steps", "2"]),
    Job("all in bf16", "llama", 4, launcher(4, "no"), ["--per_device_train_batch_size", "1", "--bf16", "false", "--dtype", "bfloat16"]),
    Job("ddp", "wide_llama", 2, DDP, ["--per_device_train_batch_size", "1"]),
    Job("ddp with padding", "wide_qwen3", 2, DDP, ["--per_device_train_batch_size", "2"], "uneven"),
    Job("adapters under ddp", "wide_llama", 2, DDP, ["--per_device_train_batch_size", "1", *LORA]),
    Job("adapters on one gpu", "wide_llama", 1, ONE, ["--per_device_train_batch_size", "2", *LORA], "uneven", PADDED),
    # One segment fewer than predicted.
    Job("adapters on a base in float32", "wide_llama", 1, ONE, ["--per_device_train_batch_size", "1", *LORA_ALONE], bounds=(0.001, 0.005, 0.05)),
    Job("adapters on a base in float32 under ddp", "wide_qwen3", 2, DDP,
        ["--per_device_train_batch_size", "1", *LORA_ALONE, "--gradient_checkpointing", "false"]),
    Job("qlora on one gpu", "wide_llama", 1, ONE, ["--per_device_train_batch_size", "1", *LORA, "--load_in_4bit", "--use_bnb_nested_quant"]),
    Job("reentrant checkpoints", "wide_llama", 2, DDP, ["--per_device_train_batch_size", "1", *REENTRANT]),
    Job("reentrant checkpoints of adapters", "wide_llama", 1, ONE, ["--per_device_train_batch_size", "1", *LORA, *REENTRANT]),
    Job("bf16 on one gpu", "wide_qwen3", 1, ONE,
        ["--per_device_train_batch_size", "1", "--dtype", "bfloat16", "--gradient_accumulation_steps", "2"]),
    Job("dpo", "wide_llama", 4, launcher(4, cpu_ram_efficient_loading=True), ["--per_device_train_batch_size", "1"], "pairs",
        # The reference is loaded otherwise than planned, so that the first step finds other free blocks.
        (0.006, 0.005, 0.12)),
    Job("dpo on one gpu", "wide_qwen3", 1, ONE, ["--per_device_train_batch_size", "1", "--dtype", "bfloat16"], "pairs", PADDED),
    Job("dpo with qlora", "wide_llama", 1, ONE, ["--per_device_train_batch_size", "1", *LORA, "--load_in_4bit"], "pairs", PADDED),
    Job("dpo with adapters under ddp", "wide_llama", 2, DDP, ["--per_device_train_batch_size", "1", *LORA], "pairs", PADDED),
]  # fmt: skip


class JobsOfTrl(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.write_trl_folder(sorted({job.model for job in JOBS}))

    def check(self, job: Job) -> None:
        script = importlib.util.find_spec("trl.scripts.dpo" if job.data == "pairs" else "trl.scripts.sft")
        assert script is not None and script.origin is not None
        # JSON is YAML.
        (self.folder / "launch.yaml").write_text(json.dumps(job.launch), encoding="utf-8")
        words = [*LAUNCH, "--config_file", "launch.yaml", script.origin, "--model_name_or_path", job.model, "--dataset_name", job.data,
                 "--train_sampling_strategy", "sequential", "--output_dir", "out", "--max_steps", "3", "--report_to", "none", "--save_strategy", "no", *job.arguments]  # fmt: skip
        self.run_program("plan", "--gpu", "H100 SXM", "--torch", "2.11", "--force", "--quiet", "-o", "plan.json", "--", *words)
        predicted = json.loads(self.run_program("simulate", "plan.json", "--rank", "0", "--json"))
        gpus = ("--gpus", str(min(job.gpus, 8)), "--nodes", str(max(1, job.gpus // 8)), "--gpu", "H100 SXM")
        measured = json.loads(self.run_program("rehearse", *gpus, "--json", "--", *words))
        measured["memory"]["phases"].pop("initialization", None)  # The script loads weights and data there.
        self.compare(job, measured, predicted)


for each in JOBS:
    setattr(JobsOfTrl, "test_" + each.name.replace(" ", "_"), lambda self, job=each: self.check(job))


class KeysAreThoseOfTheLibraries(unittest.TestCase):
    """Our tables have every key of the real classes, and no other."""

    def check_keys(self, config: type, ours: dict[str, str]) -> None:
        import dataclasses

        from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments

        classes = (ScriptArguments, ModelConfig, config, DatasetMixtureConfig)
        real = {f.name: f.default for each in classes for f in dataclasses.fields(each)}
        # The parser's own, and the command's.
        beside = {"env", "accelerate_config"}
        self.assertEqual(sorted(key for key in ours if "." not in key), sorted({*real, *beside}))
        for key, row in ours.items():
            usual = re.search(r'Usual,\s*"([^"]*)"', row)
            default = real.get(key)
            if usual and key in real and default not in (None, False, "", [], {}):
                self.assertEqual(usual[1], f"{default:g}" if isinstance(default, float) else str(default), key)

    def test_trl(self) -> None:
        from trl import DPOConfig, SFTConfig

        trainer = rows_of("trainer_keys.cpp")
        for config, table in ((SFTConfig, "kSftKeys"), (DPOConfig, "kDpoKeys")):
            with self.subTest(table):
                self.check_keys(config, {**trainer, **rows_of("trl_keys.cpp", "kTrlKeys"), **rows_of("trl_keys.cpp", table)})

    def test_accelerate(self) -> None:
        import dataclasses

        from accelerate.commands.config.config_args import ClusterConfig
        from accelerate.commands.launch import launch_command_parser

        ours = rows_of("accelerate_job.cpp")
        # Those of TPU pods that nothing else reads.
        pods = {"command_file", "commands", "tpu_vm"}
        real = {f.name for f in dataclasses.fields(ClusterConfig)} - pods
        self.assertEqual(sorted(key for key in ours if "." not in key), sorted(real))
        options = {action.dest for action in launch_command_parser()._actions}
        fsdp = {key.removeprefix("fsdp_config.") for key in ours if key.startswith("fsdp_config.")}
        self.assertLessEqual({name for name in options if name.startswith("fsdp_")}, fsdp)


class YamlIsThatOfPython(unittest.TestCase):
    def test_words(self) -> None:
        import yaml

        folder = ROOT / "tests/golden/yaml"
        read = yaml.safe_load((folder / "words.yaml").read_text(encoding="utf-8"))
        self.assertEqual(read, json.loads((folder / "words.json").read_text(encoding="utf-8")))


if __name__ == "__main__":
    JobsOfTrl.program = str(pathlib.Path(sys.argv[2]).resolve())
    if any(importlib.util.find_spec(name) is None for name in ("trl", "peft", "accelerate", "yaml")):
        print("trl, peft or accelerate is not installed.")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
