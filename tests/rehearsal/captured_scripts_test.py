"""Captures scripts as people write them, and holds plans of what was captured against the scripts.

    captured_scripts_test.py STUB FSDP_PLAN PACKAGES    run by a Python that has torch and the packages of that environment
                                                        (tests/rehearsal/requirements); exit 77 without transformers

capture_cases.py has more scripts and plans; scripts/capture_proof runs them all.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest

from capture_cases import CASES, OTHER_PLANS, PLANS, REFUSED, UNSHARDED
from capture_runs import GPU, GPUS, SCRIPTS, Runner, collectives_of, difference, problems_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUB, PROGRAM = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
PACKAGES = sys.argv[3]
MOST_OFF = 0.001


class CapturedScripts(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        settings = {"FSDP_PLAN_MODEL_SPECS": str(ROOT / "model_specs"), "FSDP_PLAN_STUB_GPU": str(STUB),
                    "FSDP_PLAN_PYTHON_PATH": str(ROOT / "python")}
        self.folder = pathlib.Path(folder.name)
        self.runner = Runner(PROGRAM, self.folder, settings)

    def test_plans_of_captures_match_their_scripts(self) -> None:
        for case in (each for each in CASES if each.is_quick and each.packages == PACKAGES):
            found = self.runner.run(case, {name: {**PLANS, **OTHER_PLANS}[name] for name in case.quick_plans})
            with self.subTest(case=case.name):
                self.assertNotIn("refused", found)
            for plan, compared in found.get("plans", {}).items():
                with self.subTest(case=case.name, plan=plan):
                    self.assertEqual(problems_of(compared, MOST_OFF), [])
                    if case.name == "qwen3-tts":
                        self.check_parts(found["limits"], f"{case.name}.{plan}.plan.json")
                    print(f"{case.name:16} {plan:14} requested {100 * difference(compared['requested']):+.3f} %", flush=True)

    def test_scripts_whose_optimizer_updates_no_shards_match_a_plan_without_a_wrapper(self) -> None:
        for case in (each for each in UNSHARDED if each.packages == PACKAGES):
            with self.subTest(case=case.name):
                compared = self.runner.run_alone(case)
                self.assertEqual(problems_of(compared, MOST_OFF), [])
                print(f"{case.name:24} alone requested {100 * difference(compared['requested']):+.3f} %", flush=True)

    def check_parts(self, limits: list[str], plan: str) -> None:
        """The script calls parts of its model. FSDP2 gathers what they share in the forward of the whole, which only a step can be: by
        what is written into the script as an exported plan says, FSDP2 does what is predicted.
        """
        self.assertIn("The script calls parts of its Qwen3TTSForConditionalGeneration", " ".join(limits))
        code = self.runner.says("export", plan, "--to", "fsdp2")
        self.assertIn('register_fsdp_forward_method(model, "step")', code)
        self.assertNotIn('shard("talker"', code)
        (self.folder / "planned.py").write_text(code)
        script = (sys.executable, str(SCRIPTS / "qwen3_tts.py"), str(self.folder))
        measured = json.loads(self.runner.says("rehearse", *GPU, *GPUS, "--json", "--", *script))
        predicted = json.loads(self.runner.says("simulate", plan, *GPU, *GPUS, "--rank", "0", "--json"))
        self.assertEqual(collectives_of(measured), collectives_of(predicted))
        seen, said = (report["memory"]["phases"]["steady_step"]["live_peak_bytes"] for report in (measured, predicted))
        self.assertLessEqual(abs(said - seen), MOST_OFF * seen)

    def test_script_that_cannot_be_captured_is_refused(self) -> None:
        for case in (each for each in REFUSED if each.is_quick and each.packages == PACKAGES):
            with self.subTest(case=case.name):
                self.assertIn(case.refusal, self.runner.run(case).get("refused", "it is captured"))


if __name__ == "__main__":
    if importlib.util.find_spec("transformers") is None:
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
