#!/usr/bin/env python3
"""A configuration of NeMo Automodel, read without running it, held to the rehearsal of its recipe: collectives are equal, and so is memory.

    automodel_job_test.py STUB PROGRAM [unittest options]

Needs nemo-automodel beside PyTorch; exits with 77 without it.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import sys
import unittest
from dataclasses import dataclass, field
from typing import Any

from capture_runs import collectives_of
from job_tables import rows_of
from transformers_plans import CONFIGS, LLAMA, TransformersPlans

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Llama, Qwen2 and Qwen3 are Automodel's classes; Mistral's is transformers'.
MORE = {"untied": {**CONFIGS["qwen3"], "tie_word_embeddings": False},
        "mistral": {**LLAMA, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None}}
LENGTH = 1024
ROWS = {"_target_": "nemo_automodel.components.datasets.llm.column_mapped_text_instruction_dataset.ColumnMappedTextInstructionDataset",
        "path_or_dataset_id": "rows.jsonl", "column_mapping": {"question": "question", "answer": "answer"}, "seq_length": LENGTH,
        "padding": "max_length", "truncation": True, "answer_only_loss_mask": False, "tokenizer": {"pretrained_model_name_or_path": "llama"}}
BASE = {"recipe": "TrainFinetuneRecipeForNextTokenPrediction", "seed": 1, "dist_env": {"backend": "nccl", "timeout_minutes": 1},
        "checkpoint": {"enabled": False, "checkpoint_dir": "checkpoints"}, "dataset": ROWS,
        "dataloader": {"_target_": "torchdata.stateful_dataloader.StatefulDataLoader",
                       "collate_fn": "nemo_automodel.components.datasets.utils.default_collater", "shuffle": False},
        "loss_fn": {"_target_": "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy"},
        "optimizer": {"_target_": "torch.optim.Adam", "lr": 1e-5, "weight_decay": 0, "betas": [0.9, 0.999]}}  # fmt: skip
LORA = {"_target_": "nemo_automodel.components._peft.lora.PeftConfig", "dim": 8, "alpha": 32, "use_triton": True}
# What the recipe's ranks add up for its log: the loss, and the FLOPs of the step.
LOGGED = {"all_reduce float32": 4, "all_reduce float64": 8}


@dataclass
class Job:
    name: str
    weights: str  # The model's folder.
    gpus: int
    batch: int
    steps: int = 1  # Micro-batches of a step.
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    bounds: tuple[float, float, float] = (0.001, 0.005, 0.03)  # What is requested, allocated, reserved.

    @property
    def model(self) -> str:
        return self.weights

    def config(self) -> dict[str, Any]:
        file = {**BASE,
                "step_scheduler": {"global_batch_size": self.batch * self.gpus * self.steps, "local_batch_size": self.batch, "max_steps": 3,
                                   "ckpt_every_steps": 1000, "num_epochs": 1},
                "model": {"_target_": "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
                          "pretrained_model_name_or_path": self.weights, "attn_implementation": "sdpa", "use_liger_kernel": False},
                "distributed": {"strategy": "fsdp2", "dp_size": "none", "tp_size": 1, "cp_size": 1}}  # fmt: skip
        for name, keys in self.sections.items():
            file[name] = {**file.get(name, {}), **keys}
        return file


# In the first step, what a kernel of adapters was given stays referenced for a while after Triton has measured it.
MEASURED = (0.005, 0.005, 0.03)
JOBS = [
    Job("own class", "untied", 4, 2),
    Job("tied weights in two micro-batches", "qwen3", 2, 1, steps=2),
    Job("own class and norm", "llama", 8, 1),
    Job("a class of transformers with checkpoints", "mistral", 4, 2, 2,
        {"distributed": {"activation_checkpointing": True, "defer_fsdp_grad_sync": False}}),
    Job("adapters", "llama", 4, 2, sections={"peft": {**LORA, "target_modules": "*_proj"}}, bounds=MEASURED),
    Job("adapters of some layers of tied weights", "qwen3", 2, 4, 2, {"peft": {**LORA, "target_modules": ["*q_proj", "*.v_proj"], "dim": 16}}),
    Job("one GPU", "untied", 1, 2),
    Job("weights in fp32 that stay gathered", "mistral", 4, 1,
        sections={"model": {"torch_dtype": "float32"}, "distributed": {"reshard_after_forward": False}}),
    Job("copies", "qwen2", 4, 1, sections={"distributed": {"dp_replicate_size": 2},
                                           "optimizer": {"_target_": "torch.optim.AdamW", "weight_decay": 0.01}}),
    Job("adapters of a class of transformers", "mistral", 8, 1, sections={"peft": {**LORA, "target_modules": "*_proj"}},
        bounds=MEASURED),
]  # fmt: skip


class JobsOfAutomodel(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name, config in MORE.items():
            (cls.folder / name).mkdir()
            (cls.folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
        cls.write_trl_folder(sorted({"llama", *(job.weights for job in JOBS)}))
        # Shorter than LENGTH, so that every row ends in padding: transformers makes no mask for a batch without any.
        row = {key: " ".join(f"w{3 + number % 50}" for number in range(count)) for key, count in (("question", 600), ("answer", 300))}
        (cls.folder / "rows.jsonl").write_text(256 * f"{json.dumps(row)}\n", encoding="utf-8")

    def check(self, job: Job) -> None:
        # JSON is YAML.
        (self.folder / "job.yaml").write_text(json.dumps(job.config()), encoding="utf-8")
        self.hold(job)

    def hold(self, job: Job) -> None:
        """job.yaml to its rehearsal."""
        gpus = ("--gpus", str(job.gpus), "--gpu", "H100 SXM")
        self.run_program("job.yaml", *gpus, "--torch", "2.11", "--force", "--quiet", "-o", "plan.json")
        predicted = json.loads(self.run_program("simulate", "plan.json", "--rank", "0", "--json"))
        words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(job.gpus), "-m", "nemo_automodel.cli.app", "job.yaml"]
        measured = json.loads(self.run_program("rehearse", *gpus, "--json", "--", *words))
        measured["memory"]["phases"].pop("initialization", None)  # The recipe loads weights there.
        self.leave_log_out(measured, job.gpus)
        self.compare(job, measured, predicted)

    def leave_log_out(self, measured: dict[str, Any], gpus: int) -> None:
        """Takes one all-reduce of each number that the recipe logs from the step."""
        if gpus == 1:
            return
        rows = measured["traffic"]["collectives"]
        for name, payload in LOGGED.items():
            kind, dtype = name.split()
            logged = (kind, dtype, payload, gpus)
            found = [row for row in rows if (row["kind"], row["dtype"], row["payload_bytes"], row["group_size"]) == logged]
            self.assertTrue(found, collectives_of(measured))
            rows.remove(found[0])


for each in JOBS:
    setattr(JobsOfAutomodel, "test_" + each.name.replace(" ", "_").replace("-", "_"), lambda self, job=each: self.check(job))


class KeysAreThoseOfAutomodel(unittest.TestCase):
    """Our table has every key of the library's own classes of a configuration."""

    ours = rows_of("automodel_keys.cpp")

    def below(self, section: str) -> set[str]:
        keys = {key.removeprefix(section + ".") for key in self.ours if key.startswith(section + ".")}
        return {key.split(".")[0] for key in keys} - {"_target_"}

    def names_of(self, *classes: Any) -> set[str]:
        return {entry.name for each in classes for entry in dataclasses.fields(each)}

    def test_distributed(self) -> None:
        from nemo_automodel.components.distributed.config import DDPConfig, FSDP2Config, MegatronFSDPConfig
        from nemo_automodel.recipes._dist_utils import _PARALLELISM_DEFAULTS

        sizes = {*_PARALLELISM_DEFAULTS, "strategy", "pipeline", "moe"}
        self.assertEqual(self.below("distributed"), self.names_of(FSDP2Config, MegatronFSDPConfig, DDPConfig) | sizes)
        self.assertIsNone(FSDP2Config().reshard_after_forward)
        self.assertIs(FSDP2Config().defer_fsdp_grad_sync, True)
        self.assertIs(FSDP2Config().enable_fsdp2_prefetch, False)

    def test_sections(self) -> None:
        from nemo_automodel.components._peft.lora import PeftConfig
        from nemo_automodel.components.models.common import BackendConfig
        from nemo_automodel.components.quantization.fp8 import FP8Config
        from nemo_automodel.components.training.step_scheduler import StepSchedulerConfig
        from nemo_automodel.components.utils.compile_utils import CompileConfig

        for section, type_of in {"peft": PeftConfig, "model.backend": BackendConfig, "fp8": FP8Config, "compile": CompileConfig}.items():
            self.assertEqual(self.below(section), self.names_of(type_of), section)
        self.assertEqual(self.below("step_scheduler"), self.names_of(StepSchedulerConfig) | {"local_batch_size"})
        self.assertEqual(StepSchedulerConfig().global_batch_size, 32)
        usual = re.findall(r'Usual,\s*"([^"]+)"', "".join(row for key, row in self.ours.items() if key.startswith("model.backend.")))
        backend = dataclasses.asdict(BackendConfig())
        self.assertLessEqual(set(usual), {value for value in backend.values() if isinstance(value, str)})

    def test_data_and_optimizers(self) -> None:
        from nemo_automodel.components.datasets import loader
        from nemo_automodel.components.loss import loss
        from nemo_automodel.components.optim.optimizer import AdamConfig, AdamWConfig, FlashAdamWConfig, FusedAdamConfig

        made = {"dataset_config", "packing", "batch_sampler_config", "dataset_build_schedule", "seed"}  # By the recipe.
        self.assertEqual(self.below("dataloader"), self.names_of(loader.DataloaderConfig) - made | {"dataloader_type"})
        packing = self.names_of(loader.ThdPackingConfig, loader.NeatPackingConfig)
        self.assertEqual(self.below("packed_sequence"), packing | {"packing_strategy", "split_across_pack"})
        losses = self.names_of(loss.MaskedCrossEntropyConfig, loss.FusedLinearCEConfig, loss.ChunkedCEConfig)
        self.assertEqual(self.below("loss_fn"), losses)
        self.assertLessEqual(self.names_of(AdamConfig, AdamWConfig, FusedAdamConfig, FlashAdamWConfig), self.below("optimizer"))

    def test_recipe(self) -> None:
        """Every section that the recipe asks for."""
        import nemo_automodel

        package = pathlib.Path(nemo_automodel.__path__[0])
        text = "".join((package / file).read_text(encoding="utf-8") for file in ("recipes/llm/train_ft.py", "recipes/base_recipe.py",
                                                                                  "recipes/_dist_utils.py", "cli/app.py"))
        asked = set(re.findall(r'\bcfg\.get\(\s*"([a-z0-9_]+)', text)) | set(re.findall(r'\bconfig\.(?:get|pop)\(\s*"([a-z_]+)', text))
        asked -= {"enabled", "noise_alpha", "mode", "top_k_experts", "detailed_every_steps", "fake_quant_after_n_steps", "pretrained_model_name_or_path"}
        tops = {key.split(".")[0] for key in self.ours}
        self.assertGreater(len(asked), 12)
        self.assertEqual(asked - tops, set())

    def test_classes(self) -> None:
        from nemo_automodel._transformers.registry import MODEL_ARCH_MAPPING

        text = (ROOT / "core/plan/automodel.cpp").read_text(encoding="utf-8")
        listed = {table: set(re.findall(r'"(\w+)"', text.split(f"{table}[] = {{")[1].split("};")[0]))
                  for table in ("kUnknownAutomodelClasses", "kAutomodelClasses", "kComparedClasses")}
        self.assertEqual(listed["kUnknownAutomodelClasses"] | listed["kAutomodelClasses"], set(MODEL_ARCH_MAPPING))
        self.assertEqual(listed["kComparedClasses"] & listed["kUnknownAutomodelClasses"], set())


if __name__ == "__main__":
    JobsOfAutomodel.program = str(pathlib.Path(sys.argv[2]).resolve())
    if importlib.util.find_spec("nemo_automodel") is None:
        print("nemo-automodel is not installed.")
        sys.exit(77)
    os.environ["HF_HUB_OFFLINE"] = "1"
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
