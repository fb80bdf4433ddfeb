"""Captures scripts as people write them, and holds plans of what was captured against the scripts.

    captured_scripts_test.py STUB FSDP_PLAN      run by a Python that has torch and transformers; exit 77 without transformers

capture_cases.py has more scripts and plans; scripts/capture_proof runs them all.
"""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import tempfile
import unittest

from capture_cases import CASES, PLANS, REFUSED
from capture_runs import Runner, difference, problems_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUB, PROGRAM = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
MOST_OFF = 0.001
QUICK = {name: PLANS[name] for name in ("hybrid", "checkpointed")}


class CapturedScripts(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        settings = {"FSDP_PLAN_MODEL_SPECS": str(ROOT / "model_specs"), "FSDP_PLAN_STUB_GPU": str(STUB),
                    "FSDP_PLAN_PYTHON_PATH": str(ROOT / "python")}
        self.runner = Runner(PROGRAM, pathlib.Path(folder.name), settings)

    def test_plans_of_captures_are_what_the_scripts_do(self) -> None:
        for case in (each for each in CASES if each.is_quick):
            found = self.runner.run(case, QUICK)
            with self.subTest(case=case.name):
                self.assertNotIn("refused", found)
            for plan, compared in found.get("plans", {}).items():
                with self.subTest(case=case.name, plan=plan):
                    self.assertEqual(problems_of(compared, MOST_OFF), [])
                    print(f"{case.name:16} {plan:14} requested {100 * difference(compared['requested']):+.3f} %", flush=True)

    def test_a_script_that_cannot_be_captured_is_refused_with_a_sentence(self) -> None:
        case = next(each for each in REFUSED if each.name == "gan")
        self.assertIn(case.refusal, self.runner.run(case)["refused"])


if __name__ == "__main__":
    if importlib.util.find_spec("transformers") is None:
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
