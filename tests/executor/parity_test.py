"""Trains small plans with PyTorch's own FSDP2, FSDP1 or DDP, DeepSpeed's ZeRO or torchtitan's SimpleFSDP over Gloo and with fsdp-exec,
and expects the same bits: the loss of every rank and step, and every parameter at the end; of ZeRO those that the optimizer has.

    parity_test.py FSDP_EXEC FSDP_PLAN [fsdp2 | fsdp1 | ddp | zero | simple_fsdp | CASE...]

is run by a Python that has torch; zero needs DeepSpeed and simple_fsdp torchtitan, on PYTHONPATH. Exit 77: what is wanted needs a package
that is not there.

Without names: those cases of all that together cover every feature; FSDP_PARITY=all: every case. Mixtral is not among them:
the Python runner spreads tokens evenly over the experts, as predictions do, while fsdp-exec sends them where the router
says; ranks_agree_test.py has it.
"""

from __future__ import annotations

import importlib.util
import math
import os
import pathlib
import struct
import sys
import tempfile
import time
import unittest
from typing import Any

sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"  # Before torch: sums are made in the same order, and no thread runs at a fork.
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from framework_cases import DDP_CASES, FSDP1_CASES, HALF_OF_ZERO, SIMPLE_FSDP_CASES, ZERO_CASES, zero  # noqa: E402
from parity_cases import CASES, Case  # noqa: E402
from ranks import floats_of, run_executor, run_reference  # noqa: E402

EXECUTOR, PLANNER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
WANTED = sys.argv[3:]
RUNS_ALL = os.environ.get("FSDP_PARITY") == "all"
SEED = 7
FAMILIES = {"fsdp2": CASES, "fsdp1": FSDP1_CASES, "ddp": DDP_CASES, "zero": ZERO_CASES, "simple_fsdp": SIMPLE_FSDP_CASES}
for family, package, environment in (("zero", "deepspeed", "deepspeed"), ("simple_fsdp", "torchtitan", "simple-fsdp")):
    if importlib.util.find_spec(package) is not None:
        continue
    print(f"The cases of {family} need {package}. Write: ./scripts/rehearsal_env {environment}, and have PYTHONPATH lead there.", file=sys.stderr)
    del FAMILIES[family]
    if WANTED and all(name.startswith(family) for name in WANTED):
        sys.exit(77)


def bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def differences(ours: dict[str, Any], theirs: dict[str, Any], tolerance: float) -> list[str]:
    """The first loss of each rank and every parameter that differ in a bit, by more than the tolerance."""
    found = []
    for rank, (mine, real) in enumerate(zip(ours["steps"], theirs["steps"], strict=True)):
        for step, (a, b) in enumerate(zip(mine, real, strict=True), start=1):
            if bits(a["loss"]) != bits(b["loss"]) and abs(a["loss"] - b["loss"]) > tolerance * abs(b["loss"]):
                found.append(f"rank {rank}, step {step}: loss {a['loss']!r}, and PyTorch has {b['loss']!r}")
                break
    a, b = ours["parameters"], theirs["parameters"]
    found += [f"{name}: in one of the two only" for name in sorted(a.keys() ^ b.keys())]
    for name in sorted(a.keys() & b.keys()):
        if a[name] == b[name]:
            continue
        if a[name][:2] != b[name][:2]:
            found.append(f"{name}: {a[name][:2]}, and PyTorch has {b[name][:2]}")
            continue
        pairs = list(zip(floats_of(a[name]), floats_of(b[name]), strict=True))
        unequal = [i for i, (x, y) in enumerate(pairs) if x != y]
        worst = max(abs(x - y) for x, y in pairs)
        if worst <= tolerance:
            continue
        found.append(f"{name}: {len(unequal)} of {len(pairs)} elements differ, by up to {worst:.3g}, "
                     f"first {unequal[:1]}")
    return found


class TheSameBitsAsPyTorch(unittest.TestCase):
    def check(self, case: Case) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            plan = case.write(folder)
            values = ["--seed", str(SEED)]
            began = time.monotonic()
            theirs = run_reference(PLANNER, plan, case.ranks, folder, "pytorch", case.steps,
                                   [*values, "--learning-rate", str(case.learning_rate)])
            between = time.monotonic()
            ours = run_executor(EXECUTOR, plan, case.ranks, folder, "executor",
                                [*values, "--lr", str(case.learning_rate), "--steps", str(case.steps),
                                 "--reduction", "parity"])
            print(f"{case.name}: {case.ranks} ranks, PyTorch {between - began:.1f} s, "
                  f"fsdp-exec {time.monotonic() - between:.1f} s", file=sys.stderr)
            self.assertEqual([len(steps) for steps in ours["steps"]], [case.steps] * case.ranks)
            # A model that does not learn would be equal without being right.
            losses = [step["loss"] for step in ours["steps"][0]]
            # One that is returned in 16 bits has three digits, and may come twice.
            is_rounded = case.plan.get("mixed_precision", {}).get("output_dtype", "float32") != "float32"
            self.assertGreaterEqual(len(set(losses)), 2 if is_rounded else case.steps, f"the losses repeat: {losses}")
            limit = case.plan.get("optimizer", {}).get("clip_grad_norm", math.inf)
            norms = [step["gradient_norm"] for step in ours["steps"][0]]
            self.assertTrue(limit == math.inf or min(norms) > limit, f"nothing is clipped: {norms}")
            found = differences(ours, theirs, case.tolerance)
            self.assertEqual(found, [], "\n".join(found))

    @unittest.skipUnless("zero" in FAMILIES and (not WANTED or "zero" in WANTED), "a test of ZeRO")
    def test_zero_leaves_out_a_step_whose_gradients_are_not_finite(self) -> None:
        # Found by the norm, and looked for.
        for case in (zero("norm", 1, "gpt2", 2), zero("looked_for", 2, "gpt2", 2, HALF_OF_ZERO, dtype="bfloat16")):
            with self.subTest(case.name), tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                plan = case.write(folder)
                rate = "1e37"
                theirs, once, ours = (run_reference(PLANNER, plan, case.ranks, folder, "theirs", 3, ["--seed", str(SEED), "--learning-rate", rate]),
                                      *(run_executor(EXECUTOR, plan, case.ranks, folder, f"ours{steps}",
                                                     ["--seed", str(SEED), "--lr", rate, "--steps", steps, "--reduction", "parity", "--nonfinite-loss", "continue"])
                                        for steps in ("1", "3")))
                self.assertTrue(all(math.isnan(step["loss"]) for steps in theirs["steps"] for step in steps[1:]), theirs["steps"])
                # DeepSpeed adds up what the ranks have, and a negative zero becomes a positive one.
                found = differences({**ours, "steps": []}, {**theirs, "steps": []}, 0)
                self.assertEqual(found, [], "\n".join(found))
                self.assertEqual(ours["parameters"], once["parameters"], "two steps are left out")

    def test_names_are_of_cases(self) -> None:
        known = {*FAMILIES, *(case.name for cases in FAMILIES.values() for case in cases)}
        self.assertEqual(sorted(set(WANTED) - known), [])


def add(case: Case) -> None:
    setattr(TheSameBitsAsPyTorch, f"test_{case.name}", lambda self: self.check(case))


for family, cases in FAMILIES.items():
    for each in cases:
        is_wanted = not WANTED or family in WANTED
        if each.name in WANTED or is_wanted and (RUNS_ALL or each.always):
            add(each)

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
