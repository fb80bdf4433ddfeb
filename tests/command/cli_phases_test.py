#!/usr/bin/env python3
"""The phases of a job beside its steps: what is printed, and what decides the exit code.

usage: cli_phases_test.py PROJECT_ROOT BINARY
"""

import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
from cli_test import Tester  # noqa: E402


def check_phases(tester):
    """--phases has a row for each phase of a job; one that does not fit is named, with exit 1."""
    words = "llama3_1_8b --gpu H100 --gpus 8"
    code, out, _ = tester.run(f"{words} --phases --host-mem 1T", width=120)
    tester.check(code == 0 and "saving, whole" in out and "every phase that is predicted fits" in out, f"{code}, {out}")
    code, out, _ = tester.run(f"{words} --phases", width=120)
    tester.check(code == 0 and "host memory is not checked (give --host-mem)" in out, f"{code}, {out}")
    code, out, _ = tester.run(words, width=120)
    tester.check(code == 0 and "saving, whole" not in out, f"Nobody asked: {out}")
    # 8.03 billion parameters of 4 bytes, and 8 processes of 2 GiB.
    code, out, _ = tester.run(f"{words} --phases --host-mem 30G --quiet", width=400)
    tester.check(code == 1 and "loading needs 45.9 GiB of host memory on a node" in out, f"{code}, {out}")
    code, out, _ = tester.run(f"{words} --host-mem 30G --quiet")
    tester.check(code == 0, f"The steps fit: {code}, {out}")
    code, out, _ = tester.run(f"{words} --host-mem 30G --verbose", width=400)
    tester.check(code == 0 and "loading needs 45.9 GiB of host memory" in out, f"A plain answer warns: {out}")
    tester.run(f"{words} -o phases.json")
    report = json.loads(tester.run("simulate phases.json --phases --json")[1])
    names = [phase["phase"] for phase in report["job_phases"]]
    tester.check(names == ["loading", "first_step", "steady_step", "evaluation", "saving_whole", "saving_parts", "resuming_whole",
                           "resuming_parts"], f"{names}")
    larger = json.loads(tester.run("explain phases.json --phases --eval-batch 16 --json")[1])
    evaluations = [phase["live_peak_bytes"] for phase in (report["job_phases"][3], larger["job_phases"][3])]
    tester.check(evaluations[0] < evaluations[1], f"{evaluations}")
    code, out, err = tester.run(f"{words} --eval-batch 8")
    tester.check(code == 2 and not out and "Add --phases" in err, f"{code}, {err}")
    code, out, err = tester.run(f"{words} --phases --eval-batch 0")
    tester.check(code == 2 and not out and "--eval-batch" in err, f"{code}, {err}")


def main(root, binary):
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        check_phases(tester)
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
