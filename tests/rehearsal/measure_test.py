"""`run` and `measure`: real ranks over Gloo, a real process group, a real training. A script under a plan moves what the plan
predicts, and trains to the losses of its own DDP. On the stub GPU, where there is memory to measure, it is that of a rehearsal.

    measure_test.py STUB FSDP_PLAN
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from types import SimpleNamespace

STUB = PROGRAM = ""
HERE = pathlib.Path(__file__).resolve()

SCRIPT = '''
import os
import sys
import torch
import torch.distributed as dist
from torch import nn

cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if cuda else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256, bias=False)

    def forward(self, x):
        return torch.relu(self.linear(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


torch.manual_seed(0)
model = Model().to(device)
if "fsdp" in sys.argv:
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
elif "plain" not in sys.argv:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(7):
    torch.manual_seed(100 * step + dist.get_rank())
    x, y = torch.randn(8, 256, device=device), torch.randint(0, 10, (8,), device=device)
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    if "raise" in sys.argv and step == 5:
        raise ValueError("no more data")
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"rank {dist.get_rank()} step {step} loss {loss.item():.9f}", flush=True)
dist.destroy_process_group()
'''
PARAMETERS = 4 * 256 * 256 + 256 * 10 + 10
ONE_RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")


class Measured(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        pathlib.Path(cls.folder, "train.py").write_text(SCRIPT, encoding="utf-8")
        done = cls.call("capture", "-o", "model.json", "--no-check", "--", sys.executable, *TORCHRUN)
        assert done.returncode == 0, done.stdout + done.stderr
        for name, gpus in (("plan", "2"), ("four", "4")):
            done = cls.call("model.json", "--gpus", gpus, "--gpu", "L4", "--strategy", "FULL_SHARD", "--wrap", "blocks",
                            "--activation-checkpointing", "full", "-o", f"{name}.json")
            assert done.returncode == 0, done.stdout + done.stderr

    @classmethod
    def call(cls, *words: str, **variables: str) -> subprocess.CompletedProcess:
        return subprocess.run([PROGRAM, *words], cwd=cls.folder, capture_output=True, text=True, check=False,
                              env={**os.environ, **variables})

    def losses(self, text: str) -> list[float]:
        """For both ranks, by step."""
        found = {(int(s), int(r)): float(loss) for r, s, loss in re.findall(r"rank (\d) step (\d) loss ([\d.]+)", text)}
        self.assertEqual(len(found), 14, text)
        return [found[key] for key in sorted(found)]

    def test_a_plan_moves_what_it_predicts_and_trains_the_same(self) -> None:
        alone = self.call("measure", "--json", "--", sys.executable, *TORCHRUN)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        totals = json.loads(alone.stdout)["traffic"]["totals"]
        # DDP sums every gradient once a step, and clips by what each rank has: nothing else is moved.
        self.assertEqual(totals["all_reduce"]["payload_bytes"], 4 * PARAMETERS, totals)
        self.assertEqual([k for k, v in totals.items() if v["count"]], ["all_reduce"], totals)

        # The plan's capture knows the command.
        planned = self.call("run", "plan.json", "--json", "--tolerance", "0")
        self.assertEqual(planned.returncode, 0, planned.stdout[-3000:] + planned.stderr)
        report = json.loads(planned.stdout)
        terms = {t["name"]: (t["predicted"], t["measured"]) for t in report["comparison"]["terms"]}
        self.assertGreater(terms["all_gather count"][1], 4)
        self.assertGreater(terms["reduce_scatter payload"][1], 4 * 4 * 256 * 256)
        self.assertGreater(report["time"]["step"], 0)
        for ddp, fsdp in zip(self.losses(alone.stderr), self.losses(planned.stderr)):
            self.assertAlmostEqual(ddp, fsdp, delta=2e-6)

    def test_plan_that_cannot_be_applied_lists_its_reasons(self) -> None:
        done = self.call("run", "four.json", "--", sys.executable, *TORCHRUN)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("The mesh has 4 ranks, and the script's process group has 2.", done.stderr)

    def test_failed_script_shows_its_error_and_verdict(self) -> None:
        done = self.call("measure", "--", sys.executable, "train.py", "raise", **ONE_RANK)
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn("no more data", done.stderr)
        self.assertIn("FAILED", done.stdout)
        nothing = self.call("measure", "--", sys.executable, "-c", "print(1)")
        self.assertEqual(nothing.returncode, 3, nothing.stdout)
        self.assertIn("No torch.optim optimizer stepped", nothing.stderr)
        missing = self.call("measure", "--", "no-such-program")
        self.assertEqual(missing.returncode, 2, missing.stderr)

    def test_memory_matches_a_rehearsal(self) -> None:
        card = {"STUB_GPU_COUNT": "1", "STUB_GPU_NAME": "NVIDIA L4", "STUB_GPU_COMPUTE_CAPABILITY": "89"}
        words = ("--json", "--steps", "6", "--", sys.executable, "train.py", "fsdp")
        measured = self.call("measure", *words, LD_PRELOAD=STUB, **ONE_RANK, **card)
        self.assertEqual(measured.returncode, 0, measured.stderr)
        rehearsed = self.call("rehearse", "--gpu", "L4", "--gpus", "1", *words)
        self.assertEqual(rehearsed.returncode, 0, rehearsed.stderr)
        self.assertNotIn("step 6", measured.stderr)
        ours, theirs = (json.loads(each.stdout)["memory"] for each in (measured, rehearsed))
        for name in ("live_peak_bytes", "allocated_peak_bytes", "reserved_peak_bytes"):
            self.assertEqual(ours[name], theirs[name], name)
            for phase in ("initialization", "first_step", "steady_step"):
                self.assertEqual(ours["phases"][phase][name], theirs["phases"][phase][name], f"{phase}: {name}")


class Profile(unittest.TestCase):
    """What is made of the profiler's events."""

    @classmethod
    def setUpClass(cls) -> None:
        sys.path.insert(0, str(HERE.parents[2] / "python"))

    def test_uncovered_communication_is_exposed(self) -> None:
        from fsdp_measure.profiled_step import communication_of

        kernels = [("ncclDevKernel_AllGather", 0, 100), ("gemm", 40, 60), ("gemm", 50, 80), ("ncclDevKernel_Sum", 90, 150),
                   ("copy", 150, 400), ("ncclDevKernel_AllGather", 200, 300)]
        found = communication_of(kernels)
        self.assertAlmostEqual(found["busy"] * 1e9, 250)
        self.assertAlmostEqual(found["exposed"] * 1e9, 150 - 40)
        self.assertEqual(communication_of([]), {"busy": 0, "exposed": 0})

    def test_lists_of_tensors_and_groups_are_read(self) -> None:
        import torch

        from fsdp_measure.profiled_step import collectives_of

        def tensor(*shape, dtype=torch.float32):
            return SimpleNamespace(sizes=list(shape), dtype=dtype)

        def event(name, inputs, begin, children=()):
            return SimpleNamespace(name=name, typed=("op", SimpleNamespace(inputs=inputs)), children=list(children),
                                   start_time_ns=begin)

        gather = event("c10d::_allgather_base_", [tensor(64, dtype=torch.bfloat16), tensor(8, dtype=torch.bfloat16), None], 5)
        reduce = event("c10d::allreduce_", [[tensor(3, 2), tensor(4)], None], 2)
        rows = collectives_of([event("aten::mm", [], 1, [gather]), reduce], 16)
        self.assertEqual([(r["kind"], r["elements"], r["payload_bytes"], r["group_size"], r["dtype"]) for r in rows],
                         [("all_reduce", 10, 40, 16, "float32"), ("all_gather", 64, 128, 8, "bfloat16")])


class Records(unittest.TestCase):
    """Which processes leave one: those that train, and ranks that fail before."""

    @classmethod
    def setUpClass(cls) -> None:
        sys.path.insert(0, str(HERE.parents[2] / "python"))

    def job(self, folder: str, calls: int = 0, exception: object = None, **variables: str):
        from fsdp_measure.job import Job

        argv = ["python", "-m", "torch.distributed.run", "train.py"] if not variables else ["python", "train.py"]
        with unittest.mock.patch.dict(os.environ, variables), unittest.mock.patch.object(sys, "orig_argv", argv):
            job = Job(folder)
            job.steps, job.phases = SimpleNamespace(calls=calls), SimpleNamespace(phase="initialization")
            job.faults = SimpleNamespace(exception=exception)
            return job, job._is_worth_a_record()

    def test_only_training_or_failed_ranks_write_records(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            failed = {"type": "ValueError"}
            self.assertFalse(self.job(folder)[1], "a launcher")
            self.assertFalse(self.job(folder, exception=failed)[1], "a launcher whose rank failed")
            self.assertTrue(self.job(folder, RANK="3", exception=failed)[1], "a rank that failed")
            self.assertFalse(self.job(folder, RANK="3")[1], "a rank that did nothing")
            worker = {"RANK": "3", "FSDP_MEASURE_FIRST_OF_3": "1"}
            self.assertFalse(self.job(folder, exception=failed, **worker)[1], "a worker of a rank")
            trained, is_worth = self.job(folder, calls=1, **worker)
            self.assertTrue(is_worth and trained._path().endswith("rank-3.json"), "a rank behind another program")
            pathlib.Path(folder, "rank-3.json").write_text("{}", encoding="utf-8")
            self.assertFalse(self.job(folder, RANK="3", exception=failed)[1], "somebody has written")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(2))
    STUB = os.path.abspath(sys.argv.pop(1))
    unittest.main()
