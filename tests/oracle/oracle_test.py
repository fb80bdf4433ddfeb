"""Holds predictions to what the real FSDP2 did.

    oracle_test.py FSDP_PLAN                      predictions against the recorded runs; torch is not needed
    oracle_test.py FSDP_PLAN PYTHON STUB          records some of them again, others each time: they are still true

A case that is equal in every byte stays so; one that differs, for the causes in docs/oracle.md, differs by the very bytes that are
recorded with it. A mend changes those: ./scripts/oracle --renew writes them anew.
FSDP_ORACLE_SEED repeats a choice.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import differences  # noqa: E402
import goldens  # noqa: E402
from predict import ROOT, predict  # noqa: E402
from record import Machine, record  # noqa: E402

PROGRAM, *MACHINE = (pathlib.Path(argument).absolute() for argument in sys.argv[1:])
FOLDER = ROOT / "tests" / "golden" / "oracle"
GOLDENS = FOLDER / "drawn.jsonl"
AFRESH = 16


class AgainstRecordedFsdp2(unittest.TestCase):
    def test_differences_are_known_to_the_byte(self) -> None:
        compared = differing = 0
        for case, merges, recorded, known in goldens.read(GOLDENS):
            with self.subTest(case.name):
                found = differences.compare(predict(PROGRAM, case, wants_model=False).result, recorded, merges)
                compared += sum(found.compared.values())
                differing += sum(found.differing.values())
                self.assertEqual(found.exact, known, "\n" + "\n".join(found.lines))
                self.assertEqual(found.differing["collectives"], 0)  # Nothing excuses those.
        print(f"{compared} values compared, {differing} differ, all of them known", flush=True)

    def test_models_of_transformers_have_known_differences(self) -> None:
        collectives = 0
        recordings = goldens.read(FOLDER / "transformers.jsonl") + goldens.read(FOLDER / "folders.jsonl")
        for case, merges, recorded, known in recordings:
            with self.subTest(case.name):
                found = differences.compare(predict(PROGRAM, case, wants_model=False).result, recorded, merges)
                self.assertEqual(found.exact, known, "\n" + "\n".join(found.lines))
                self.assertEqual(found.differing["collectives"], 0)
                collectives += found.compared["collectives"]
        print(f"{collectives} collectives compared", flush=True)

    def test_a_wrong_prediction_is_found(self) -> None:
        case, merges, recorded, _ = next(g for g in goldens.read(GOLDENS) if not g[3])
        for place, value in ((0, "broadcast"), (4, 1), (6, [0, 1, 99]), (7, 1)):
            predicted = predict(PROGRAM, case, wants_model=False).result
            predicted["steps"][1][3][place] = value
            found = differences.compare(predicted, recorded, merges)
            self.assertEqual(sum(found.differing.values()), 1)
            self.assertIn("steady step", found.lines[0])
            self.assertIn("number 3", found.lines[0])


class RecordedRunsAreTheRealOnes(unittest.TestCase):
    def test_sampled_runs_repeat_exactly(self) -> None:
        if not MACHINE:
            self.skipTest("no Python with torch is named")
        seed = int(os.environ.get("FSDP_ORACLE_SEED") or time.time())
        print(f"FSDP_ORACLE_SEED={seed}", flush=True)
        chosen = random.Random(seed).sample(goldens.read(GOLDENS), AFRESH)
        pairs = [(case, predict(PROGRAM, case)) for case, *_ in chosen]
        answers = record(Machine(*MACHINE), pairs)
        predictions = {case.name: prediction.result for case, prediction in pairs}
        for case, merges, recorded, _ in chosen:
            with self.subTest(case.name):
                self.assertNotIn("error", answers[case.name], answers[case.name].get("error"))
                # Through the text, so that both have the same types.
                again = goldens.from_line(goldens.to_line(case, merges, answers[case.name]["result"], {}))[2]
                self.assertEqual(json.dumps(again), json.dumps(recorded))
                # How each collective reduces, and in which micro-batch, is not kept in the file.
                self.assertEqual(answers[case.name]["result"]["reductions"], predictions[case.name]["reductions"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
