#!/usr/bin/env python3
"""The changed configuration of a trainer trains the plan that chose it: collectives are equal, and so is memory.

    job_use_test.py STUB PROGRAM [unittest options]

Each class needs the environment of its trainer, that of TRL the one of fine-tuning; exits with 77 without it. Those of torchtitan are in
titan_job_test.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import sys
import unittest
from dataclasses import dataclass, field
from typing import Any

import automodel_job_test
import axolotl_job_test
import llamafactory_job_test
import trl_job_test
from automodel_job_test import JobsOfAutomodel
from axolotl_job_test import CLASSES, KERNELS, PACKED, JobsOfAxolotl
from llamafactory_job_test import FSDP2, JobsOfLlamaFactory
from trl_job_test import JobsOfTrl, launcher

HERE = pathlib.Path(__file__).resolve().parent


@dataclass
class UseOfAxolotl(axolotl_job_test.Job):
    changes: tuple[str, ...] = ()  # The keys that change.
    options: tuple[str, ...] = ()


OF_AXOLOTL = [
    UseOfAxolotl("faster steps", "llama", 2, {"gradient_checkpointing": True, "gradient_accumulation_steps": 2}, data="short",
                 changes=("micro_batch_size", "gradient_accumulation_steps", "gradient_checkpointing")),
    UseOfAxolotl("wanted options", "llama", 2, {"gradient_accumulation_steps": 2, "gradient_checkpointing": True}, data="short",
                 changes=("fsdp_config.reshard_after_forward", "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"),
                 options=("--reshard", "false", "--gradient-sync", "every", "--batch", "1", "--accumulate", "2", "--activation-checkpointing", "full")),
    UseOfAxolotl("less memory", "qwen3", 2, {"micro_batch_size": 2}, {"reshard_after_forward": False}, data="short",
                 changes=("micro_batch_size", "gradient_accumulation_steps", "gradient_checkpointing"), options=("--objective", "memory")),
    UseOfAxolotl("packed rows", "llama", 1, {**PACKED, "gradient_checkpointing": True}, changes=("gradient_checkpointing",)),
    UseOfAxolotl("kernels of Liger", "llama", 2, {**KERNELS, "micro_batch_size": 2, "gradient_checkpointing": True}, data="short",
                 changes=("liger_fused_linear_cross_entropy",), options=("--objective", "memory")),
]  # fmt: skip


class UsesOfAxolotl(JobsOfAxolotl):
    def check(self, job: UseOfAxolotl) -> None:  # type: ignore[override]
        (self.folder / "given.yaml").write_text(json.dumps(job.config(), indent=2), encoding="utf-8")
        gpus = ("--gpus", str(job.gpus), "--gpu", "H100 SXM")
        documents = ("--document-length", "700") if "sample_packing" in job.keys else ()
        words = ("given.yaml", *gpus, *documents, "--torch", "2.11", *job.options)
        use = json.loads(self.run_program(*words, "--json"))["use"]
        keys = {change["key"] for change in use["changes"]}
        self.assertLessEqual(set(job.changes), keys)
        self.run_program(*words, "--write", "job.yaml", "--force")
        changed = json.loads((self.folder / "job.yaml").read_text(encoding="utf-8"))
        self.assertEqual(changed["fsdp_config"]["transformer_layer_cls_to_wrap"], CLASSES[job.model])
        self.run_program("job.yaml", *gpus, *documents, "--torch", "2.11", "--force", "--quiet", "-o", "plan.json")
        predicted = json.loads(self.run_program("simulate", "plan.json", "--rank", "0", "--json"))
        line = [*axolotl_job_test.LAUNCH, "--num_processes", str(job.gpus), "-m", "axolotl.cli.train", "job.yaml"]
        measured = json.loads(self.run_program("rehearse", *gpus, "--json", "--", *line))
        measured["memory"]["phases"].pop("initialization", None)  # The script loads weights and data there.
        self.compare(job, measured, predicted)


@dataclass
class UseOfTrl(trl_job_test.Job):
    changes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    own: dict[str, Any] = field(default_factory=dict)  # Keys of TRL's own file.


# One row: several are predicted with padding, and TRL's loss passes over that.
OF_TRL = [
    UseOfTrl("faster steps", "llama", 4, launcher(4), ["--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "2"],
             changes=("fsdp_config.fsdp_auto_wrap_policy", "--gradient_checkpointing"), options=("--batch", "1", "--accumulate", "2")),
    UseOfTrl("copies", "llama", 8, launcher(8), own={"per_device_train_batch_size": 1, "gradient_checkpointing": False},
             changes=("parallelism_config.parallelism_config_dp_replicate_size", "parallelism_config.parallelism_config_dp_shard_size"),
             options=("--replicate", "2", "--wrap", "blocks")),
    UseOfTrl("less memory", "qwen3", 4, launcher(4, reshard_after_forward=False),
             own={"per_device_train_batch_size": 2, "gradient_checkpointing": False},
             changes=("per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing",
                      "fsdp_config.fsdp_reshard_after_forward"),
             options=("--objective", "memory", "--batch", "1", "--accumulate", "2", "--reshard", "true", "--wrap", "blocks")),
]  # fmt: skip


class UsesOfTrl(JobsOfTrl):
    def check(self, job: UseOfTrl) -> None:  # type: ignore[override]
        script = importlib.util.find_spec("trl.scripts.sft")
        assert script is not None and script.origin is not None
        (self.folder / "launch.yaml").write_text(json.dumps(job.launch, indent=2), encoding="utf-8")
        words = ["accelerate", "launch", "--config_file", "launch.yaml", script.origin, "--model_name_or_path", job.model, "--dataset_name",
                 job.data, "--train_sampling_strategy", "sequential", "--output_dir", "out", "--max_steps", "3", "--report_to", "none",
                 "--save_strategy", "no", *job.arguments]  # fmt: skip
        if job.own:
            (self.folder / "sft.yaml").write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in job.own.items()), encoding="utf-8")
            words += ["--config", "sft.yaml"]
        machine = ("--gpu", "H100 SXM", "--torch", "2.11")
        use = json.loads(self.run_program("plan", *machine, *job.options, "--json", "--", *words))["use"]
        self.assertLessEqual(set(job.changes), {change["key"] for change in use["changes"]})
        diff = self.run_program("plan", *machine, *job.options, "--diff", "--", *words)
        line = diff.splitlines()[0].removeprefix("run: ").split() if diff.startswith("run: ") else words
        self.patch(diff)
        self.run_program("plan", *machine, "--force", "--quiet", "-o", "plan.json", "--", *line)
        predicted = json.loads(self.run_program("simulate", "plan.json", "--rank", "0", "--json"))
        gpus = ("--gpus", str(job.gpus), "--gpu", "H100 SXM")
        measured = json.loads(self.run_program("rehearse", *gpus, "--json", "--", *trl_job_test.LAUNCH, *line[2:]))
        measured["memory"]["phases"].pop("initialization", None)  # The script loads weights and data there.
        self.compare(job, measured, predicted)

    def patch(self, diff: str) -> None:
        import subprocess

        if "\n--- " in f"\n{diff}":
            subprocess.run(["patch", "-p0"], cwd=self.folder, input=diff, text=True, check=True, capture_output=True)


@dataclass
class UseOfLlamaFactory(llamafactory_job_test.Job):
    changes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


OF_LLAMAFACTORY = [
    UseOfLlamaFactory("faster ddp", "wide_qwen3", 2, changes=("disable_gradient_checkpointing",)),
    UseOfLlamaFactory("kept after forward", "wide_llama", 4, {"disable_gradient_checkpointing": True}, FSDP2,
                      changes=("fsdp_config.fsdp_reshard_after_forward",), options=("--reshard", "false", "--activation-checkpointing", "none")),
]  # fmt: skip


class UsesOfLlamaFactory(JobsOfLlamaFactory):
    def check(self, job: UseOfLlamaFactory) -> None:  # type: ignore[override]
        keys = {"model_name_or_path": job.model, **llamafactory_job_test.BASE, **job.keys}
        (self.folder / "job.yaml").write_text(json.dumps(keys, indent=2), encoding="utf-8")
        (self.folder / "launch.yaml").write_text(json.dumps({**job.launch, "num_processes": job.gpus}, indent=2), encoding="utf-8")
        machine = ("--gpu", "H100 SXM", "--torch", "2.11", *job.options)
        line = ("accelerate", "launch", "--config_file", "launch.yaml", "-m", "llamafactory.launcher", "job.yaml")
        said = (*machine, "--", *line) if job.launch else ("job.yaml", "--gpus", str(job.gpus), *machine)
        options = len(said) - len(line) - 1 if job.launch else len(said)
        use = json.loads(self.run_program("plan", *said[:options], "--json", *said[options:]))["use"]
        self.assertLessEqual(set(job.changes), {change["key"] for change in use["changes"]})
        name = "launch.yaml" if job.launch else "job.yaml"
        self.run_program("plan", *said[:options], "--write", "changed.yaml", "--force", *said[options:])
        (self.folder / "changed.yaml").replace(self.folder / name)
        self.hold(job)


@dataclass
class UseOfAutomodel(automodel_job_test.Job):
    changes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


OF_AUTOMODEL = [
    UseOfAutomodel("faster steps", "mistral", 4, 1, 2, {"distributed": {"activation_checkpointing": True}},
                   changes=("distributed.activation_checkpointing",), options=("--batch", "1", "--accumulate", "2")),
    UseOfAutomodel("larger micro batches", "untied", 4, 1, 4, changes=("step_scheduler.local_batch_size", "distributed.dp_replicate_size"),
                   options=("--batch", "2", "--accumulate", "2", "--replicate", "2")),
]  # fmt: skip


class UsesOfAutomodel(JobsOfAutomodel):
    def check(self, job: UseOfAutomodel) -> None:  # type: ignore[override]
        (self.folder / "given.yaml").write_text(json.dumps(job.config(), indent=2), encoding="utf-8")
        words = ("given.yaml", "--gpus", str(job.gpus), "--gpu", "H100 SXM", "--torch", "2.11", *job.options)
        use = json.loads(self.run_program(*words, "--json"))["use"]
        self.assertLessEqual(set(job.changes), {change["key"] for change in use["changes"]})
        self.run_program(*words, "--write", "job.yaml", "--force")
        self.hold(job)


for kind, jobs, others in ((UsesOfAxolotl, OF_AXOLOTL, axolotl_job_test.JOBS), (UsesOfTrl, OF_TRL, trl_job_test.JOBS),
                           (UsesOfLlamaFactory, OF_LLAMAFACTORY, llamafactory_job_test.JOBS),
                           (UsesOfAutomodel, OF_AUTOMODEL, automodel_job_test.JOBS)):  # fmt: skip
    for other in others:
        setattr(kind, "test_" + other.name.replace(" ", "_"), None)  # Those of the files as they are.
    for each in jobs:
        setattr(kind, "test_" + each.name.replace(" ", "_"), lambda self, job=each: self.check(job))
del JobsOfAxolotl, JobsOfTrl, JobsOfLlamaFactory, JobsOfAutomodel

if __name__ == "__main__":
    for kind in (UsesOfAxolotl, UsesOfTrl, UsesOfLlamaFactory, UsesOfAutomodel):
        kind.program = str(pathlib.Path(sys.argv[2]).resolve())
    wanted = sys.argv[3] if len(sys.argv) > 3 else ""
    needed = {"UsesOfAxolotl": ("axolotl", "flash_attn"), "UsesOfLlamaFactory": ("llamafactory",),
              "UsesOfAutomodel": ("nemo_automodel",)}.get(wanted.split(".")[0], ("trl", "peft", "accelerate", "yaml"))  # fmt: skip
    if any(importlib.util.find_spec(name) is None for name in needed):
        print(f"One of {', '.join(needed)} is not installed.")
        sys.exit(77)
    os.environ["AXOLOTL_DO_NOT_TRACK"] = "1"
    if importlib.util.find_spec("flash_attn_2_cuda") is None:  # flash-attn's Python takes it for the compiled part.
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE / "stand_ins"), *filter(None, [os.environ.get("PYTHONPATH")])])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
