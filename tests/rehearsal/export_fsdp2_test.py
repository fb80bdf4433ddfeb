"""`export PLAN --to fsdp2` and `--to fsdp1`: what it writes is run. A script that calls the exported function is rehearsed with the
real FSDP2 or FSDP1, and held against the prediction of the plan that was exported.

    export_fsdp2_test.py STUB FSDP_PLAN
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""


SCRIPT = '''
import sys
import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, {folder!r})
from exported import apply_plan


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(512, 512, bias=False)

    def forward(self, x):
        return torch.relu(self.linear(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.float().pow(2).mean()


dist.init_process_group("nccl")
torch.cuda.set_device(0)
model = apply_plan(Model().cuda())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(12):
    model(torch.randn(8, 512, device="cuda")).backward()
    optimizer.step()
    optimizer.zero_grad()
'''

CAPTURED = SCRIPT.replace("from exported import apply_plan", "apply_plan = lambda model: model").replace(
    'dist.init_process_group("nccl")\ntorch.cuda.set_device(0)\n', "")


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        for name, text in (("train.py", SCRIPT), ("plain.py", CAPTURED)):
            with open(f"{cls.folder}/{name}", "w", encoding="utf-8") as out:
                out.write(text.replace("{folder!r}", repr(cls.folder)))
        cls.run_program(
            "capture", "-o", "model.json", "--no-check", "--", sys.executable, "plain.py")

    @classmethod
    def run_program(cls, *words: str) -> str:
        done = subprocess.run([PROGRAM, *words], cwd=cls.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def compared(self, *choices: str, runtime: str = "fsdp2", fsdp1: dict[str, object] | None = None) -> tuple[str, dict[str, tuple[int, int]]]:
        self.run_program("model.json", "--gpus", "4", "--gpu", "H100 SXM", "--force", "-o", "plan.json", "--runtime", runtime, *choices)
        if fsdp1:
            path = pathlib.Path(self.folder, "plan.json")
            plan = json.loads(path.read_text(encoding="utf-8"))
            plan["fsdp1"].update(fsdp1)
            path.write_text(json.dumps(plan), encoding="utf-8")
        code = self.run_program("export", "plan.json", "--to", runtime)
        with open(f"{self.folder}/exported.py", "w", encoding="utf-8") as out:
            out.write(code)
        answer = self.run_program(
            "rehearse", "--compare-with", "plan.json", "--gpus", "4", "--gpu", "H100 SXM", "--record-stream", "done", "--json", "--",
            sys.executable, "train.py")
        # Progress of a slow machine comes after it.
        report, _ = json.JSONDecoder().raw_decode(answer[answer.index("{"):])
        terms = report["comparison"]["terms"]
        return code, {t["name"]: (t["predicted"], t["measured"]) for t in terms}

    def expect_equal(self, terms: dict[str, tuple[int, int]], bound: int = 512) -> None:
        for name, (predicted, measured) in terms.items():
            if name.endswith(("count", "payload")):
                self.assertEqual(predicted, measured, name)
            elif name in ("steady step: live peak", "steady step: allocated peak"):
                self.assertLessEqual(abs(predicted - measured), bound, name)
        self.assertIn("all_gather count", terms)

    def test_units_in_rows(self) -> None:
        code, terms = self.compared("--strategy", "FULL_SHARD", "--wrap", "blocks", "--activation-checkpointing", "none")
        self.assertIn('for i in range(6):\n        shard(f"layers.{i}", reshard_after_forward=True)', code)
        self.expect_equal(terms)

    def test_units_of_several_modules_checkpointed_in_two_groups(self) -> None:
        code, terms = self.compared(
            "--shard", "2", "--replicate", "2", "--wrap", "4", "--activation-checkpointing", "full", "--reshard", "false")
        self.assertIn("range(first, min(first + 4, 6))", code)
        self.assertIn('(2, 2), mesh_dim_names=("replicate", "shard")', code)
        self.assertIn('*(f"layers.{i}" for i in range(6)),', code)
        self.expect_equal(terms)

    def test_mixed_precision_with_prefetch(self) -> None:
        code, terms = self.compared(
            "--strategy", "FULL_SHARD", "--wrap", "blocks", "--precision", "mixed", "--prefetch", "1",
            "--activation-checkpointing", "none")
        self.assertIn("MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)", code)
        self.assertIn("set_modules_to_forward_prefetch", code)
        self.expect_equal(terms)

    def test_flat_parameters_of_each_block(self) -> None:
        code, terms = self.compared("--strategy", "FULL_SHARD", "--wrap", "blocks", "--activation-checkpointing", "none", runtime="fsdp1")
        self.assertIn('for i in range(6):\n        wrap(f"layers.{i}")', code)
        self.assertIn("sharding_strategy=ShardingStrategy.FULL_SHARD,", code)
        self.expect_equal(terms)

    def test_hybrid_flat_parameters_mixed_and_checkpointed(self) -> None:
        code, terms = self.compared(
            "--shard", "2", "--replicate", "2", "--reshard", "false", "--wrap", "blocks", "--precision", "mixed",
            "--activation-checkpointing", "full", runtime="fsdp1",
            fsdp1={"backward_prefetch": "post", "limit_all_gathers": False, "use_orig_params": True})  # fmt: skip
        self.assertIn("ShardingStrategy._HYBRID_SHARD_ZERO2", code)
        self.assertIn("backward_prefetch=BackwardPrefetch.BACKWARD_POST,", code)
        self.assertIn("MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=True,", code)
        self.expect_equal(terms, 8192)  # The captured loss is a float already, and not one that was cast: 8 x 512 in bf16.

    def test_one_replicated_flat_parameter(self) -> None:
        code, terms = self.compared("--strategy", "NO_SHARD", "--wrap", "root", "--activation-checkpointing", "none", runtime="fsdp1",
                                    fsdp1={"backward_prefetch": "none", "forward_prefetch": True})
        self.assertNotIn("def wrap", code)
        self.assertIn("backward_prefetch=None,\n        forward_prefetch=True,", code)
        for name, (predicted, measured) in terms.items():
            if name.endswith(("count", "payload")):
                self.assertEqual(predicted, measured, name)
        self.assertIn("all_reduce count", terms)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(2))
    del sys.argv[1]
    unittest.main()
