#!/usr/bin/env python3
"""Runs whose batches differ in length: verdicts, exit codes, what is printed, and what is refused.

usage: cli_lengths_test.py PROJECT_ROOT BINARY
"""

import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
from cli_test import Tester  # noqa: E402

WORDS = "gpt2 --gpus 2 --gpu L4 --batch 4 --shard 2"
LENGTHS = [24 + 10 * (i * 31 % 97) for i in range(97)]  # 24 to 984.


def write(tester, name, text):
    (tester.folder / name).write_text(text, encoding="utf-8")


def report_of(tester, words):
    code, out, err = tester.run(f"{words} --json")
    tester.check(code in (0, 1), f"{words}: exit {code}: {err}")
    return code, json.loads(out)


def check_fits(tester):
    words = f"{WORDS} --lengths l.txt --steps 40"
    code, report = report_of(tester, words)
    run = report["lengths"]
    tester.check(code == 0 and run["verdict"] == "fits" and "tight" not in run, str(run))
    tester.check(run["samples"] == 97 and run["cut"] == 0 and run["longest"] == 984 and run["micro_batch"] == 4, str(run))
    tester.check(report["plan"]["model"]["dimensions"]["seq"] == 984, "The plan is not that of the longest sample.")
    tester.check(report["plan"]["runtime"]["implementations"]["padding_mask"] is True, "The plan has no mask of padding.")
    tester.check(run["planned"]["flushes"] == 0 and run["probability_out_of_memory"] == 0, str(run))
    tester.check(0 < run["planned"]["padding"] < 1, str(run["planned"]))
    tester.check([row["what"] for row in run["changes"]][:2] == ["as planned", "expandable segments"], str(run["changes"]))
    tester.check(tester.run(f"{words} --json")[1] == json.dumps(report) or
                 json.loads(tester.run(f"{words} --json")[1]) == report, "The same request has another answer.")
    other = report_of(tester, f"{words} --seed 5")[1]["lengths"]
    tester.check(other["batch_tokens"] != run["batch_tokens"] or other["planned"] != run["planned"], "The seed changes nothing.")
    _, text, _ = tester.run(words)
    tester.check(text.startswith("FITS") and "\nlongest" in text and "\nlengths" in text and "\nchanges" in text, text)
    tester.check("40 steps on each of 4 GPUs drawn" in " ".join(text.split()), text)
    tester.check("PYTORCH_ALLOC_CONF=expandable_segments:True" in text and "pad_to_multiple_of=64" in text, text)
    _, quiet, _ = tester.run(f"{words} --quiet")
    tester.check(quiet.startswith("FITS") and "pad_to_multiple_of" not in quiet, quiet)


def check_mask(tester):
    with_mask = report_of(tester, f"{WORDS} --lengths l.txt --steps 10")[1]["lengths"]
    without = report_of(tester, f"{WORDS} --lengths l.txt --steps 10 --padding-mask no")[1]["lengths"]
    tester.check(with_mask["planned"]["allocated_peak_bytes"] > without["planned"]["allocated_peak_bytes"], "A mask is free.")
    code, _, err = tester.run("resnet18 --gpus 2 --gpu L4 --padding-mask yes")
    tester.check(code == 2 and "--padding-mask: ResNet" in err.replace("resnet", "ResNet"), err)


def check_cut(tester):
    _, report = report_of(tester, f"{WORDS} --lengths l.txt --steps 10 --seq 512")
    run = report["lengths"]
    tester.check(run["limit"] == 512 and run["cut"] == sum(length > 512 for length in LENGTHS), str(run))
    tester.check(run["sample_tokens"]["most"] == 512, str(run))


def check_small_cards(tester):
    """The plan of a card with room on smaller ones."""
    code, _, err = tester.run(f"{WORDS} --lengths l.txt --steps 10 -o plan.json")
    tester.check(code == 0, err)
    run = report_of(tester, "simulate plan.json --lengths l.txt --steps 100")[1]["lengths"]
    tester.check(run["verdict"] == "fits", str(run))
    reserved, allocated, outside = run["planned"]["reserved_peak_bytes"], run["planned"]["allocated_peak_bytes"], run["outside_bytes"]
    words = "simulate plan.json --lengths l.txt --steps 100 --mem {}B"
    code, report = report_of(tester, words.format(outside + reserved - (4 << 20)))
    run = report["lengths"]
    tester.check(code == 0 and run["tight"] and run["planned"]["flushes"] > 0, str(run))
    code, text, _ = tester.run(words.format(outside + reserved - (4 << 20)))
    tester.check(text.startswith("FITS, TIGHT") and "in a hundred steps" in " ".join(text.split()), text)
    tester.check(tester.run(words.format(outside + reserved - (4 << 20)) + " --strict")[0] == 1, "--strict accepts it.")
    code, report = report_of(tester, words.format(outside + allocated - (8 << 20)))
    run = report["lengths"]
    tester.check(code == 1 and run["verdict"] == "does_not_fit", str(run))
    tester.check(run["planned"]["gpus_out_of_memory"] > 0 and run["probability_out_of_memory"] > 0, str(run))
    code, text, _ = tester.run(words.format(outside + allocated - (8 << 20)))
    tester.check(code == 1 and text.startswith("DOES NOT FIT") and "runs out of memory" in text, text)


def check_mistakes(tester):
    write(tester, "bad.txt", "12\n-3\n0\nlong\n")
    write(tester, "empty.txt", "\n")
    write(tester, "long.txt", "12\n5000\n")
    for words, wanted in ((f"{WORDS} --lengths bad.txt", "-3"), (f"{WORDS} --lengths empty.txt", "no lengths"),
                          (f"{WORDS} --lengths none.txt", "no such file"), (f"{WORDS} --lengths long.txt", "1024"),
                          (f"{WORDS} --lengths l.txt --set seq=512", "--seq 512"), (f"{WORDS} --steps 5", "--lengths"),
                          (f"{WORDS} --seed 5", "--lengths"), (f"{WORDS} --lengths l.txt --steps 0", "--steps"),
                          (f"{WORDS} --lengths l.txt --steps 2000000", "100000"), (f"{WORDS} --lengths -", "Name a file"),
                          ("resnet18 --gpus 2 --gpu L4 --lengths l.txt", "seq"),
                          ("fit gpt2 --gpus 2 --lengths l.txt", "does not take this option")):
        code, out, err = tester.run(words)
        tester.check(code == 2 and wanted in err and not out, f"{words}: exit {code}, {out}{err}")


def main(root, binary):
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        write(tester, "l.txt", "\n".join(map(str, LENGTHS)))
        for check in (check_fits, check_mask, check_cut, check_small_cards, check_mistakes):
            check(tester)
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
