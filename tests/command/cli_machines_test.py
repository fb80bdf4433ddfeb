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


def check_objectives(tester):
    """--objective of one machine: of every plan of the space nothing beats it in what was asked."""
    words = "gpt2 --gpus 4 --mem 16G"
    answers = {each: json.loads(tester.run(f"{words} --objective {each} --json")[1]) for each in ("memory", "tokens")}
    answers["time"] = json.loads(tester.run(f"{words} --json")[1])
    peaks = {each: answer["memory"]["device_peak_bytes"] for each, answer in answers.items()}
    rates = {each: answer["search"]["samples_per_second"] for each, answer in answers.items()}
    for each, answer in answers.items():
        tester.check(answer["search"]["objective"] == each, f"{each} is told as {answer['search']['objective']}.")
        tester.check(answer["search"]["optimality_gap"] <= 0.02, f"{each} leaves a gap of {answer['search']['optimality_gap']}.")
    tester.check(peaks["memory"] < min(peaks["time"], peaks["tokens"]), f"The least memory is not: {peaks}")
    tester.check(rates["tokens"] > max(rates["time"], rates["memory"]), f"The most samples a second are not: {rates}")
    tester.check("Least memory: no plan needs less" in tester.run(f"{words} --objective memory")[1], "memory makes no claim.")
    tester.check("Most samples: " in tester.run(f"{words} --objective tokens")[1], "tokens makes no claim.")
    for given, samples in (("--batch 2", {8, 16, 32, 64}), ("--set batch=2 --accumulate 3", {24}), ("--global-batch 32", {32})):
        plan = json.loads(tester.run(f"{words} --objective tokens --json {given}")[1])["plan"]
        found = plan["model"]["dimensions"]["batch"] * plan["accumulation"] * 4
        tester.check(found in samples, f"{given}: a step has {found} samples.")
    tester.check(tester.run("resnet18 --gpus 2 --gpu L4 --objective tokens --batch 8 --quiet")[0] == 0, "A given batch is refused.")
    for refused, why in (
            ("gpt2 --gpus 2 --gpu L4,A10G --objective memory", '"memory" applies to the plans of one machine.'),
            ("gpt2 --gpus 2 --mem 16G --objective tokens --runtime fsdp1,fsdp2", "Runtimes are compared by the time of a step."),
            ("gpt2 --gpus 2 --mem 16G --objective speed", 'Unknown objective "speed". Known are time, memory, cost and tokens.'),
            ("resnet18 --gpus 2 --gpu L4 --objective tokens", "The statistics of a batch norm are those of a micro-batch")):
        code, out, err = tester.run(refused)
        tester.check(code == 2 and not out and f"--objective: {why}" in err, f"{refused}: exit {code}, {err}")


def main(root, binary):
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        check_machines(tester)
        check_objectives(tester)
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
