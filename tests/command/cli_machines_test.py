#!/usr/bin/env python3
"""Which of several machines is best: each row is what the machine's own command answers, and the rest of the answer is
that of the best one.

usage: cli_machines_test.py PROJECT_ROOT BINARY
"""

import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
from cli_test import Tester  # noqa: E402


def check_machines(tester):
    words = "mlp --gpu T4,L4 --gpus 1,2 --objective cost --price T4=0.5,1.5"
    plan = tester.folder / "best.json"
    code, out, _ = tester.run(f"{words} --json -o {plan}")
    report = json.loads(out)
    machines = report["machines"]
    tester.check(code == 0 and len(machines) == 4, f"Exit code {code}, machines {machines}")
    for machine in machines:
        gpu = machine["machine"].split("x ")[1]
        alone = json.loads(tester.run(f"mlp --gpu {gpu} --gpus {machine['gpus']} --json")[1])
        for key, value in (("step", alone["time"]["step"]), ("device_peak_bytes", alone["memory"]["device_peak_bytes"]),
                           ("verdict", alone["verdict"])):
            tester.check(machine[key] == value, f"{machine['machine']}: {key} is {machine[key]}, alone {value}")
        tester.check(machine["price_per_hour"] == machine["gpus"] * (0.5 if gpu == "T4" else 1.5), str(machine))
    prices = [machine["price_per_sample"] for machine in machines]
    tester.check(prices == sorted(prices), f"The cheapest machine is not the first one: {prices}")
    tester.check(report["time"]["step"] == machines[0]["step"], "The report is not that of the best machine.")
    simulated = json.loads(tester.run(f"simulate {plan} --json")[1])
    tester.check(simulated["time"]["step"] == machines[0]["step"], "The plan that is kept is not the best one.")
    _, csv, _ = tester.run(f"{words} --format csv")
    tester.check(f"machines,{machines[0]['machine']}," in csv, "CSV lacks the machines.")
    _, quiet, _ = tester.run(f"{words} --quiet")
    tester.check(machines[0]["machine"] in quiet, "--quiet does not say which machine.")
    # The model on the standard input, which can be read once.
    spec = (tester.library / "mlp.json").read_text(encoding="utf-8")
    _, piped, _ = tester.run(f"- {words[4:]} --json", stdin=spec)
    tester.check(json.loads(piped)["machines"] == machines, "From the standard input the answer is another.")


def main(root, binary):
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        check_machines(tester)
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
