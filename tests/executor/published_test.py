"""Compares fsdp-exec with the published code: random models of transformers and torchvision, small but with the published
constants, are saved as safetensors, read by --weights, and give the same loss and the same gradient of every parameter.

    published_test.py FSDP_EXEC FSDP_PLAN PACKAGES      run by a Python that has torch

PACKAGES is the folder of the environment published-models. FSDP_PARITY=all also runs 200 steps of AdamW for all families.
"""

from __future__ import annotations

import os
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"
EXECUTOR, PLANNER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
PACKAGES = pathlib.Path(sys.argv[3])
SKIPPED = 77
if not (PACKAGES / "transformers").is_dir():
    print("There is no transformers. To run this: ./scripts/rehearsal_env published-models", file=sys.stderr)
    sys.exit(SKIPPED)
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
sys.path.append(str(PACKAGES))
from ranks import ROOT, InAFolder  # noqa: E402  First: it knows where the runner is.
from published_models import MODELS, Published  # noqa: E402
from published import ROUNDED_ZERO, compare, torch, train  # noqa: E402

RUNS_ALL = os.environ.get("FSDP_PARITY") == "all"
TEXT = ROOT / "LICENSE"
CLOSE = 1e-5
CURVES = {"Llama 3.2": 20}  # Steps in the default run.


class ThePublishedMathematics(InAFolder):
    def check(self, model: Published, dtype: torch.dtype) -> None:
        found = compare(model, EXECUTOR, PLANNER, self.folder, dtype)
        self.assertEqual(found.missing, [])
        is_exact = dtype == torch.float32
        # In bf16 the code itself differs by `noise` from its computation in fp32, and another order of sums may, too: the
        # choice of kernels depends on the CPU.
        self.assertLess(found.loss, CLOSE if is_exact else 2 * found.loss_noise, "the loss")
        if is_exact:
            self.assertLess(found.logits, CLOSE, "the logits")
        self.assertLess(found.gradient, CLOSE if is_exact else 2 * found.noise, found.worst)

    def train(self, model: Published, steps: int) -> None:
        found = train(model, EXECUTOR, PLANNER, self.folder, TEXT, steps)
        self.assertLess(found.worst, 100 * CLOSE, found)
        self.assertGreater(found.back.tensors, 0)
        self.assertLess(found.back.loss, CLOSE, "of what was exported")
        if found.learns:
            self.assertLess(found.theirs[-1], found.theirs[0], "it learns")


def add(model: Published) -> None:
    name = model.name.replace(" ", "_").replace(".", "_").replace("-", "_").lower()
    setattr(ThePublishedMathematics, f"test_{name}", lambda self: self.check(model, torch.float32))
    if model.in_bf16:
        setattr(ThePublishedMathematics, f"test_{name}_in_bf16",
                lambda self: self.check(model, torch.bfloat16))
    steps = 200 if RUNS_ALL else CURVES.get(model.name, 0)
    if steps:
        setattr(ThePublishedMathematics, f"test_{name}_in_training", lambda self: self.train(model, steps))


for each in MODELS:
    add(each)

if __name__ == "__main__":
    assert ROUNDED_ZERO <= CLOSE
    unittest.main(argv=sys.argv[:1])
