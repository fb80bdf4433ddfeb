#!/usr/bin/env python3
"""fsdp-plan execute for plans of FSDP2, which fsdp-exec trains (frameworks_test.py has the others): trains small plans on this
machine, and compares measured and predicted values.

    execute_test.py FSDP_PLAN [CASE...]

Without FSDP_EXECUTE=all runs only the cases that together cover every feature. Each must have all collectives as predicted, in
order, and the predicted live peak of its initialization; its other live peaks within 512 bytes or 0.1 % of the prediction, and
their categories within 1 % of the peak. oneDNN's memory is learned before, from another plan of the same model
(`Case.teacher`).
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from parity_cases import CASES, Case
from ranks import LIMIT_SECONDS, InAFolder

FSDP_PLAN = pathlib.Path(sys.argv[1]).resolve()
WANTED = sys.argv[2:]
ALL = os.environ.get("FSDP_EXECUTE") == "all"
EXACT = 0.001
EXACT_BYTES = 512  # Numbers that PyTorch wraps into tensors, a few at a time, independent of the model's size.
SHARE_OF_CATEGORIES = 0.01  # A share of the peak.
# Two moments of one peak that differ by less than EXACT_BYTES: their categories need not be those of one moment.
TWO_PEAKS = ("gemma2", "gemma2_mixed")
MORE_THAN_MEASURED = {"t5_selective": 0.004}  # On a GPU it is equal to the byte.
PEAKS = ("initialization: live peak", "first step: live peak", "steady step: live peak")
EXACTLY_EQUAL = ("count", "payload", "as predicted", "parameters")


def chosen() -> list[Case]:
    if WANTED:
        return [case for case in CASES if case.name in WANTED]
    return [case for case in CASES if ALL or case.always]


class Execute(InAFolder):
    def execute(self, plan: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(FSDP_PLAN), "execute", str(plan), *options], capture_output=True, text=True,
                              timeout=LIMIT_SECONDS, check=False)

    def teach(self, case: Case, calibration: pathlib.Path, taught: dict[str, None]) -> None:
        teacher = case.teacher()
        lesson = repr(teacher)
        if teacher is None or lesson in taught:
            return
        taught[lesson] = None
        plan = teacher.write(self.folder, "teacher")
        done = self.execute(plan, "--steps", "1", "--calibration", str(calibration), "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_measurement_matches_the_prediction(self) -> None:
        learned, used = self.folder / "learned.json", self.folder / "used.json"
        taught: dict[str, None] = {}
        for case in chosen():
            with self.subTest(case.name):
                self.teach(case, learned, taught)
                if learned.exists():  # A copy, so that no case teaches another.
                    used.write_bytes(learned.read_bytes())
                done = self.execute(case.write(self.folder), "--steps", "3", "--json", "--calibration", str(used))
                self.assertEqual(done.returncode, 0, done.stderr)
                answer = json.loads(done.stdout)
                self.assertNotIn("--calibration", " ".join(answer["assumptions"]))
                terms = {term["name"]: term for term in answer["comparison"]["terms"]}
                for name, term in terms.items():
                    if name.endswith(EXACTLY_EQUAL):
                        self.assertEqual(term["difference"], 0, term)
                    if name.startswith("at peak") and case.name not in TWO_PEAKS:
                        share = abs(term["difference"]) / terms["live peak"]["measured"]
                        self.assertLessEqual(share, SHARE_OF_CATEGORIES, term)
                self.assertEqual(terms[PEAKS[0]]["difference"], 0, terms[PEAKS[0]])
                for name in PEAKS:
                    near = abs(terms[name]["difference"]) <= EXACT_BYTES and abs(terms[name]["relative"]) <= EXACT
                    above = terms[name]["difference"] >= 0 and terms[name]["relative"] <= MORE_THAN_MEASURED.get(case.name, 0)
                    self.assertTrue(near or above, terms[name])

    def test_a_tolerance_decides_the_exit_code(self) -> None:
        self.assertEqual(self.execute(CASES[0].write(self.folder), "--tolerance", "0.1%", "--quiet").returncode, 0)
        # oneDNN's memory was never learned.
        plan = next(case for case in CASES if case.name == "vit_sgd_plain").write(self.folder)
        done = self.execute(plan, "--tolerance", "0.1%")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?s)oneDNN.*--calibration")

    def test_the_folder_of_a_run_holds_everything(self) -> None:
        run, trace = self.folder / "run", self.folder / "trace.json"
        done = self.execute(CASES[0].write(self.folder), "--run-dir", str(run), "--chrome-trace", str(trace))
        self.assertEqual(done.returncode, 0, done.stderr)
        ranks = range(CASES[0].ranks)
        expected = {"plan.json", "predicted.json", "predicted-trace.json", *(f"{rank}.log" for rank in ranks),
                    *(f"{kind}-{rank}.json" for rank in ranks for kind in ("report", "trace"))}
        self.assertEqual({path.name for path in run.iterdir()} - {"store"}, expected)
        lanes = []
        for path in (run / "predicted-trace.json", trace):
            events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
            collectives = [event for event in events if event["ph"] == "X" and event["name"].startswith("nccl")]
            lanes.append(sorted((event["tid"], event["args"]["payload bytes"]) for event in collectives))
        self.assertEqual(lanes[0], lanes[1])
        simulated = subprocess.run([str(FSDP_PLAN), "execute", str(run / "plan.json"), "--quiet"], capture_output=True)
        self.assertEqual(simulated.returncode, 0, simulated.stderr)

    def test_a_calibration_is_written_and_used(self) -> None:
        plan, calibration = CASES[0].write(self.folder), self.folder / "calibration.json"
        options = ("--calibration", str(calibration))
        first = self.execute(plan, *options)
        self.assertNotIn("exposed communication", first.stdout, "no times are compared that nothing stands behind")
        learned = json.loads(calibration.read_text(encoding="utf-8"))
        self.assertEqual((learned["device"], learned["ranks"]), ("CPU", CASES[0].ranks))
        measured = {row["term"]: row["measured_seconds"] for row in learned["residuals"]}
        second = self.execute(plan, *options, "--run-dir", str(self.folder / "run"))
        self.assertRegex(second.stdout, "exposed communication")
        predicted = {row["term"]: row["predicted_seconds"] for row in json.loads(calibration.read_text())["residuals"]}
        for term in ("step", "compute"):
            self.assertAlmostEqual(predicted[term] / measured[term], 1, delta=0.05, msg=term)
        trace = json.loads((self.folder / "run" / "predicted-trace.json").read_text(encoding="utf-8"))
        ends = [event["ts"] + event["dur"] for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertAlmostEqual(max(ends) * 1e-6 / predicted["step"], 1, delta=0.05, msg="the trace is calibrated too")
        calibration.write_text("{}", encoding="utf-8")
        broken = self.execute(plan, *options)
        self.assertEqual((broken.returncode, broken.stdout), (2, ""))
        self.assertIn(str(calibration), broken.stderr)

    def test_calibration_of_another_cpu_is_noted(self) -> None:
        plan = Case("small", "vit_b_16", 1).write(self.folder)
        calibration = self.folder / "calibration.json"
        options = ("--steps", "1", "--calibration", str(calibration))
        self.assertNotIn("Its kernels' memory", self.execute(plan, *options).stdout)
        learned = json.loads(calibration.read_text(encoding="utf-8"))
        others = {**learned["workspaces"], "measured_on": "an abacus"}
        others["calls"] = [*others["calls"], {"call": "mm bfloat16 7x7 7x7", "threads": 1, "bytes": 7}]
        calibration.write_text(json.dumps({**learned, "workspaces": others}), encoding="utf-8")
        self.assertRegex(self.execute(plan, *options).stdout, r"(?s)Its kernels' memory is that of an abacus")
        self.assertEqual(json.loads(calibration.read_text(encoding="utf-8"))["workspaces"], learned["workspaces"])

    def test_wrong_input_is_reported_before_anything_starts(self) -> None:
        plan = CASES[0].write(self.folder)
        done = self.execute(plan, "--ranks", "3", "--steps", "none")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--ranks", done.stderr)
        self.assertIn("--steps", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_checkpoints_and_weights_are_passed_on(self) -> None:
        plan = Case("small", "llama3_2_1b", 2).write(self.folder)
        folder = self.folder / "checkpoints"
        options = ["--checkpoint-dir", str(folder), "--resume", "latest", "--quiet"]
        self.assertEqual(self.execute(plan, "--steps", "2", *options).returncode, 0)
        options[-1] = "--json"
        done = self.execute(plan, "--steps", "3", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("resuming after step 2", done.stderr)
        self.assertEqual(sorted(path.name for path in folder.iterdir()), ["step-00000002", "step-00000003"])
        done = self.execute(plan, "--steps", "3", *options)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        (self.folder / "w.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
        done = self.execute(plan, "--weights", str(self.folder / "w.safetensors"))
        self.assertEqual(done.returncode, 2)
        self.assertGreater(done.stderr.count("No file has"), 10)

    def test_too_little_memory_names_rank_and_instruction(self) -> None:
        done = self.execute(CASES[0].write(self.folder), "--mem", "500K")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"error: rank \d: step 1, instruction \d+ of \d+, \w+.*bytes were asked for")

    def test_a_killed_rank_ends_the_run_and_is_named(self) -> None:
        plan = CASES[0].write(self.folder)
        run = subprocess.Popen([str(FSDP_PLAN), "execute", str(plan), "--steps", "100000", "--timeout", f"{4 * LIMIT_SECONDS}s"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        ranks = self.ranks_of(run.pid, CASES[0].ranks)
        time.sleep(0.5)
        victim = next(pid for pid, rank in ranks.items() if rank == 2)
        os.kill(victim, signal.SIGSEGV)
        # The fault must have ended it, since its ranks may wait for each other four times as long.
        _, printed = run.communicate(timeout=LIMIT_SECONDS)
        self.assertEqual(run.returncode, 3, printed)
        self.assertIn("rank 2", printed.splitlines()[-1])
        for pid in ranks:
            with self.assertRaises(ProcessLookupError):
                os.kill(pid, 0)

    def ranks_of(self, parent: int, count: int) -> dict[int, int]:
        """Processes of the ranks by rank, once all of them train."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < deadline:
            found: dict[int, int] = {}
            children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="utf-8").split()
            for pid in map(int, children):
                variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                rank = next((v for v in variables if v.startswith(b"RANK=")), None)
                if rank is not None:
                    found[pid] = int(rank[5:])
            if len(found) == count:
                return found
            time.sleep(0.05)
        self.fail(f"{count} ranks did not start")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
