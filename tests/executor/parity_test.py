"""Trains small plans with PyTorch's own FSDP2 over Gloo and with fsdp-exec, and expects the same bits: the loss of every rank
and step, and every parameter at the end.

    parity_test.py FSDP_EXEC FSDP_PLAN [CASE...]

is run by a Python that has torch.

Without names: the cases that together cover every feature; FSDP_PARITY=all: every case. Mixtral is not among them: the Python
runner distributes tokens evenly over the experts, as predictions do, while fsdp-exec follows the router; ranks_agree_test.py
has it.
"""

from __future__ import annotations

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
os.environ["OMP_NUM_THREADS"] = "1"  # Set before torch is imported: sums are made in the same order, and no thread runs at a
                                     # fork.
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from parity_cases import CASES, Case  # noqa: E402
from ranks import floats_of, run_executor, run_reference  # noqa: E402

EXECUTOR, PLANNER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
WANTED = sys.argv[3:]
RUNS_ALL = os.environ.get("FSDP_PARITY") == "all"
SEED = 7


def bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """The first loss of each rank and every parameter that differ in a bit."""
    found = []
    for rank, (mine, real) in enumerate(zip(ours["steps"], theirs["steps"], strict=True)):
        for step, (a, b) in enumerate(zip(mine, real, strict=True), start=1):
            if bits(a["loss"]) != bits(b["loss"]):
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
            # A loss in 16 bits has three digits, and may repeat.
            is_rounded = case.plan.get("mixed_precision", {}).get("output_dtype", "float32") != "float32"
            self.assertGreaterEqual(len(set(losses)), 2 if is_rounded else case.steps, f"the losses repeat: {losses}")
            limit = case.plan.get("optimizer", {}).get("clip_grad_norm", math.inf)
            norms = [step["gradient_norm"] for step in ours["steps"][0]]
            self.assertTrue(limit == math.inf or min(norms) > limit, f"nothing is clipped: {norms}")
            found = differences(ours, theirs)
            self.assertEqual(found, [], "\n".join(found))

    def test_requested_names_exist(self) -> None:
        self.assertEqual(sorted(set(WANTED) - {case.name for case in CASES}), [])


def add(case: Case) -> None:
    setattr(TheSameBitsAsPyTorch, f"test_{case.name}", lambda self: self.check(case))


for each in CASES:
    if each.name in WANTED if WANTED else RUNS_ALL or each.always:
        add(each)

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
