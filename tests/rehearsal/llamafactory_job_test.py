#!/usr/bin/env python3
"""A configuration of LLaMA-Factory, read without running it, held to its rehearsal: collectives are equal, and so is memory.

    llamafactory_job_test.py STUB PROGRAM [unittest options]

Needs llamafactory beside PyTorch; exits with 77 without it.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pathlib
import re
import sys
import unittest
from typing import Any

from job_tables import rows_of
from transformers_plans import TransformersPlans

BASE = {"stage": "sft", "do_train": True, "finetuning_type": "full", "dataset": "long", "dataset_dir": ".", "template": "empty",
        "cutoff_len": 1024, "output_dir": "out", "overwrite_output_dir": True, "max_steps": 3, "save_strategy": "no", "report_to": "none",
        "per_device_train_batch_size": 1, "learning_rate": 1e-5, "bf16": True}  # fmt: skip
FSDP2 = {"distributed_type": "FSDP", "mixed_precision": "bf16", "num_machines": 1,
         "fsdp_config": {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_reshard_after_forward": True,
                         "fsdp_cpu_ram_efficient_loading": True, "fsdp_state_dict_type": "SHARDED_STATE_DICT"}}  # fmt: skip
LORA = {"finetuning_type": "lora", "lora_rank": 8, "lora_target": "all"}


@dataclasses.dataclass
class Job:
    name: str
    model: str
    gpus: int
    keys: dict[str, Any] = dataclasses.field(default_factory=dict)
    launch: dict[str, Any] = dataclasses.field(default_factory=dict)  # Without one, torchrun starts the processes.
    bounds: tuple[float, float, float] = (0.001, 0.005, 0.03)


# One tensor of hidden states more is alive when the logits are, and the loss passes over padding, which is counted.
BESIDE_LOGITS = (0.002, 0.005, 0.03)
JOBS = [
    # One buffer of the logits takes a new segment.
    Job("fsdp2", "wide_llama", 4, launch=FSDP2, bounds=(0.001, 0.005, 0.11)),
    Job("fsdp2 in several micro batches", "wide_qwen3", 2, {"gradient_accumulation_steps": 2}, FSDP2),
    Job("fsdp2 without checkpoints", "wide_llama", 8, {"disable_gradient_checkpointing": True}, FSDP2),
    Job("ddp", "wide_llama", 2, bounds=BESIDE_LOGITS),
    Job("ddp without checkpoints", "wide_qwen3", 2, {"disable_gradient_checkpointing": True}),
    Job("packed rows", "wide_llama", 2, {"packing": True, "use_reentrant_gc": False}, bounds=BESIDE_LOGITS),
    Job("adapters", "wide_llama", 2, LORA),
    Job("adapters and padding", "wide_qwen3", 2,
        {**LORA, "dataset": "uneven", "per_device_train_batch_size": 2, "lora_target": "q_proj,v_proj"}, bounds=(0.003, 0.005, 0.03)),
    Job("base in four bits", "wide_llama", 2, {**LORA, "quantization_bit": 4}),
    Job("base in four bits on one GPU", "wide_qwen3", 1,
        {**LORA, "quantization_bit": 4, "double_quantization": False, "gradient_accumulation_steps": 2, "disable_gradient_checkpointing": True}),
]  # fmt: skip


class JobsOfLlamaFactory(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.write_trl_folder(sorted({job.model for job in JOBS}))
        columns = {"prompt": "instruction", "response": "output"}
        for name in ("long", "uneven"):
            texts = (json.loads(row)["text"] for row in (cls.folder / name / "train.jsonl").read_text(encoding="utf-8").splitlines())
            rows = "".join(json.dumps({"instruction": "w3", "output": text}) + "\n" for text in texts)
            (cls.folder / f"{name}.jsonl").write_text(rows, encoding="utf-8")
        files = {name: {"file_name": f"{name}.jsonl", "columns": columns} for name in ("long", "uneven")}
        (cls.folder / "dataset_info.json").write_text(json.dumps(files), encoding="utf-8")

    def check(self, job: Job) -> None:
        # JSON is YAML.
        (self.folder / "job.yaml").write_text(json.dumps({"model_name_or_path": job.model, **BASE, **job.keys}), encoding="utf-8")
        if job.launch:
            (self.folder / "launch.yaml").write_text(json.dumps({**job.launch, "num_processes": job.gpus}), encoding="utf-8")
        self.hold(job)

    def hold(self, job: Job) -> None:
        """job.yaml to its rehearsal, launched by launch.yaml if the job has a launch."""
        gpus = ("--gpus", str(job.gpus), "--gpu", "H100 SXM")
        if job.launch:
            launch = ["accelerate.commands.launch", "--config_file", "launch.yaml"]
            words = [sys.executable, "-m", *launch, "-m", "llamafactory.launcher", "job.yaml"]
            self.run_program("plan", "--gpu", "H100 SXM", "--torch", "2.11", "--force", "--quiet", "-o", "plan.json", "--", *words)
        else:
            launch = ["torch.distributed.run", "--nproc_per_node", str(job.gpus)]
            words = [sys.executable, "-m", *launch, "-m", "llamafactory.launcher", "job.yaml"]
            self.run_program("job.yaml", *gpus, "--torch", "2.11", "--force", "--quiet", "-o", "plan.json")
        predicted = json.loads(self.run_program("simulate", "plan.json", "--rank", "0", "--json"))
        measured = json.loads(self.run_program("rehearse", *gpus, "--json", "--", *words))
        measured["memory"]["phases"].pop("initialization", None)  # The script loads weights and data there.
        self.compare(job, measured, predicted)


for each in JOBS:
    setattr(JobsOfLlamaFactory, "test_" + each.name.replace(" ", "_"), lambda self, job=each: self.check(job))


class KeysAreThoseOfLlamaFactory(unittest.TestCase):
    """Our table has every key of the real classes, and no other but those of newer releases of transformers."""

    def test_classes(self) -> None:
        from llamafactory.hparams.parser import _TRAIN_ARGS

        real = {f.name: f.default for each in _TRAIN_ARGS for f in dataclasses.fields(each) if f.init}
        ours = {**rows_of("trainer_keys.cpp"), **rows_of("llamafactory_keys.cpp")}
        newer = {"activation_checkpointing", "activation_checkpointing_kwargs", "dataloader_in_order", "dataloader_multiprocessing_context"}
        self.assertEqual(sorted(key for key in ours if "." not in key and key not in newer), sorted(real))
        for key, row in ours.items():
            usual = re.search(r'Usual,\s*"([^"]*)"', row)
            default = real.get(key)
            if usual and key in real and isinstance(default, (str, int)) and default not in (False, ""):
                self.assertEqual(usual[1], str(getattr(default, "value", default)), key)


if __name__ == "__main__":
    JobsOfLlamaFactory.program = str(pathlib.Path(sys.argv[2]).resolve())
    if importlib.util.find_spec("llamafactory") is None:
        print("llamafactory is not installed.")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
