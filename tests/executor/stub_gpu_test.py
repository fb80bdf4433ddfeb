"""fsdp-exec on the stub GPU allocates, reserves and communicates as predicted, to the byte.

    stub_gpu_test.py FSDP_EXEC_CUDA FSDP_PLAN STUB [TRIAL...]

For initialization, the first step and the later ones it compares: the bytes that tensors request, those of the allocator's
blocks, the reserved bytes, and those in use on the device; every collective in order, as the executor reports it and as NCCL
was called; and the allocator model's replay of the recorded requests. LEFT has the remaining differences with their reasons;
they may neither grow nor shrink. Without FSDP_STUB_GPU=all it runs the trials that together cover every feature.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import re
import sys
import tempfile
import unittest
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from stub_gpu import KINDS, STEPS, StubRun, Trial, of_parity, of_plan  # noqa: E402
from stub_gpu_left import LEFT, NOT_COMPARED  # noqa: E402
from command import run  # noqa: E402
import parity_cases  # noqa: E402
import plan_cases  # noqa: E402

PROGRAM, PLANNER, STUB = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
WANTED = sys.argv[4:]
ALL = os.environ.get("FSDP_STUB_GPU") == "all"
ALWAYS = ("llama_hsdp", "llama_alone", "llama_accumulate_without_sync", "llama_reshard_to_2", "gpt2_fused_kept",
          "qwen3_tied_and_frozen", "qwen3_tts", "vit_sgd_momentum", "whisper_mixed", "llama_fp32_t4_0",
          "llama3_2_1b_mixed_precision", "llama3_2_1b_one_of_1024", "llama3_2_1b_one_of_1024_alone",
          "llama_accumulate_in_bf16_without_sync", "llama_offload", "llama_offload_clip", "qwen3_0_6b_checkpoint_full", "llama3_2_1b_checkpoint_selective",
          "llama3_2_1b_expandable", "called_twice")
OFFLOADED = {**parity_cases.MIXED, "cpu_offload": True}
ONE_OF_1024 = plan_cases.Case("one_of_1024", "llama3_2_1b", 1024, plan_cases.MIXED, {"batch": 1, "seq": 1024}, rank=5)


def called_twice() -> Trial:
    """A wide frozen block that runs twice in a row, so that the peak includes the first of its two gathers."""
    block = {"name": "block", "class": "Block", "inputs": {"x": "x"}, "outputs": {"y": "x"},
             "ops": [{"op": "linear", "module": "up", "inputs": ["x"], "out_features": 4096},
                     {"op": "linear", "module": "down", "out_features": 256, "outputs": ["y"]}]}
    head = {"name": "head", "class": "Head", "inputs": {"x": "x"}, "outputs": {"logits": "logits"},
            "ops": [{"op": "linear", "module": "out", "inputs": ["x"], "out_features": 9, "outputs": ["logits"]}]}
    spec = {"format_version": "1.0", "name": "Twice", "source": "this test", "dtype": "float32", "dimensions": {"batch": 2},
            "inputs": {"x": {"shape": ["batch", 256]}, "labels": {"shape": ["batch"], "dtype": "int64"}},
            "modules": [block, block, head, {"name": "", "block": "cross_entropy", "after_root": True}]}
    plan = {"format_version": "1.0", "model": {"name": "Twice", "file": "spec.json", "frozen": ["block"]},
            "mesh": {"replicate": 1, "shard": 4}, "units": [{"modules": ["block"]}, {"modules": [""]}]}
    return Trial("called_twice", plan, spec, 4)


def trials() -> list[Trial]:
    parity = {case.name: case for case in parity_cases.CASES}
    found = [of_parity(case) for case in parity_cases.CASES]
    found += [of_parity(parity[name], gpu, rank) for name, gpu, rank in (
        ("llama_fp32", "T4", 0), ("llama_fp32_of_3", "A100 80GB SXM", 2), ("llama_mixed_clip", "A100 80GB SXM", 1))]
    found += [of_plan(case) for case in plan_cases.CASES if case.name not in NOT_COMPARED]
    found += [of_plan(ONE_OF_1024), of_plan(ONE_OF_1024, name="llama3_2_1b_one_of_1024_alone", options=[])]
    offload = parity_cases.Case("llama_offload", "llama3_2_1b", 2, {**OFFLOADED, "accumulation": 2}, replicate=2)
    # The norms go over the host, where NCCL is not called.
    clip = parity_cases.Case("llama_offload_clip", "llama3_2_1b", 3, {**OFFLOADED, **parity_cases.CLIPPED})
    found += [of_parity(offload), dataclasses.replace(of_parity(clip), options=[])]
    mixed = next(case for case in plan_cases.CASES if case.name == "mixed_precision")
    expandable = of_plan(mixed, name="llama3_2_1b_expandable")
    expandable.plan["runtime"] = {"allocator_settings": "expandable_segments:True"}
    return [*found, expandable, called_twice()]


class MeasurementsMatchPredictions(unittest.TestCase):
    maxDiff = None

    def check(self, trial: Trial) -> None:
        run = StubRun(trial, PROGRAM, PLANNER, STUB)
        steady = run.collectives(run.measured)
        self.assertEqual(steady, run.collectives(run.predicted))
        if "--nccl-alone" in trial.options:
            self.assertEqual(run.called(), [entry[:4] for entry in steady] * STEPS)
        left = run.left()
        if "--nccl-alone" not in trial.options:  # Without communicators.
            left = {name: size for name, size in left.items() if not name.endswith("device")}
        expected = LEFT.get(trial.name, ("", {}))[1]
        print(f"{trial.name:40} {len(run.peaks()) - len(left)} of {len(run.peaks())} peaks equal, {len(steady)} collectives; "
              f"left: {left or 'nothing'}", flush=True)
        self.assertEqual(left, expected)
        for kind in ("requested", "allocated", "reserved"):
            highest = max(phase[KINDS[kind]] for phase in run.measured["memory"]["phases"].values())
            self.assertEqual(run.replayed[f"{kind}_peak_bytes"], highest, f"replayed: {kind}")


class EvaluationDoesNotChangeSteps(unittest.TestCase):
    """data_test.py checks its loss on CPU: the stub computes nothing."""

    maxDiff = None

    def check(self, case: str) -> None:
        trial = next(each for each in trials() if each.name == case)
        with tempfile.TemporaryDirectory() as name:
            tokens = pathlib.Path(name) / "tokens"
            tokens.write_bytes(bytes(2 * 100_000))
            trial.options += ["--tokens", str(tokens), "--evaluate", str(tokens), "--evaluate-every", "1",
                              "--evaluate-samples", str(2 * trial.ranks * trial.plan["model"]["dimensions"]["batch"])]
            run = StubRun(trial, PROGRAM, PLANNER, STUB)
        self.assertEqual(run.left(), LEFT.get(case, ("", {}))[1])
        steady = run.collectives(run.measured)
        self.assertEqual(steady, run.collectives(run.predicted))
        step = [entry[:4] for entry in steady]
        forward = [entry[:4] for entry in steady if entry[6] == "forward"]
        self.assertTrue(forward)
        of_one = forward[:len(forward) // trial.plan.get("accumulation", 1)]
        # Two rounds after each step.
        self.assertEqual(run.called(), (step + 2 * of_one) * STEPS)
        evaluation = run.measured["evaluation"]["live_peak_bytes"]
        self.assertLess(evaluation, run.measured["steps"][-1]["live_peak_bytes"])
        print(f"{case}: an evaluation takes {evaluation} bytes of {run.measured['steps'][-1]['live_peak_bytes']}", flush=True)

    def test_with_replicated_shard_groups(self) -> None:
        self.check("llama_hsdp")

    def test_with_checkpointing(self) -> None:
        self.check("llama_checkpointed")

    def test_with_units_that_stay_gathered(self) -> None:
        self.check("gpt2_fused_kept")

    def test_with_cpu_offload(self) -> None:
        self.check("llama_offload")


class BatchesArePinned(unittest.TestCase):
    def test_every_load_comes_from_pinned_memory(self) -> None:
        trial = next(each for each in trials() if each.name == "llama_fp32")
        shapes = [entry["shape"] for entry in trial.spec["inputs"].values()]
        sizes = trial.plan["model"]["dimensions"]
        batches = {8 * math.prod(sizes.get(size, size) for size in shape) for shape in shapes}  # int64.
        run = StubRun(trial, PROGRAM, PLANNER, STUB, STUB_GPU_TRACE="memory")
        copies = re.findall(r"(\d+) bytes to the card from (\w+) memory", run.printed)
        loaded = [where for size, where in copies if int(size) in batches]
        self.assertGreaterEqual(len(loaded), len(shapes) * STEPS)
        self.assertEqual(set(loaded), {"pinned"})


class HangingCollectives(unittest.TestCase):
    def test_collective_that_no_other_rank_joins_is_reported(self) -> None:
        trial = next(each for each in trials() if each.name == "llama_fp32")
        trial.options = ["--nccl-alone", "--timeout", "1"]
        with self.assertRaises(AssertionError) as failed:
            StubRun(trial, PROGRAM, PLANNER, STUB, STUB_GPU_FAULT="hang:2")
        said = str(failed.exception)
        self.assertIn("exit 3", said)
        self.assertIn("communicator 0: aborted", said)
        self.assertRegex(said, r"error: rank 0: step 1, instruction \d+ of \d+, Unshard .*: all-gather of \d+ bytes among 4 "
                               r"ranks has not ended after 1\.0 s")


class TheWholeCommand(unittest.TestCase):
    def execute(self, gpus: int) -> tuple[dict[str, Any], str]:
        """Two ranks of a plan, each a separate process, under fsdp-plan execute."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            environment = {"LD_PRELOAD": str(STUB), "STUB_GPU_COUNT": str(gpus), "OMP_NUM_THREADS": "1"}
            run(PLANNER, "mlp", "--gpu", "H100 SXM", "--gpus", "2", "-o", folder / "plan.json")
            _, printed = run(PLANNER, "execute", folder / "plan.json", "--device", "cuda", "--steps", "3", "--json",
                             "--run-dir", folder / "run", **environment)
            return json.loads(printed), (folder / "run" / "0.log").read_text(encoding="utf-8")

    def test_ranks_join_and_are_compared(self) -> None:
        report, said = self.execute(2)
        terms = report["comparison"]["terms"]
        wrong = [term["name"] for term in terms if term["difference"] != 0 and not term["name"].endswith("device peak")]
        self.assertEqual(wrong, [])
        self.assertIn("steady step: reserved peak", [term["name"] for term in terms])
        self.assertNotIn("note:", said)

    def test_ranks_that_share_a_gpu_get_a_note_on_times(self) -> None:
        self.assertIn("note: there are fewer GPUs than ranks", self.execute(1)[1])

    def test_the_program_for_cpu_loads_nothing_of_cuda(self) -> None:
        def loaded(program: pathlib.Path) -> str:
            return run(program, LD_TRACE_LOADED_OBJECTS="1")[1]

        for library in ("libtorch_cuda.so", "libc10_cuda.so", "libnccl.so"):
            self.assertIn(library, loaded(PROGRAM))
            self.assertNotIn(library, loaded(PROGRAM.with_name("fsdp-exec")))


for _trial in trials():
    if _trial.name in WANTED or not WANTED and (ALL or _trial.name in ALWAYS):
        setattr(MeasurementsMatchPredictions, f"test_{_trial.name}", lambda self, trial=_trial: self.check(trial))

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
