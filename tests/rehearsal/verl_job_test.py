#!/usr/bin/env python3
"""A line of verl, read without running it, held to its rehearsal: collectives are equal, and so is memory.

    verl_job_test.py STUB PROGRAM [unittest options]

Supervised fine-tuning runs verl's own trainer. In reinforcement learning the update of the actor runs, in the worker that verl
runs it in, without Ray and without an engine that generates. Needs verl and flash-attn beside PyTorch; exits with 77 without them.
"""

from __future__ import annotations

import importlib
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
ACTOR = HERE / "scripts/verl_actor.py"
DATA = ["data.train_files=sft.parquet", "data.num_workers=0", 'trainer.logger=["console"]', "trainer.total_training_steps=3",
        "trainer.resume_mode=disable", "trainer.default_local_dir=out", "trainer.save_freq=-1"]  # fmt: skip
TOKENS = 500  # Each row of the data has so many.
DYNAMIC = ["actor_rollout_ref.actor.use_dynamic_bsz=True", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2000"]
LORA = ["model.lora_rank=16", "model.lora_alpha=32"]
FSDP2 = ["actor_rollout_ref.actor.strategy=fsdp2"]


# Small models, beside which it counts where a segment ends. verl makes the model before it switches expandable segments on, and
# loads the weights after it has sharded it.
NEARLY = (0.005, 0.005, 0.04)
FIRST_STEP = (0.005, 0.005, 0.08)
ON_HOST = (0.005, 0.005, 0.13)


@dataclass
class Job:
    name: str
    model: str
    gpus: int
    arguments: list[str] = field(default_factory=list)
    is_sft: bool = False
    clips_on_host: bool = False
    # The loss of a policy makes more tensors of a number per token, and metrics are collected on the GPU.
    bounds: tuple[float, float, float] = (0.005, 0.005, 0.03)

    def words(self) -> list[str]:
        """The line that is read."""
        if self.is_sft:
            return ["torchrun", f"--nproc_per_node={self.gpus}", "-m", "verl.trainer.sft_trainer", *self.own()]
        return ["python3", "-m", "verl.trainer.main_ppo", f"trainer.n_gpus_per_node={self.gpus}", *self.own()]

    def own(self) -> list[str]:
        if self.is_sft:
            return [f"model.path={self.model}", f"data.max_length={TOKENS}", *DATA, *self.arguments]
        return [f"actor_rollout_ref.model.path={self.model}", "actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.rollout.n=2",
                "actor_rollout_ref.rollout.name=vllm", "algorithm.adv_estimator=grpo", "data.max_prompt_length=100",
                "data.max_response_length=400", *self.arguments]  # fmt: skip


def sft(name: str, model: str, gpus: int, *arguments: str, **more: Any) -> Job:
    return Job(name, model, gpus, ["data.train_batch_size=16", "data.max_token_len_per_gpu=2000", *arguments], True, **more)


JOBS = [
    sft("sft", "llama", 2),
    sft("sft on one gpu", "qwen3", 1),
    sft("sft under fsdp2", "wide_llama", 4, "engine.strategy=fsdp2", bounds=NEARLY),
    sft("sft of tied weights under fsdp2", "wide_qwen3", 2, "engine.strategy=fsdp2"),
    sft("sft in micro-batches of rows", "llama", 2, "data.use_dynamic_bsz=False", "data.micro_batch_size_per_gpu=2"),
    sft("sft without checkpoints", "llama", 2, "model.enable_gradient_checkpointing=False"),
    sft("sft that keeps parameters", "wide_llama", 2, "engine.strategy=fsdp2", "engine.reshard_after_forward=False"),
    sft("sft that prefetches", "llama", 2, "engine.forward_prefetch=True"),
    sft("sft with deferred reductions", "wide_llama", 2, "engine.strategy=fsdp2", "engine.use_no_sync_for_gradient_accumulation=True", bounds=NEARLY),
    sft("sft of adapters", "llama", 2, *LORA),
    sft("sft of adapters under fsdp2", "wide_llama", 2, "engine.strategy=fsdp2", *LORA),
    Job("actor with adapters", "wide_qwen3", 2, [*DYNAMIC, "actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.target_modules=[q_proj,v_proj]"]),
    Job("actor", "llama", 2, DYNAMIC),
    Job("actor of tied weights", "qwen3", 4, DYNAMIC, bounds=FIRST_STEP),
    Job("actor under fsdp2", "wide_llama", 2, [*DYNAMIC, *FSDP2]),
    Job("actor with a reference", "qwen2", 2, [*DYNAMIC, "actor_rollout_ref.actor.use_kl_loss=True"]),
    Job("actor in micro-batches of rows", "llama", 2,
        ["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2", "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2"]),
    Job("actor that moves to the host", "wide_llama", 2,
        [*DYNAMIC, *FSDP2, "actor_rollout_ref.actor.fsdp_config.param_offload=True", "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True"]),
    Job("actor on the host", "wide_llama", 2, [*DYNAMIC, *FSDP2, "actor_rollout_ref.actor.fsdp_config.offload_policy=True"],
        clips_on_host=True, bounds=ON_HOST),
    Job("actor that prefetches", "wide_llama", 2, [*DYNAMIC, *FSDP2, "actor_rollout_ref.actor.fsdp_config.forward_prefetch=True"]),
    Job("actor of experts", "qwen3_moe", 2, [*DYNAMIC, *FSDP2]),
    Job("copies of the actor", "llama", 8, [*DYNAMIC, "actor_rollout_ref.actor.fsdp_config.fsdp_size=4"]),
]  # fmt: skip


class JobsOfVerl(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        models = sorted({job.model for job in JOBS})
        cls.write_trl_folder(models)
        for model in models:
            file = cls.folder / model / "tokenizer_config.json"
            config = {**json.loads(file.read_text(encoding="utf-8")), "chat_template": "{% for m in messages %}{{ m['content'] }} {% endfor %}"}
            file.write_text(json.dumps(config), encoding="utf-8")
        cls.write_data()

    @classmethod
    def write_data(cls) -> None:
        import pandas

        def words(count: int) -> str:
            return " ".join(f"w{3 + number % 50}" for number in range(count))

        rows = [{"messages": [{"role": "user", "content": words(100)}, {"role": "assistant", "content": words(TOKENS - 100)}]}] * 256
        pandas.DataFrame(rows).to_parquet(cls.folder / "sft.parquet")

    def check(self, job: Job) -> None:
        self.run_program("plan", "--gpu", "H100 SXM", "--torch", "2.11", "--force", "--quiet", "-o", "plan.json", "--", *job.words())
        predicted = json.loads(self.run_program("simulate", "plan.json", "--rank", "0", "--json"))
        module = ["-m", "verl.trainer.sft_trainer"] if job.is_sft else [str(ACTOR), "100", "400"]
        gpus = ("--gpus", str(job.gpus), "--gpu", "H100 SXM")
        # FSDP1 records streams. A prediction has their memory beside its peak.
        streams = () if any(word.endswith("strategy=fsdp2") for word in job.arguments) else ("--record-stream", "done")
        measured = json.loads(self.run_program("rehearse", *gpus, *streams, "--json", "--", sys.executable, *module, *job.own()))
        measured["memory"]["phases"].pop("initialization", None)  # The engine loads weights there.
        rows = measured["traffic"]["collectives"]
        of_loss = [row for row in rows if (row["kind"], row["dtype"], row["payload_bytes"], row["group_size"]) == ("all_reduce", "float32", 4, job.gpus)]
        if of_loss:
            rows.remove(of_loss[-1])  # The mean of all ranks, for the log.
        if job.clips_on_host:  # The norm is one number on the GPU there.
            for report in (measured, predicted):
                collectives = report["traffic"]["collectives"]
                collectives[:] = [row for row in collectives if row["kind"] != "all_reduce"]
        self.compare(job, measured, predicted)


for each in JOBS:
    setattr(JobsOfVerl, "test_" + each.name.replace(" ", "_"), lambda self, job=each: self.check(job))


# Where verl's dataclasses of a configuration are.
MODULES = (*(f"workers.config.{name}" for name in ("engine", "model", "optimizer", "actor", "rollout")), "trainer.config.algorithm")


def leaves(value: Any, prefix: str = "") -> list[str]:
    if not isinstance(value, dict) or not value:
        return [prefix]
    return [leaf for key, below in value.items() for leaf in leaves(below, f"{prefix}.{key}" if prefix else str(key))]


class KeysAreThoseOfVerl(unittest.TestCase):
    """Our tables have every key of verl's configurations. Each of our keys is there, in a class of verl's, or by name in its code."""

    def table(self, name: str, below: str) -> dict[str, str]:
        return {f"{below}.{key}" if below else key: row for key, row in rows_of("verl_keys.cpp", name).items()}

    def check_keys(self, config: str, tables: dict[str, str]) -> None:
        from hydra import compose, initialize_config_module
        from omegaconf import OmegaConf

        with initialize_config_module(config_module="verl.trainer.config", version_base=None):
            real = set(leaves(OmegaConf.to_container(compose(config), resolve=False)))
        real = {key for key in real if not key.endswith("_target_")}
        ours: dict[str, str] = {}
        for name, below in tables.items():
            ours |= self.table(name, below)
        wild = tuple(key[:-1] for key in ours if key.endswith(".*"))
        groups = {key.removeprefix("hydra.") for key in ours if key.startswith("hydra.")}
        self.assertEqual(sorted(key for key in real - groups if key not in ours and not f"{key}.".startswith(wild)), [])
        named = {name for module in MODULES for name in self.fields_of(module)}
        named |= self.names_in_code()
        unknown = [key for key in ours if key not in real and not key.endswith(".*") and not key.startswith("hydra.")
                   and key.rsplit(".", 1)[-1] not in named and not any(f"{each}.".startswith(f"{key}.") for each in real)]  # fmt: skip
        self.assertEqual(unknown, [])

    def fields_of(self, module: str) -> set[str]:
        import dataclasses

        found = importlib.import_module(f"verl.{module}")
        return {f.name for each in vars(found).values() if dataclasses.is_dataclass(each) for f in dataclasses.fields(each)}

    def names_in_code(self) -> set[str]:
        """Names that the engine and the dataset read from a configuration of no fixed fields."""
        package = pathlib.Path(importlib.util.find_spec("verl").submodule_search_locations[0])
        files = ("utils/fsdp_utils.py", "workers/engine/fsdp/transformer_impl.py", "utils/dataset/multiturn_sft_dataset.py")
        code = "".join((package / file).read_text(encoding="utf-8") for file in files)
        return set(re.findall(r"""(?:get|_get_attr)\(\s*["'](\w+)["']""", code))

    def test_ppo(self) -> None:
        role = "actor_rollout_ref"
        self.check_keys("ppo_trainer", {"kVerlActorKeys": f"{role}.actor", "kVerlEngineKeys": f"{role}.actor.fsdp_config", "kVerlOptimizerKeys": f"{role}.actor.optim",
                                        "kVerlModelKeys": f"{role}.model", "kVerlReferenceKeys": f"{role}.ref", "kVerlRolloutKeys": f"{role}.rollout",
                                        "kVerlPpoDataKeys": "data", "kVerlPpoTrainerKeys": "trainer", "kVerlPpoKeys": ""})  # fmt: skip

    def test_sft(self) -> None:
        self.check_keys("sft_trainer_engine", {"kVerlEngineKeys": "engine", "kVerlOptimizerKeys": "optim", "kVerlModelKeys": "model", "kVerlSftKeys": ""})

    def test_usual_values(self) -> None:
        """What is predicted with one value only is verl's default, or switches nothing on."""
        import yaml

        file = importlib.util.find_spec("verl").submodule_search_locations[0]
        real = yaml.safe_load(pathlib.Path(file, "trainer/config/_generated_ppo_trainer.yaml").read_text(encoding="utf-8"))
        for key, row in self.table("kVerlRolloutKeys", "").items():
            usual = re.search(r'Usual,\s*"([^"]*)"', row)
            value = real["actor_rollout_ref"]["rollout"].get(key)
            if usual and value not in (None, False, "", [], {}):
                self.assertEqual(float(usual[1]), float(value), key)


if __name__ == "__main__":
    JobsOfVerl.program = str(pathlib.Path(sys.argv[2]).resolve())
    if any(importlib.util.find_spec(name) is None for name in ("verl", "flash_attn")):
        print("verl or flash-attn is not installed.")
        sys.exit(77)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if importlib.util.find_spec("flash_attn_2_cuda") is None:  # flash-attn's Python takes it for the compiled part.
        os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(HERE / "stand_ins")])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
