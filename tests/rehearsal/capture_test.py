"""Captures scripts that know nothing of it (scripts/decoder.py), plans the captures, puts the plans into the scripts with the
real FSDP2, and holds the predictions to what PyTorch then does.

    capture_test.py STUB FSDP_PLAN      run by a Python that has torch
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Any

from said import without_progress

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = pathlib.Path(__file__).resolve().parent / "scripts" / "decoder.py"
STUB, PROGRAM = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
LIMIT_SECONDS = 900
MACHINES = ("--gpu", "H100 SXM", "--gpus", "4")
PHASES = ("first_step", "steady_step")


def most_off(seen: int) -> float:
    return 512 + 0.0005 * seen


class CapturedScripts(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        shutil.copy(SCRIPT, self.folder / "train.py")

    def run_program(self, *words: str) -> tuple[int, str, str]:
        environment = {**os.environ, "FSDP_PLAN_MODEL_SPECS": str(ROOT / "model_specs"), "FSDP_PLAN_STUB_GPU": str(STUB),
                       "FSDP_PLAN_PYTHON_PATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        done = subprocess.run([str(PROGRAM), *words], capture_output=True, text=True, cwd=self.folder, env=environment,
                              timeout=LIMIT_SECONDS, check=False)
        return done.returncode, done.stdout, without_progress(done.stderr)

    def capture(self, *script: str, options: tuple[str, ...] = ("--no-check",), launcher: tuple[str, ...] = (),
                name: str = "model.json") -> str:
        code, out, said = self.run_program("capture", "-o", name, *options, "--", sys.executable, *launcher, "train.py", *script)
        self.assertEqual((code, said), (0, ""), out)
        self.assertIn(f"CAPTURED  {name}", out)
        return out

    def plan(self, *options: str) -> dict[str, Any]:
        code, _, said = self.run_program("model.json", *MACHINES, *options, "-o", "plan.json")
        self.assertEqual(code, 0, said)
        return json.loads((self.folder / "plan.json").read_text(encoding="utf-8"))

    def check(self, *words: str) -> dict[str, Any]:
        """Rehearses the plan in the script, compares with the prediction; returns the report."""
        code, out, said = self.run_program("rehearse", "--json", *(words or ("plan.json",)))
        self.assertEqual((code, said), (0, ""))
        measured = json.loads(out)
        predicted = json.loads(self.run_program("simulate", "plan.json", "--json")[1])

        def sent(report: dict[str, Any]) -> list[tuple[Any, ...]]:
            return [(c["kind"], c["elements"], c["dtype"], c["group_size"]) for c in report["traffic"]["collectives"]]

        self.assertEqual(sent(measured), sent(predicted))
        for phase in PHASES:
            for kind in ("live_peak_bytes", "allocated_peak_bytes"):
                seen, said_before = (r["memory"]["phases"][phase][kind] for r in (measured, predicted))
                print(f"{self.id().rpartition('.')[2]:44} {phase:12} {kind:20} {seen:12} {said_before:12} "
                      f"{said_before - seen:+}", flush=True)
                with self.subTest(phase=phase, kind=kind):
                    self.assertLessEqual(abs(said_before - seen), most_off(seen))
        return measured

    def test_a_plan_chooses_among_the_batches(self) -> None:
        shown = self.capture(options=("--no-check", "--batch-option", "--batch-size {}", "--batches", "1,4"))
        self.assertIn("batch 4, seq 128; batch 1, seq 128", shown)
        plan = self.plan("--global-batch", "8")  # 8 samples on 4 GPUs are 2 for each, and 4 is too many
        self.assertEqual((plan["model"]["dimensions"]["batch"], plan["accumulation"]), (1, 2))
        plan = self.plan("--global-batch", "16", "--force")
        self.assertEqual((plan["model"]["dimensions"]["batch"], plan["accumulation"]), (4, 1))
        report = self.check()
        self.assertEqual(report["rehearsal"]["command"][-2:], ["--batch-size", "4"])

    def test_step_that_makes_states_is_not_recorded(self) -> None:
        self.capture("states_first")
        self.assertEqual(self.plan("--strategy", "FULL_SHARD")["accumulation"], 1)

    def test_bfloat16_of_a_script_in_float32(self) -> None:
        shown = self.capture("plain", "--dtype", "float32")
        self.assertIn("float32, float32 checkpointed, bfloat16, bfloat16 checkpointed", shown)
        plan = self.plan("--precision", "mixed", "--batch", "2", "--strategy", "FULL_SHARD")
        self.assertEqual((plan["parameter_dtype"], plan["mixed_precision"]["param_dtype"]), ("float32", "bfloat16"))
        self.check()

    def test_products_under_autocast_use_their_compute_dtype(self) -> None:
        self.capture("autocast", "--dtype", "float32")
        path = self.folder / "model.json"
        model = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual((model["matmul_allow_tf32"], model["cudnn_allow_tf32"]), (True, True))
        tapes = [(tape, block) for point in model["points"] for block in point["blocks"] for tape in block["tapes"]]
        for tape, block in tapes:
            found = tape.pop("arithmetic", [None] * len(block["ops"]))
            for op, work, dtype in zip(block["ops"], tape["work"], found, strict=True):
                computes = any(work[:3]) and tape["dtype"] == "float32"
                self.assertEqual(dtype, "bfloat16" if computes else None, op["name"])
        self.plan("--strategy", "NO_SHARD")
        times = []
        for text in (None, json.dumps(model)):
            if text is not None:
                path.write_text(text, encoding="utf-8")
            times.append(json.loads(self.run_program("simulate", "plan.json", "--json")[1])["time"])
        self.assertLess(times[0]["compute"], times[1]["compute"])
        self.check()

    def test_a_script_with_ddp_under_torchrun_twice(self) -> None:
        launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "4")
        for name in ("model.json", "again.json"):
            shown = self.capture("ddp", launcher=launcher, name=name)
            self.assertIn("3 x Block (blocks)", shown)
        first, second = ((self.folder / name).read_bytes() for name in ("model.json", "again.json"))
        self.assertEqual(first, second)
        plan = self.plan("--activation-checkpointing", "full", "--strategy", "FULL_SHARD")
        self.assertEqual(plan["activation_checkpointing"]["modules"][0]["mode"], "full")
        self.assertEqual(plan["optimizer"]["clip_grad_norm"], 0.5)
        self.check("--apply", "plan.json", *MACHINES, "--", sys.executable, *launcher, "train.py", "ddp")

    def test_fsdp_brings_a_model_to_the_gpu_and_may_checkpoint_it(self) -> None:
        launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
        for mode in ("fsdp1", "fsdp1_meta", "fsdp2"):
            with self.subTest(mode=mode):
                self.capture(mode, launcher=launcher)
                self.plan("--strategy", "FULL_SHARD", "--activation-checkpointing", "none")
                self.check("--apply", "plan.json", *MACHINES, "--", sys.executable, *launcher, "train.py", mode)
                for name in ("model.json", "plan.json"):
                    (self.folder / name).unlink()

    def test_mixed_precision_of_fsdp1_casts_inputs(self) -> None:
        launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
        self.capture("fsdp1_half", "--dtype", "float32", launcher=launcher)
        self.plan("--strategy", "FULL_SHARD", "--precision", "fp32")
        self.check("--apply", "plan.json", *MACHINES, "--", sys.executable, *launcher, "train.py", "fsdp1_half", "--dtype", "float32")

    def test_a_script_with_collectives_of_its_own(self) -> None:
        launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
        shown = " ".join(self.capture("gathers", options=(), launcher=launcher).split())
        self.assertIn("In a step the script makes 2 collectives of its own, of 2.00 MiB in all. No plan has them.", shown)
        self.assertIn("makes collectives of its own (1 all_gather, 1 reduce_scatter;", shown)
        # What they give is of another size on other numbers of GPUs.
        machines = ("--gpu", "H100 SXM", "--gpus", "2")
        code, _, said = self.run_program("model.json", *machines, "--strategy", "FULL_SHARD", "--activation-checkpointing", "none", "-o", "plan.json")
        self.assertEqual(code, 0, said)
        code, out, said = self.run_program("rehearse", "plan.json")
        self.assertEqual((code, said), (0, ""), out)

    def test_script_with_accumulation_and_an_evaluation_first(self) -> None:
        launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "4")
        shown = " ".join(self.capture("shares", launcher=launcher, options=()).split())
        self.assertIn("batch 2, seq 128", shown)
        self.assertIn("check 4 GPUs, FULL_SHARD", shown)
        self.assertIn("The script makes 2 micro-batches a step on 4 GPUs;", shown)
        self.assertIn("Before its first step the script allocates up to 0.", shown)
        plan = self.plan("--strategy", "FULL_SHARD", "--gradient-sync", "last", "--activation-checkpointing", "none")
        self.assertEqual((plan["accumulation"], plan["sync_every_micro_batch"]), (2, False))
        self.check()

    def test_ops_that_pytorch_refuses_in_bfloat16_are_a_limit(self) -> None:
        shown = self.capture("batch_norm", "--dtype", "float32", options=())
        self.assertIn("There is no recording in bfloat16 as it is. PyTorch refused it: Expected running_mean", " ".join(shown.split()))
        for term in ("steady step: live peak", "steady step: allocated peak", "all_gather count", "reduce_scatter payload"):
            self.assertIn(term, shown)
        code, out, said = self.run_program("model.json", *MACHINES, "--precision", "mixed")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("no recording in bfloat16", said)

    def test_scripts_that_cannot_be_captured_are_refused(self) -> None:
        for mode, sentence in (
            ("short", "The script ended after 1 step, and a capture takes 3 at least."),
            ("two", "The script calls Decoder for one backward and not for another. A plan has a forward of the whole model"),
            ("shared", "blocks.1 runs blocks.0.activation, a module that several blocks share. Give each block a module of its own"),
            ("cpu", "The script trains its Decoder on the CPU."),
            ("raises", "rank 0: The script raised ValueError: The data are of another length"),
        ):
            with self.subTest(mode=mode):
                code, out, said = self.run_program("capture", "-o", "x.json", "--", sys.executable, "train.py", mode)
                self.assertEqual((code, out), (3, ""))
                self.assertIn(f"error: {sentence}", said)
                self.assertFalse((self.folder / "x.json").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
