"""What a rehearsed process says that it is at. Needs no torch."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True

from fsdp_rehearsal.progress import doing  # noqa: E402


class Frame:
    def __init__(self, file, line, function, f_back=None, **f_locals):
        self.f_lineno, self.f_back, self.f_locals = line, f_back, f_locals
        self.f_code = type("Code", (), {"co_filename": file, "co_name": function})


class Tensor:
    device = type("Device", (), {"type": "cpu"})


SCRIPT = "/somewhere/train.py"
TORCH = "/env/lib/python3.11/site-packages/torch"


class Doing(unittest.TestCase):
    def said(self, *frames, stage="step 2 of 3", phase="backward"):
        """`frames`: file, line, function and locals, the outermost first."""
        frame = None
        for file, line, function, *rest in frames:
            frame = Frame(file, line, function, frame, **(rest[0] if rest else {}))
        return doing(frame, stage, phase)

    def test_a_line_of_the_script(self):
        self.assertEqual(self.said((SCRIPT, 14, "main"), (f"{TORCH}/_tensor.py", 3, "backward")), "step 2 of 3, backward, /somewhere/train.py:14")

    def test_what_the_script_imports(self):
        find = ("<frozen importlib._bootstrap>", 9, "_find_and_load")
        frames = [(SCRIPT, 1, "<module>"), (*find, {"name": "transformers.models"}), (f"{TORCH}/x.py", 1, "<module>"), (*find, {"name": "numpy"})]
        self.assertEqual(self.said(*frames, phase="initialization"), "importing transformers")

    def test_parameters_that_are_filled_on_the_cpu(self):
        said = self.said((SCRIPT, 7, "main"), (f"{TORCH}/nn/init.py", 5, "kaiming_uniform_", {"tensor": Tensor()}), phase="initialization")
        self.assertTrue(said.startswith("making parameters on the CPU (under"), said)
        self.assertTrue(said.endswith(", /somewhere/train.py:7"), said)

    def test_a_compiler(self):
        self.assertEqual(self.said((SCRIPT, 7, "main"), (f"{TORCH}/_inductor/codecache.py", 5, "compile"), stage="step 1 of 3", phase="forward"),
                         "compiling, step 1 of 3, /somewhere/train.py:7")

    def test_before_the_first_step(self):
        self.assertEqual(self.said((SCRIPT, 7, "main"), phase="initialization"), "before the first step, /somewhere/train.py:7")


if __name__ == "__main__":
    unittest.main()
