"""Trains plans whose batches differ in length with the real frameworks on the stub GPU, and holds each step of the predicted run
to the real one: allocated, reserved, and how often the cache was returned; on cards with room, too small for the cache, and
too small for the run.

    lengths_test.py STUB PRINT_LENGTH_RUN FSDP_PLAN [CASE...]      run by a Python that has torch
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
from dataclasses import replace
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[1] / "support")]
from command import answer  # noqa: E402
from plan_cases import BF16, MIXED, Case, checkpointed, write_case  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUB, PRINT, PROGRAM = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
WANTED = sys.argv[4:]
LIBRARY = ROOT / "model_specs"
AMPLE = 80 << 30
STEPS = 60
LIMIT_SECONDS = 900

EXPANDABLE = {"runtime": {"allocator_settings": "expandable_segments:True"}}
MASK = {"runtime": {"implementations": {"padding_mask": True}}}
FSDP1 = {"runtime": {"name": "pytorch-fsdp1"}}


def _ddp(name: str, model: str, ranks: int, plan: dict[str, Any], dimensions: dict[str, float]) -> Case:
    whole = {**plan, "runtime": {"name": "pytorch-ddp", **plan.get("runtime", {})}, "ddp": {}}
    return Case(name, model, 1, whole, dimensions, replicate=ranks, units=[{"modules": [""]}])


# "seq" is the longest length.
CASES = [
    Case("fsdp2_llama", "llama3_2_1b", 4, {**MIXED, "optimizer": {"clip_grad_norm": 1.0}}, {"batch": 2, "seq": 1536}),
    Case("fsdp2_llama_expandable", "llama3_2_1b", 8, {**MIXED, **EXPANDABLE}, {"batch": 4, "seq": 1024}),
    Case("fsdp2_qwen_accumulate", "qwen3_0_6b", 2, {**BF16, "accumulation": 3}, {"batch": 1, "seq": 2048}, replicate=2, rank=3),
    Case("fsdp2_qwen_checkpoint", "qwen3_0_6b", 16, {**MIXED, "activation_checkpointing": checkpointed("full")},
         {"batch": 2, "seq": 2048}, rank=15),
    Case("fsdp2_split", "llama3_2_1b", 2, {**MIXED, "runtime": {"allocator_settings": "max_split_size_mb:128"}},
         {"batch": 2, "seq": 1024}),
    Case("fsdp1_llama", "llama3_2_1b", 4, {**MIXED, **FSDP1}, {"batch": 2, "seq": 1024}),
    Case("fsdp1_qwen_expandable", "qwen3_0_6b", 2,
         {**MIXED, "runtime": {"name": "pytorch-fsdp1", "allocator_settings": "expandable_segments:True"}}, {"batch": 2, "seq": 1024}),
    _ddp("ddp_qwen", "qwen3_0_6b", 4, BF16, {"batch": 2, "seq": 1024}),
    _ddp("alone_gpt2", "gpt2", 1, {}, {"batch": 4, "seq": 512}),
    Case("fsdp2_llama_mask", "llama3_2_1b", 4, {**MIXED, **MASK}, {"batch": 2, "seq": 1024}),
    replace(_ddp("ddp_gpt2_mask", "gpt2", 2, MASK, {"batch": 4, "seq": 512}), allocated=1e-4, reserved=1e-4),
]
CASES = [replace(case, blocks="transformer.h.{0..%d}") if case.model == "gpt2" else case for case in CASES]


def lengths_of(case: Case) -> list[list[int]]:
    """The length of each micro-batch of each step: a few short ones, and seldom the longest."""
    drawn = random.Random(case.name)
    most = int(case.dimensions["seq"])
    choices = sorted({most, *(drawn.randrange(most // 8, most) for _ in range(11))})
    accumulation = case.plan.get("accumulation", 1)
    weights = [1 / (1 + place) for place in range(len(choices))]
    return [drawn.choices(choices, weights, k=accumulation) for _ in range(STEPS)]


def expand(case: Case, spec_file: pathlib.Path, length: int) -> dict[str, Any]:
    words = ["models", str(spec_file), "--expanded", "--json", "--flavor", case.flavor]
    for name, value in {**case.dimensions, "seq": length}.items():
        words += ["--set", f"{name}={value}"]
    has_mask = case.plan.get("runtime", {}).get("implementations", {}).get("padding_mask", False)
    return answer(PROGRAM, *words, *(["--padding-mask", "yes"] if has_mask else []))


def predicted(case: Case, plan_file: pathlib.Path, steps: list[list[int]], device: int) -> tuple[list[dict[str, int]], str]:
    ranks = case.replicate * case.shard
    done = subprocess.run([PRINT, LIBRARY / "clusters", plan_file, case.gpu, str(ranks), str(case.rank), str(device)], text=True,
                          input=" ".join(str(length) for step in steps for length in step), capture_output=True, check=True)
    *rows, end = done.stdout.splitlines()
    names = ("allocated", "reserved", "allocated_after", "reserved_after", "flushes")
    return [dict(zip(names, map(int, row.split()), strict=True)) for row in rows], end


def trained(case: Case, job: dict[str, Any], folder: pathlib.Path, device: int) -> dict[str, Any]:
    ranks = case.replicate * case.shard
    job_file, log = folder / "job.json", folder / "log.json"
    job_file.write_text(json.dumps({**job, "log": str(log)}), encoding="utf-8")
    log.unlink(missing_ok=True)
    path = os.pathsep.join([str(ROOT / "python" / "hook"), str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        **os.environ,
        "PYTHONPATH": path, "FSDP_REHEARSAL": "1", "FSDP_REHEARSAL_STUB": str(STUB), "FSDP_REHEARSAL_STEPS": "0",
        "FSDP_REHEARSAL_RECORD": str(folder / "record.json"), "OMP_NUM_THREADS": "1",
        "FSDP_REHEARSAL_RANK": str(case.rank), "FSDP_REHEARSAL_WORLD_SIZE": str(ranks),
        "RANK": str(case.rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(case.rank), "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "STUB_GPU_COUNT": str(ranks),
        "STUB_GPU_CUDNN_WORKSPACE_BYTES": "0", "STUB_GPU_EVENTS": "done", "STUB_GPU_BYTES": str(device)}
    done = subprocess.run([sys.executable, str(ROOT / "tests/rehearsal/length_runner.py"), str(job_file)], cwd=ROOT / "python",
                          env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if not log.is_file():
        raise AssertionError(f"no log, exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return json.loads(log.read_text(encoding="utf-8"))


class RunsOfDifferentLengths(unittest.TestCase):
    def check(self, case: Case) -> None:
        steps = lengths_of(case)
        lengths = sorted({length for step in steps for length in step})
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            spec_file, plan_file = write_case(case, LIBRARY, folder)
            ranks = case.replicate * case.shard
            plan = answer(PROGRAM, "simulate", str(plan_file), "--gpu", case.gpu, "--gpus", str(ranks), "--json")["plan"]
            job = {"models": [expand(case, spec_file, length) for length in lengths], "plan": plan,
                   "steps": [[lengths.index(length) for length in step] for step in steps]}
            rows, end = predicted(case, plan_file, steps, AMPLE)
            self.assertEqual(end, "done")
            reserved = max(row["reserved"] for row in rows)
            allocated = max(row["allocated"] for row in rows)
            # A card that has to return its cache, and one that is too small.
            between = max(allocated + (8 << 20), (reserved + allocated) // 2) & -(2 << 20)
            for device in (AMPLE, between, (allocated - (allocated >> 6)) & -(2 << 20)):
                with self.subTest(case.name, device=device):
                    self.compare(case, predicted(case, plan_file, steps, device), trained(case, job, folder, device), device)

    def compare(self, case: Case, prediction: tuple[list[dict[str, int]], str], log: dict[str, Any], device: int) -> None:
        rows, end = prediction
        flushes = sum(row["flushes"] for row in rows)
        if end == "out":  # The exception has let go of the step's tensors.
            for row in (rows[-1], log["steps"][-1]):
                row.update(allocated_after=0, reserved_after=0)
        different = [step for step, (ours, real) in enumerate(zip(rows, log["steps"], strict=False)) if ours != real]
        worst = max((abs(ours[kind] - real[kind]) / real[kind] for ours, real in zip(rows, log["steps"], strict=False)
                     for kind in ("allocated", "reserved")), default=0)
        print(f"{case.name:24} device {device:12} {len(rows):3} steps, {flushes:3} flushes, {end:4}: "
              f"{len(different)} steps differ, at most {100 * worst:.4f} %", flush=True)
        self.assertEqual(log["ooms"], int(end == "out"))
        self.assertEqual(len(rows), len(log["steps"]))
        for step, (ours, real) in enumerate(zip(rows, log["steps"], strict=True)):
            for kind, bound in (("allocated", case.allocated), ("allocated_after", case.allocated), ("reserved", case.reserved),
                                ("reserved_after", case.reserved), ("flushes", 0)):
                self.assertLessEqual(abs(ours[kind] - real[kind]), bound * real[kind], f"step {step}: {kind}: {ours} {real}")


for _case in CASES:
    if not WANTED or _case.name in WANTED:
        setattr(RunsOfDifferentLengths, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
