#!/usr/bin/env python3
"""A configuration of axolotl, read without running it, held to its rehearsal: collectives are equal, and so is memory.

    axolotl_job_test.py STUB PROGRAM [unittest options]

Needs axolotl beside PyTorch, and flash-attn for packed rows; exits with 77 without them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import sys
import unittest
from dataclasses import dataclass, field
from typing import Any

from job_tables import rows_of
from transformers_plans import TransformersPlans

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--mixed_precision", "no"]
BASE = {"dataset_prepared_path": "prepared", "output_dir": "out", "max_steps": 3, "num_epochs": 1, "learning_rate": 1e-5, "bf16": True,
        "tf32": False, "optimizer": "adamw_torch_fused", "logging_steps": 1, "save_strategy": "no", "sequence_len": 1024,
        "micro_batch_size": 1, "sample_packing": False, "pad_to_sequence_len": True, "attn_implementation": "sdpa", "fsdp_version": 2}  # fmt: skip
PACKED = {"sample_packing": True, "attn_implementation": "flash_attention_2", "micro_batch_size": 2}
KERNELS = {"plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_rope": True, "liger_rms_norm": True,
           "liger_glu_activation": True}  # fmt: skip
REENTRANT = {"gradient_checkpointing": True}
CHECKPOINTS = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}
ADAPTERS = {"adapter": "lora", "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.05, "lora_target_linear": True}
FOUR_BITS = {**ADAPTERS, "adapter": "qlora", "load_in_4bit": True}
NO_FUSION = {f"lora_{part}_kernel": False for part in ("mlp", "qkv", "o", "embedding")}
VERSION_1 = {"fsdp_version": 1, **CHECKPOINTS, "gradient_accumulation_steps": 2}
OFFLOADED = {"offload_params": True, "use_orig_params": False, "cpu_ram_efficient_loading": True, "sync_module_states": True,
             "limit_all_gathers": True, "sharding_strategy": "FULL_SHARD"}  # fmt: skip
CLASSES = {"llama": "LlamaDecoderLayer", "qwen3": "Qwen3DecoderLayer", "gemma3": "Gemma3DecoderLayer"}


@dataclass
class Job:
    name: str
    model: str
    gpus: int
    keys: dict[str, Any] = field(default_factory=dict)
    fsdp: dict[str, Any] = field(default_factory=dict)
    data: str = "mixed"
    begins_short: bool = False  # The sampler's first row is no whole one.
    # Half a MiB of what the Trainer logs beside the step is much of these small models.
    bounds: tuple[float, float, float] = (0.001, 0.005, 0.03)

    @property
    def is_version_1(self) -> bool:
        return self.keys.get("fsdp_version") == 1

    def config(self) -> dict[str, Any]:
        datasets = [{"path": self.data, "type": "completion", "field": "text", "split": "train"}]
        fsdp = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "transformer_layer_cls_to_wrap": CLASSES[self.model],
                **({} if self.is_version_1 else {"reshard_after_forward": True}), **self.fsdp}  # fmt: skip
        data = {} if "pretraining_dataset" in self.keys else {"datasets": datasets}
        return {"base_model": self.model, **data, **BASE, **self.keys, "fsdp_config": fsdp}


# The sampler of packed rows asks all ranks for their numbers, which a rehearsal does not compute: one GPU packs.
JOBS = [
    Job("rows with padding", "llama", 4, data="short"),
    Job("reentrant checkpoints", "qwen3", 2, {**REENTRANT, "gradient_accumulation_steps": 2}, data="short"),
    Job("packed rows", "llama", 1, {**PACKED, "gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}),
    Job("flash-attn without packing", "llama", 2,
        {"attn_implementation": "flash_attention_2", "pad_to_sequence_len": False, **REENTRANT}, begins_short=True),
    Job("kernels of Liger", "qwen3", 1, {**PACKED, **KERNELS, "gradient_checkpointing": True}, {"reshard_after_forward": False}),
    Job("nested checkpoints", "llama", 2, fsdp={"activation_checkpointing": True}, data="short"),
    Job("nested checkpoints and the loss of Liger", "llama", 2,
        {**KERNELS, "liger_fused_linear_cross_entropy": True, "micro_batch_size": 2},
        {"activation_checkpointing": True, "cpu_ram_efficient_loading": True}, data="short"),
    Job("loss of Liger", "llama", 2, {"plugins": KERNELS["plugins"], "liger_fused_linear_cross_entropy": True, "micro_batch_size": 2,
                                      "gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
        data="short"),
    Job("nested checkpoints of Gemma 3", "gemma3", 1, {**PACKED, **KERNELS, "liger_fused_linear_cross_entropy": True},
        {"activation_checkpointing": True, "cpu_ram_efficient_loading": True}),
    Job("packed stream under version 1", "llama", 2,
        {**PACKED, "fsdp_version": 1, **CHECKPOINTS, "pretraining_dataset": [{"path": "mixed", "type": "pretrain", "split": "train"}],
         "accelerator_config": {"dispatch_batches": False}}, OFFLOADED),
    Job("reentrant checkpoints and the loss of Liger", "llama", 2,
        {"plugins": KERNELS["plugins"], "liger_fused_linear_cross_entropy": True, "micro_batch_size": 2, **REENTRANT}, data="short"),
    Job("reentrant checkpoints of adapters", "llama", 4, {**ADAPTERS, **NO_FUSION, **REENTRANT}, data="short"),
    Job("reentrant checkpoints of four bits", "llama", 2, {**FOUR_BITS, **NO_FUSION, **REENTRANT, "gradient_accumulation_steps": 2}, data="short"),
    Job("reentrant checkpoints of version 1", "llama", 2,
        {"fsdp_version": 1, **REENTRANT, **KERNELS, "liger_fused_linear_cross_entropy": True}, OFFLOADED, data="short"),
    Job("reentrant checkpoints of version 1 and four bits", "llama", 2, {"fsdp_version": 1, **REENTRANT, **FOUR_BITS}, OFFLOADED, data="short"),
    Job("adapters without checkpoints", "llama", 2, {**ADAPTERS, **NO_FUSION}, data="short"),
    Job("adapters", "llama", 4, {**ADAPTERS, **NO_FUSION, **CHECKPOINTS}, data="short"),
    Job("adapters on four bits", "llama", 2, {**FOUR_BITS, **NO_FUSION, **CHECKPOINTS, "gradient_accumulation_steps": 2}, data="short"),
    Job("version 1", "llama", 2, VERSION_1, OFFLOADED, data="short"),
    Job("version 1 and Liger", "llama", 2, {**VERSION_1, **KERNELS, "liger_fused_linear_cross_entropy": True}, OFFLOADED, data="short"),
    Job("version 1 and four bits", "llama", 2, {**VERSION_1, **FOUR_BITS}, OFFLOADED, data="short"),
    Job("packed stream", "llama", 1, {**PACKED, "pretraining_dataset": [{"path": "mixed", "type": "pretrain", "split": "train"}]}),
]  # fmt: skip


class JobsOfAxolotl(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.write_trl_folder(sorted({job.model for job in JOBS}))
        # Every row ends in padding: transformers makes no mask for a batch without any.
        (cls.folder / "short").mkdir()
        text = json.dumps({"text": " ".join(f"w{3 + number % 50}" for number in range(900))})
        (cls.folder / "short/train.jsonl").write_text(256 * f"{text}\n", encoding="utf-8")

    def check(self, job: Job) -> None:
        # JSON is YAML.
        (self.folder / "job.yaml").write_text(json.dumps(job.config()), encoding="utf-8")
        gpus = ("--gpus", str(job.gpus), "--gpu", "H100 SXM")
        documents = ("--document-length", "700") if "sample_packing" in job.keys else ()
        self.run_program("job.yaml", *gpus, *documents, "--torch", "2.11", "--force", "--quiet", "-o", "plan.json")
        predicted = json.loads(self.run_program("simulate", "plan.json", "--rank", "0", "--json"))
        words = [*LAUNCH, "--num_processes", str(job.gpus), "-m", "axolotl.cli.train", "job.yaml"]
        # FSDP1 records streams. A prediction has their memory beside its peak.
        streams = ("--record-stream", "done") if job.is_version_1 else ()
        measured = json.loads(self.run_program("rehearse", *gpus, *streams, "--json", "--", *words))
        measured["memory"]["phases"].pop("initialization", None)  # The script loads weights and data there.
        if job.begins_short:
            measured["memory"]["phases"].pop("first_step")
        self.compare(job, measured, predicted)


for each in JOBS:
    setattr(JobsOfAxolotl, "test_" + each.name.replace(" ", "_"), lambda self, job=each: self.check(job))


class KeysAreThoseOfAxolotl(unittest.TestCase):
    """Our table has every key of the real schema, and no other but those of plugins."""

    def test_schema(self) -> None:
        from axolotl.utils.schemas.config import AxolotlInputConfig

        real = {(f.alias or name): f.default for name, f in AxolotlInputConfig.model_fields.items()}
        ours = rows_of("axolotl_keys.cpp")
        plugins = self.plugin_keys()
        self.assertNotIn("eta_min", real)
        del ours["eta_min"]  # axolotl's own examples have it.
        self.assertEqual(sorted(key for key in ours if "." not in key and key not in plugins), sorted(set(real) - plugins))
        for key, row in ours.items():
            usual = re.search(r'Usual,\s*"([^"]*)"', row)
            default = real.get(key)
            if usual and key in real and isinstance(default, (str, int)) and default is not False and default != "":
                self.assertEqual(usual[1], str(default), key)

    def test_fsdp(self) -> None:
        from axolotl.utils.schemas.fsdp import FSDPConfig

        ours = {key.removeprefix("fsdp_config.") for key in rows_of("axolotl_keys.cpp") if key.startswith("fsdp_config.")}
        dropped = {"limit_all_gathers", "sharding_strategy", "forward_prefetch", "backward_prefetch"}
        self.assertEqual(ours - dropped, set(FSDPConfig.model_fields))

    @staticmethod
    def plugin_keys() -> set[str]:
        """The keys of the plugins in the package, by their text: some cannot be imported without more packages."""
        import axolotl

        keys: set[str] = set()
        for file in pathlib.Path(axolotl.__path__[0]).glob("integrations/*/args.py"):
            for body in re.findall(r"^class \w*Args\(.*?(?=^class |\Z)", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
                keys.update(re.findall(r"^    ([a-z][a-z_0-9]*):", body, re.MULTILINE))
        swanlab = pathlib.Path(axolotl.__path__[0]) / "integrations/swanlab/args.py"
        keys.update(re.findall(r"^    ([a-z][a-z_0-9]*):", swanlab.read_text(encoding="utf-8"), re.MULTILINE))
        return keys - {"generate_samples", "recipe", "save_compressed"}  # The first is the schema's, too; two are inside llmcompressor.

    def test_plugins(self) -> None:
        self.assertEqual(self.plugin_keys() - set(rows_of("axolotl_keys.cpp")), set())


class RulesHoldInAxolotl(unittest.TestCase):
    """What fsdp-plan check calls refused, dropped or mixed, axolotl's own schema refuses, drops or warns of; the mended file it takes."""

    @classmethod
    def setUpClass(cls) -> None:
        sys.path.insert(0, str(ROOT / "tests/command"))
        from check_cases import CASES

        cls.cases = {rule: cases for rule, cases in CASES.items() if rule.startswith("axolotl-")}

    @staticmethod
    def read(files: dict[str, str]) -> Any:
        import yaml
        from axolotl.utils.config import validate_config
        from axolotl.utils.dict import DictDefault

        return validate_config(DictDefault(yaml.safe_load(files["axolotl.yml"])))

    def test_refused(self) -> None:
        number = 0
        for rule in ("axolotl-loading", "axolotl-optimizer", "axolotl-pinned-memory"):
            for severity, place, failing, passing in self.cases[rule]:
                if severity != "error":
                    continue
                number += 1
                with self.subTest(rule=rule, place=place):
                    self.assertRaises(ValueError, self.read, failing)
                    self.read(passing)
        self.assertEqual(number, 4)

    def test_dropped(self) -> None:
        for rule in ("axolotl-unknown-key", "axolotl-ignored-key"):
            for _, place, failing, _ in self.cases[rule]:
                key = place.split("/")[-1].removeprefix("fsdp_")
                if key == "use_orig_params":
                    continue  # A key of the schema, which FSDP2 does not read.
                config = self.read(failing)
                with self.subTest(rule=rule, key=key):
                    self.assertNotIn(key, dict(config) if place.count("/") == 1 else dict(config["fsdp_config"]))

    def test_warned(self) -> None:
        for rule, said in (("axolotl-packing", "decontamination"), ("axolotl-version-1", "FSDP1 is deprecated")):
            for _, place, failing, passing in self.cases[rule]:
                with self.subTest(rule=rule, place=place):
                    self.assertIn(said, self.warnings_of(failing))
                    self.assertNotIn(said, self.warnings_of(passing))

    def warnings_of(self, files: dict[str, str]) -> str:
        import logging
        from unittest import mock

        texts: list[str] = []
        with mock.patch.object(logging.Logger, "handle", lambda _, record: texts.append(record.getMessage())):
            self.read(files)
        return "\n".join(texts)


if __name__ == "__main__":
    JobsOfAxolotl.program = str(pathlib.Path(sys.argv[2]).resolve())
    if any(importlib.util.find_spec(name) is None for name in ("axolotl", "flash_attn")):
        print("axolotl or flash-attn is not installed.")
        sys.exit(77)
    os.environ["AXOLOTL_DO_NOT_TRACK"] = "1"
    if importlib.util.find_spec("flash_attn_2_cuda") is None:  # flash-attn's Python takes it for the compiled part.
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE / "stand_ins"), *filter(None, [os.environ.get("PYTHONPATH")])])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
