"""The ranks of fsdp-exec together train like one process with all of their data, for any gathering and resharding: the mean of
their losses, the norm of the gradient and the parameters agree within the rounding of fp32.

    ranks_agree_test.py FSDP_EXEC

One process with N micro-batches a step reads the data of N ranks, and averages their gradients as ranks do.
"""

from __future__ import annotations

import functools
import math
import pathlib
import sys
import tempfile
import unittest
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from parity_cases import Case  # noqa: E402
from ranks import floats_of, run_executor  # noqa: E402
from small_models import each_block_a_unit  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
STEPS = 4
RATE = 0.2
# Ten times the observed ones: 4e-8, 2e-7 and, for parameters that change by 5e-3, 1e-7.
LOSS_TOLERANCE, NORM_TOLERANCE, PARAMETER_TOLERANCE = 4e-7, 2e-6, 1e-6
LEARNS = {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.0, "clip_grad_norm": 1e9}}


def trained(case: Case, rate: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        return run_executor(EXECUTOR, case.write(folder), case.ranks, folder, "run",
                            ["--seed", "3", "--steps", str(STEPS), "--lr", repr(rate), "--reduction", "direct"])


@functools.cache
def alone(model: str, micro_batches: int) -> dict[str, Any]:
    return trained(Case("alone", model, 1, {**LEARNS, "accumulation": micro_batches}), RATE)


class RanksAgreeWithOneProcess(unittest.TestCase):
    def check(self, model: str, shard: int, replicate: int = 1, **unit: Any) -> None:
        case = Case("ranks", model, shard, LEARNS, replicate=replicate, units=each_block_a_unit(model, **unit))
        ours, one = trained(case, RATE), alone(model, case.ranks)
        for i, step in enumerate(one["steps"][0]):
            losses = [steps[i]["loss"] for steps in ours["steps"]]
            self.assertEqual(len(set(losses)), case.ranks, "each rank has data of its own")
            mean = math.fsum(losses) / case.ranks
            self.assertLess(abs(mean / step["loss"] - 1), LOSS_TOLERANCE, f"step {i + 1}: {mean}, {step['loss']}")
            for steps in ours["steps"]:
                ratio = steps[i]["gradient_norm"] / step["gradient_norm"]
                self.assertLess(abs(ratio - 1), NORM_TOLERANCE, f"step {i + 1}")
        moved = max(abs(value - 1) for value in floats_of(one["parameters"]["model.norm.weight"]))
        self.assertGreater(moved, 1000 * PARAMETER_TOLERANCE, "it learns")
        self.assertEqual(ours["parameters"].keys(), one["parameters"].keys())
        for name, tensor in one["parameters"].items():
            worst = max(abs(a - b) for a, b in zip(floats_of(tensor), floats_of(ours["parameters"][name]), strict=True))
            self.assertLess(worst, PARAMETER_TOLERANCE, name)

    def test_fully_sharded_of_2(self) -> None:
        self.check("llama3_2_1b", 2)

    def test_fully_sharded_of_4(self) -> None:
        self.check("llama3_2_1b", 4)

    def test_parameters_gathered_after_forward(self) -> None:
        self.check("llama3_2_1b", 4, reshard_after_forward=False)

    def test_resharded_to_2(self) -> None:
        self.check("llama3_2_1b", 4, reshard_after_forward=2)

    def test_replicated(self) -> None:
        self.check("llama3_2_1b", 2, replicate=2)

    def test_mixtral_routes_its_tokens(self) -> None:
        self.check("mixtral_8x7b", 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
