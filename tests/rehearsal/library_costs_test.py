"""Steps whose ops are of libraries take as long as those of PyTorch that compute the same, or it is said that nobody knows how long.

    library_costs_test.py STUB FSDP_PLAN    run by a Python that has torch and bitsandbytes; exit 77 without bitsandbytes
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STUB, PROGRAM = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
GPU = ("--gpu", "H100 SXM")


class LibraryCosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.reports, cls.texts = {}, {}
        for word in ("dense", "nf4", "function", "scan"):
            script = (sys.executable, "-B", HERE / "capture_scripts" / "library_ops.py", word)
            model = f"{word}.model.json"
            cls.says("capture", "--no-check", *GPU, "-o", model, "--", *script)
            cls.reports[word] = json.loads(cls.says(model, *GPU, "--gpus", "1", "--json"))
            cls.texts[word] = cls.says(model, *GPU, "--gpus", "1")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    @classmethod
    def says(cls, *words) -> str:
        settings = {"FSDP_PLAN_MODEL_SPECS": str(ROOT / "model_specs"), "FSDP_PLAN_STUB_GPU": str(STUB),
                    "FSDP_PLAN_PYTHON_PATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([str(word) for word in (PROGRAM, *words)], cwd=cls.folder.name, env={**os.environ, **settings},
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(done.stderr or done.stdout)
        return done.stdout

    def step(self, word: str) -> float:
        return self.reports[word]["time"]["step"]

    def test_four_bits_take_as_long_as_sixteen(self) -> None:
        # Unpacking the weights, 2.5 bytes of each, twice, comes on top; FSDP2 copies fewer bytes of them.
        self.assertAlmostEqual(self.step("nf4") / self.step("dense"), 1, delta=0.05)

    def test_four_bit_models_count_all_parameters(self) -> None:
        counts = [self.reports[word]["model"]["parameters"] for word in ("nf4", "dense")]
        self.assertEqual(*counts)

    def test_backward_of_a_custom_function_is_counted(self) -> None:
        self.assertAlmostEqual(self.step("function") / self.step("dense"), 1, delta=0.01)

    def test_unknown_op_is_named_and_leaves_the_range_open(self) -> None:
        time = self.reports["scan"]["time"]
        self.assertEqual(time["without_cost"], ["mylib::scan"])
        self.assertEqual(list(time["uncertainty"]), ["low"])
        self.assertIn(" or more: no cost is known of mylib::scan)", " ".join(self.texts["scan"].split()))
        for known in ("dense", "nf4", "function"):
            self.assertNotIn("without_cost", self.reports[known]["time"])
            self.assertIn("high", self.reports[known]["time"]["uncertainty"])


if __name__ == "__main__":
    if importlib.util.find_spec("bitsandbytes") is None:
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
