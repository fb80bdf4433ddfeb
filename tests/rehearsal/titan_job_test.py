#!/usr/bin/env python3
"""A configuration of torchtitan, read without running it, held to its rehearsal by torchtitan's own Trainer: collectives are equal, and
so is memory. Our tables of keys and of configurations are those of the library.

    titan_job_test.py STUB PROGRAM ENVIRONMENTS [unittest options]

Needs ./scripts/rehearsal_env torchtitan for 0.2.2, and torch-2.15.0 torchtitan-0.3 for 0.3.0; exits with 77 without one of them.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest
from dataclasses import dataclass

from job_tables import ROOT
from transformers_plans import TransformersPlans

HERE = pathlib.Path(__file__).resolve().parent
ENVIRONMENTS = pathlib.Path(sys.argv[3])
OLDER = ENVIRONMENTS / "torchtitan" / "bin" / "python"
NEWER = ENVIRONMENTS / "torch-2.15.0" / "bin" / "python"
PACKAGES = next(iter((ENVIRONMENTS / "torchtitan-0.3").glob("lib/python3*/site-packages")), pathlib.Path())
# The Trainer reads its own tokenizer and data set, which titan_assets.py makes.
TOML = """[model]
name = "{name}"
flavor = "{flavor}"
hf_assets_path = "tests/assets/tokenizer"
{converters}
[training]
dataset = "c4_test"
{training}
[parallelism]
{parallelism}
[activation_checkpoint]
{checkpoint}
[optimizer]
{optimizer}
"""
DATA = "--hf_assets_path tests/assets/tokenizer --dataloader.dataset c4_test --metrics.log_freq 10"  # Losses that it logs are collectives.
SELECTIVE = 'mode = "selective"\nselective_ac_option = "op"'


@dataclass
class Job:
    name: str
    gpus: int
    line: str = ""  # Arguments of 0.3.0. Without them it is a TOML.
    model: tuple[str, str] = ("llama3", "8B")
    training: str = "local_batch_size = 1\nseq_len = 4096"
    parallelism: str = ""
    checkpoint: str = SELECTIVE
    optimizer: str = ""
    converters: str = ""
    bounds: tuple[float, float, float] = (0.001, 0.001, 0.03)

    def words(self, folder: pathlib.Path) -> list[str]:
        if self.line:
            return [str(NEWER), "-m", "torchtitan.train", *shlex.split(f"{DATA} {self.line}")]
        text = TOML.format(name=self.model[0], flavor=self.model[1], training=self.training, parallelism=self.parallelism,
                           checkpoint=self.checkpoint, optimizer=self.optimizer, converters=self.converters)  # fmt: skip
        (folder / "train.toml").write_text(text, encoding="utf-8")
        return [str(OLDER), "-m", "torchtitan.train", "--job.config_file", "train.toml"]


TIED = "--parallelism.spmd_backend partial_dtensor"
EAGER = "--training.disable_cuda_graphs --training.seq_len 4096"
JOBS = [
    Job("toml selective", 8),
    Job("toml copies", 16, parallelism="data_parallel_replicate_degree = 2", checkpoint='mode = "full"'),
    Job("toml always", 4, training="local_batch_size = 1\nseq_len = 2048", parallelism='fsdp_reshard_after_forward = "always"',
        checkpoint='mode = "none"', optimizer='implementation = "foreach"'),
    Job("toml never", 8, training="local_batch_size = 2\nseq_len = 2048\nglobal_batch_size = 32",
        parallelism='fsdp_reshard_after_forward = "never"'),
    Job("toml half", 8, model=("qwen3", "14B"), training='local_batch_size = 1\nseq_len = 4096\ndtype = "bfloat16"',
        checkpoint='mode = "full"', optimizer='name = "Adam"', bounds=(0.005, 0.005, 0.03)),
    Job("toml float8", 8, converters='converters = ["quantize.linear.float8"]\n[quantize.linear.float8]\nfilter_fqns = ["output"]\n'
        "enable_fsdp_float8_all_gather = true\nprecompute_float8_dynamic_scale_for_fsdp = true"),
    Job("toml float8 rows", 4, converters='converters = ["quantize.linear.float8"]\n[quantize.linear.float8]\nrecipe_name = "rowwise"',
        training="local_batch_size = 1\nseq_len = 2048", checkpoint='mode = "full"'),
    Job("line selective", 8, f"--module llama3 --config llama3_8b {EAGER}"),
    Job("line full", 8, "--module qwen3 --config qwen3_14b --training.disable_cuda_graphs --training.local_batch_size 1"),
    Job("line tied", 4, f"--module qwen3 --config qwen3_0_6b --training.disable_cuda_graphs {TIED}"),
    Job("line copies", 16, f"--module llama3 --config llama3_8b {EAGER} --parallelism.data_parallel_replicate_degree 2"),
    Job("line none", 8, f"--module llama3 --config llama3_8b {EAGER} activation-checkpoint:none"),
    Job("line graphs", 8, "--module llama3 --config llama3_8b --training.seq_len 4096"),
    Job("line graphs tied", 4, f"--module qwen3 --config qwen3_1_7b {TIED}"),
]  # fmt: skip


class JobsOfTorchtitan(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        subprocess.run([str(OLDER), str(HERE / "frameworks/titan_assets.py")], cwd=cls.folder, check=True)
        # torchtitan's own environment has no torchao.
        cls.lent = cls.folder / "lent"
        cls.lent.mkdir()
        for package in (ENVIRONMENTS / "finetuning").glob("lib/python3*/site-packages/torchao*"):
            (cls.lent / package.name).symlink_to(package)

    def check(self, job: Job) -> None:
        if job.converters and not any(self.lent.iterdir()):
            self.skipTest("Needs torchao: ./scripts/rehearsal_env finetuning")
        self.hold(job, job.words(self.folder))

    def hold(self, job: Job, words: list[str]) -> None:
        """A line, or train.toml, to its rehearsal."""
        gpus = ("--gpus", str(min(job.gpus, 8)), "--nodes", str(max(1, job.gpus // 8)), "--gpu", "H100 SXM")
        os.environ["PYTHONPATH"] = str(PACKAGES) if job.line else str(self.lent) if job.converters else ""
        # A line that is read, and a file.
        said = ("--", *words) if job.line else ("train.toml",)
        self.run_program("plan", *gpus, "--force", "--quiet", "-o", "plan.json", *said)
        predicted = json.loads(self.run_program("simulate", "plan.json", "--rank", "0", "--json"))
        measured = json.loads(self.run_program("rehearse", *gpus, "--json", "--", *words))
        # The Trainer draws initial weights there; its first step compiles attention.
        measured["memory"]["phases"].pop("initialization", None)
        self.compare(job, measured, predicted)


for each in JOBS:
    setattr(JobsOfTorchtitan, "test_" + each.name.replace(" ", "_"), lambda self, job=each: self.check(job))


@dataclass
class Use(Job):
    changes: tuple[str, ...] = ()  # The keys that change.
    options: tuple[str, ...] = ()


USES = [
    Use("toml faster", 8, training="local_batch_size = 2  # rows\nseq_len = 2048", checkpoint='mode = "full"',
        changes=("activation_checkpoint.mode",), options=("--batch", "2")),
    Use("toml less memory", 8, training="local_batch_size = 2\nseq_len = 2048", checkpoint='mode = "none"',
        changes=("activation_checkpoint.mode", "training.local_batch_size", "training.global_batch_size"), options=("--objective", "memory")),
    Use("line kept", 8, f"--module llama3 --config llama3_8b {EAGER}", changes=("--parallelism.fsdp_reshard_after_forward",),
        options=("--reshard", "false", "--shard", "8")),
]  # fmt: skip


class ChangedConfigurationsOfTorchtitan(JobsOfTorchtitan):
    """The changed configuration trains the plan that chose it."""

    def check(self, job: Use) -> None:  # type: ignore[override]
        words = job.words(self.folder)
        os.environ["PYTHONPATH"] = str(PACKAGES) if job.line else ""
        wanted = ("--gpus", str(job.gpus), "--gpu", "H100 SXM", *job.options)
        said = ("--", *words) if job.line else ("train.toml",)
        use = json.loads(self.run_program("plan", *wanted, "--json", *said))["use"]
        self.assertLessEqual(set(job.changes), {change["key"] for change in use["changes"]})
        if job.line:
            words = self.run_program("plan", *wanted, "--diff", *said).splitlines()[0].removeprefix("run: ").split()
        else:
            self.run_program("plan", *wanted, "--write", "changed.toml", *said)
            (self.folder / "changed.toml").replace(self.folder / "train.toml")
        self.hold(job, words)


for other in JOBS:
    setattr(ChangedConfigurationsOfTorchtitan, "test_" + other.name.replace(" ", "_"), None)
for each in USES:
    setattr(ChangedConfigurationsOfTorchtitan, "test_" + each.name.replace(" ", "_"), lambda self, job=each: self.check(job))


class ExportsAreReadByTorchtitan(TransformersPlans):
    """`export --to torchtitan` of a plan: torchtitan reads it, and we read from that the same plan."""

    def test_plans_come_back(self) -> None:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(PACKAGES), str(self.folder)])
        for line, gpus in ((f"--module llama3 --config llama3_8b {EAGER} --parallelism.fsdp_reshard_after_forward always", "8"),
                           (f"--module qwen3 --config qwen3_0_6b --training.seq_len 2048 {TIED}", "4"),
                           ("--module qwen3 --config qwen3_32b --training.disable_cuda_graphs --training.global_batch_size 32", "8"),
                           ("--module llama3 --config llama3_8b activation-checkpoint:none", "8")):  # fmt: skip
            with self.subTest(line):
                self.assertEqual(self.planned(gpus, line, "one.json"), self.exported(gpus))

    def planned(self, gpus: str, line: str, name: str) -> dict[str, object]:
        words = [str(NEWER), "-m", "torchtitan.train", *shlex.split(line)]
        self.run_program("plan", "--gpus", gpus, "--gpu", "H100 SXM", "--force", "--quiet", "-o", name, "--", *words)
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def exported(self, gpus: str) -> dict[str, object]:
        text = self.run_program("export", "one.json", "--to", "torchtitan")
        (self.folder / "exported.py").write_text(text, encoding="utf-8")
        return self.planned(gpus, "--module exported --config planned", "two.json")


FIELDS = """
import dataclasses, json
from torchtitan.config.job_config import JobConfig

def flat(value, prefix=""):
    for field in dataclasses.fields(value):
        mine = getattr(value, field.name)
        if dataclasses.is_dataclass(mine):
            yield from flat(mine, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, mine

print(json.dumps(dict(flat(JobConfig()))))
"""
FIELDS_3 = """
import dataclasses, json
from torchtitan.distributed.activation_checkpoint import MemoryBudgetAC
from torchtitan.models.llama3.config_registry import llama3_8b

def flat(value, prefix=""):
    for field in dataclasses.fields(value):
        mine = getattr(value, field.name)
        if dataclasses.is_dataclass(mine) and dataclasses.fields(mine):
            yield from flat(mine, f"{prefix}{field.name}.")
        elif field.name != "model_spec":
            yield prefix + field.name, mine if isinstance(mine, (int, float, str)) else ""

config = llama3_8b()
config.model_spec = None
found = dict(flat(config))
found.update({"activation_checkpoint." + name: "" for name, _ in flat(MemoryBudgetAC.Config())})
print(json.dumps(found))
"""
REGISTRIES = """
import importlib, json, sys
import torch
import torchtitan.tools.utils
# Configurations in narrow formats ask for a card that has them.
torchtitan.tools.utils.has_cuda_capability = lambda *numbers: True
torch.cuda.get_device_capability = lambda *device: (10, 0)
from fsdp_torchtitan.read_config import read

found = {}
for module in ("llama3", "qwen3"):
    registry = importlib.import_module(f"torchtitan.models.{module}.config_registry")
    for name, function in vars(registry).items():
        if name[0].islower() and callable(function) and function.__module__ == registry.__name__:
            found[f"{module} {name}"] = read(["--module", module, "--config", name])
print(json.dumps(found))
"""


class TablesAreThoseOfTorchtitan(unittest.TestCase):
    """Our tables have every key of the real classes and no other, and the configurations of its registries."""

    def ask(self, python: pathlib.Path, program: str, path: str = "") -> dict[str, object]:
        done = subprocess.run([str(python), "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def rows(self, name: str) -> dict[str, str]:
        """The rows of one of the two tables."""
        text = (ROOT / "planner/jobs/titan_keys.cpp").read_text(encoding="utf-8")
        part = text.split(f"constexpr JobKey {name}[] = {{")[1].split("\n};")[0] + "\n"
        return dict(re.findall(r'^ +\{"([a-z_0-9.]+)"(.*?)\},$', part, re.MULTILINE | re.DOTALL))

    def compare(self, ours: dict[str, str], real: dict[str, object]) -> None:
        self.assertEqual({key for key in ours if not any(other.startswith(f"{key}.") for other in [*ours, *real])}, set(real))
        for key, row in ours.items():
            usual = re.search(r'Usual,\s*"([^"]+)"', row)
            if usual:
                self.assertEqual(usual[1], str(real[key]), key)

    def test_keys_of_the_toml(self) -> None:
        self.compare(self.rows("kTitanTomlKeys"), self.ask(OLDER, FIELDS))

    def test_keys_of_configurations(self) -> None:
        ours = self.rows("kTitanConfigKeys")
        for key in [key for key in ours if key.endswith("class") or key.startswith("model_spec")]:
            del ours[key]  # What read_config.py adds.
        self.compare(ours, self.ask(NEWER, FIELDS_3, str(PACKAGES)))

    def test_registries(self) -> None:
        finetuning = next(iter((ENVIRONMENTS / "finetuning").glob("lib/python3*/site-packages")), pathlib.Path())
        real = self.ask(NEWER, REGISTRIES, os.pathsep.join(map(str, [PACKAGES, ROOT / "python", finetuning])))
        text = (ROOT / "planner/jobs/titan_registry.cpp").read_text(encoding="utf-8")
        ours = {f"{module} {name}": json.loads(found) for module, name, found in
                re.findall(r'\{"(\w+)", "(\w+)",\s+R"\((.*?)\)"\}', text, re.DOTALL)}  # fmt: skip
        read = {key for key, row in self.rows("kTitanConfigKeys").items() if row.strip(", ")}
        self.assertEqual(set(ours), set(real))
        for name, found in real.items():
            self.assertEqual(ours[name], only(found, read), name)


def only(found: dict[str, object], keys: set[str], prefix: str = "") -> dict[str, object]:
    """The members that decide something; an AdamW is the default."""
    result: dict[str, object] = {}
    for name, value in found.items():
        key = prefix + name
        if isinstance(value, dict):
            if inner := only(value, keys, f"{key}."):
                result[name] = inner
        elif key in keys and (key, value) != ("optimizer.param_groups", ["AdamW"]):
            result[name] = value
    return result


if __name__ == "__main__":
    TransformersPlans.program = str(pathlib.Path(sys.argv[2]).resolve())
    if not OLDER.is_file() or not NEWER.is_file() or not PACKAGES.is_dir():
        print("Write: ./scripts/rehearsal_env torchtitan torch-2.15.0 torchtitan-0.3 finetuning", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
