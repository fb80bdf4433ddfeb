#!/usr/bin/env python3
"""A captured model is planned, simulated and explained as a shipped one is; what it cannot be asked is refused in a sentence.

usage: cli_captured_test.py PROJECT_ROOT BINARY
"""

import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
from cli_test import Tester  # noqa: E402


def check_plan(tester, model, plan):
    code, out, errors = tester.run(f"{model} --gpus 8 --mem 24G --global-batch 64 --json -o {plan}")
    tester.check(code == 0, f"Exit code {code}: {errors}")
    report = json.loads(out)
    # 8 samples for each of 8 GPUs: of the micro-batches 8, 4, 2 and 1 all but the first were captured.
    dimensions = report["plan"]["model"]["dimensions"]
    tester.check(dimensions == {"batch": 4, "seq": 64} and report["plan"]["accumulation"] == 2, str(dimensions))
    simulated = json.loads(tester.run(f"simulate {plan} --json")[1])
    for key in ("memory", "traffic", "time"):
        tester.check(simulated[key] == report[key], f"simulate {key} is another one")
    code, out, errors = tester.run(f"explain {plan}")
    tester.check(code == 0 and out.startswith("FITS"), f"explain: {out}{errors}")
    code, out, errors = tester.run(f"export {plan} --to chrome -o {tester.folder / 'step.json'}")
    tester.check(code == 0, f"export: {errors}")
    code, out, _ = tester.run(f"{model} --gpus 8 --mem 300M")
    tester.check(code == 1 and out.startswith("NO PLAN FITS"), f"Exit code {code}: {out}")
    _, out, _ = tester.run(f"{model} --gpus 8 --mem 24G")
    other = "The model was captured on a stub NVIDIA H100 80GB HBM3."
    is_said = [other in " ".join(tester.run(f"{model} --gpus 8 --gpu {gpu} --verbose")[1].split()) for gpu in ("L4", "'H100 SXM'")]
    tester.check(is_said == [True, False], f"{other} {is_said}")
    tester.check("from the capture" in out and "Selective checkpointing was not searched" in out, out)


def check_refusals(tester, model, plan):
    machines = "--gpus 8 --mem 24G"
    other = "which no other implementations can replace. Leave --flavor"
    for words, sentence in (
        (f"{model} {machines} --batch 3", "small was not captured with batch 3, seq 64. It was with batch 2, seq 64; batch 1, seq 64;"),
        (f"{model} {machines} --seq 128", "small was not captured with batch 2, seq 128."),
        (f"{model} {machines} --freeze lm_head", "The captured script trains \"lm_head.weight\";"),
        (f"{model} {machines} --precision fp32", "The capture has no recording in float32. It has bfloat16:"),
        (f"{model} {machines} --activation-checkpointing selective", "no recording with selective checkpointing in bfloat16."),
        (f"{model} {machines} --flavor torchtitan", other),
        (f"simulate {plan} --precision fp32", "The capture has no recording in float32."),
        (f"models {model} --expanded", "It is a capture of small: it has a step's costs, not its computation."),
        (f"execute {plan}", "It is a capture of small:"),
        (f"execute {plan} --proof", "It is a capture of small:"),
        (f"rehearse {plan} --python python3", "The captured command names its Python."),
    ):
        code, out, errors = tester.run(words)
        tester.check(code == 2 and not out and sentence in errors, f"{words}: exit code {code}: {out}{errors}")


def check_unknown_keys(tester, model):
    """A key of any object of the file that nobody reads is said with the one that was meant."""
    places = {"": lambda d: d, "/optimizer": lambda d: d["optimizer"], "/modules/0": lambda d: d["modules"][0],
              "/parameters/0": lambda d: d["parameters"][0], "/buffers/0": lambda d: d["buffers"][0],
              "/points/0": lambda d: d["points"][0], "/points/0/blocks/0": lambda d: d["points"][0]["blocks"][0],
              "/points/0/blocks/0/values/0": lambda d: d["points"][0]["blocks"][0]["values"][0],
              "/points/0/blocks/0/ops/0": lambda d: d["points"][0]["blocks"][0]["ops"][0],
              "/points/0/blocks/0/tapes/0": lambda d: d["points"][0]["blocks"][0]["tapes"][0],
              "/points/0/calls/0": lambda d: d["points"][0]["calls"][0]}
    changed = tester.folder / "unknown.model.json"
    for place, of in places.items():
        captured = json.loads(model.read_text())
        of(captured)["accumulatoin"] = 2
        changed.write_text(json.dumps(captured))
        code, out, errors = tester.run(f"{changed} --gpus 4 --mem 24G")
        tester.check(code == 2 and not out and f"{place}/accumulatoin: Unknown key \"accumulatoin\"." in errors,
                     f"unknown key at {place}: exit code {code}: {out}{errors}")


def check_muon(tester, model):
    """The same decoder, whose layers' matrices a script gives to torch.optim.Muon."""
    captured = json.loads(model.read_text())
    captured["optimizer"]["muon"] = {"nesterov": True, "ns_steps": 5}
    for parameter in captured["parameters"]:
        if len(parameter["shape"]) == 2 and "layers." in parameter["name"]:
            parameter["muon"] = True
    trained = tester.folder / "muon.model.json"
    trained.write_text(json.dumps(captured))
    plan = tester.folder / "muon.plan.json"
    code, out, errors = tester.run(f"{trained} --gpus 4 --mem 24G --strategy FULL_SHARD --json -o {plan}")
    tester.check(code == 0, f"Exit code {code}: {errors}")
    report = json.loads(out)
    sent = [row for row in report["traffic"]["collectives"] if row["phase"] == "optimizer" and row["dtype"] == "bfloat16"]
    tester.check(len(sent) > 0, "Muon sends nothing")
    tester.check(report["plan"]["optimizer"]["muon"]["ns_steps"] == 5, str(report["plan"]["optimizer"]))
    simulated = json.loads(tester.run(f"simulate {plan} --json")[1])
    tester.check(simulated["memory"] == report["memory"], "simulate is another one")
    tester.check("Muon and AdamW" in " ".join(tester.run(f"{trained} --gpus 4 --mem 24G")[1].split()), "Muon is not said")
    out = tester.run(f"{trained} --gpus 4 --mem 24G --optimizer adamw")[1]
    tester.check("AdamW" in out and "Muon" not in out, out)
    for words, sentence in (
        (f"{trained} --gpus 4 --mem 24G --offload yes", "Muon on the host is not predicted."),
        (f"{trained} --gpus 4 --mem 24G --runtime fsdp1", "Muon works on matrices, and FSDP1 has flat parameters."),
        (f"{trained} --gpus 4 --mem 24G --runtime zero2", "Muon works on matrices, and ZeRO updates flat parts of them."),
        (f"{trained} --gpus 3 --mem 24G --strategy FULL_SHARD", "does not divide by 3 GPUs"),
        (f"export {plan} --to trainer", "A trainer's configuration names one optimizer"),
    ):
        code, out, errors = tester.run(words)
        tester.check(code == 2 and not out and sentence in errors, f"{words}: exit code {code}: {out}{errors}")
    code, out, errors = tester.run(f"export {plan} --to fsdp2")
    tester.check(code == 0 and "torch.optim.Muon of the script's matrices" in out, f"{out}{errors}")


def main(root, binary):
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        model = root / "tests/golden/captured/small_decoder.json"
        plan = tester.folder / "plan.json"
        check_plan(tester, model, plan)
        check_refusals(tester, model, plan)
        check_unknown_keys(tester, model)
        check_muon(tester, model)
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
