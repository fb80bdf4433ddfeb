#!/usr/bin/env python3
"""The largest batch and the longest sequence that fit: what is printed, and that the plan of it can be typed.

usage: cli_fit_test.py PROJECT_ROOT BINARY
"""

import json
import pathlib
import re
import shlex
import sys
import tempfile

sys.dont_write_bytecode = True
from cli_test import Tester  # noqa: E402


def rows_of(tester, words):
    code, out, err = tester.run(f"fit {words} --json")
    tester.check(code in (0, 1), f"fit {words}: exit {code}: {err}")
    return code, json.loads(out)["fit"]


def check_library(tester):
    code, rows = rows_of(tester, "mlp")
    cards = json.loads(tester.run("gpus --json")[1])["gpus"]
    tester.check(code == 0 and len(rows) == len(cards), f"Exit {code}, {len(rows)} rows of {len(cards)} cards")
    sizes = [row["memory_bytes"] for row in rows]
    tester.check(sizes == sorted(sizes), f"The rows are not by memory: {sizes}")
    tester.check(not any("sequence" in key for key in rows[0]), f"An MLP has no sequences: {rows[0]}")


def check_figures(tester):
    words = "gpt2 --gpus 2 --gpu L4,T4 --seq 512"
    code, rows = rows_of(tester, words)
    tester.check(code == 0, f"Exit code {code}")
    _, text, _ = tester.run(f"fit {words}")
    tester.check(text.startswith("FITS"), text)
    for row in rows:
        machine = row["machine"].split("x ")[1]
        for how in ("none", "full"):
            tester.check(row[f"micro_batch_checkpointing_{how}"] > 0, str(row))
            tester.check(f"{row[f'micro_batch_checkpointing_{how}']}" in text, f"Not in the table: {row}")
        tester.check(f"2x {machine}" in text, text)
    # The command at the end gives the plan of the first figure.
    typed = " ".join(line.strip() for line in text[text.index("\nplan"):].splitlines()).split("fsdp-plan ")[1]
    code, answer, err = tester.run(f"{typed} --quiet")
    tester.check(code == 0 and answer.startswith("FITS"), f"{typed}: exit {code}\n{answer}{err}")
    batch = rows[0]["micro_batch_checkpointing_none"]
    tester.check(shlex.split(typed)[shlex.split(typed).index("--batch") + 1] == str(batch), typed)
    code, answer, _ = tester.run(f"{typed.replace(f'--batch {batch}', f'--batch {batch + 1}')} --quiet --strict")
    tester.check(code == 1, f"One sample more fits with room to spare: {answer}")
    _, csv, _ = tester.run(f"fit {words} --format csv")
    tester.check("micro_batch_checkpointing_full" in csv.splitlines()[0], csv)
    _, quiet, _ = tester.run(f"fit {words} --quiet")
    tester.check(quiet.startswith("FITS") and "batch" not in quiet, quiet)


def check_how_far_it_runs_without_room(tester):
    """What is said to run does, and gives back its cache as often; what runs without room alone is no "no"."""
    words = "gpt2_large --gpus 2 --mem 16G"
    _, text, _ = tester.run(f"fit {words} --quiet")
    said = re.search(r"(\d+) with full checkpointing \((\d+) would run tight, emptying its cache (\d+) times a step\)", " ".join(text.split()))
    tester.check(said and int(said[1]) < int(said[2]), text)
    if said:
        typed = f"{words} --batch {said[2]} --accumulate 1 --activation-checkpointing full --offload no --quiet"
        code, out, _ = tester.run(typed)
        tester.check(code == 0 and out.startswith("FITS, TIGHT") and f"empties its cache {said[3]} times" in " ".join(out.split()), f"{typed}: {out}")
    words = "gpt2_large --gpus 2 --mem 1290MiB --offload yes"
    codes = [tester.run(f"{command} --quiet") for command in (f"fit {words}", f"{words} --batch 1 --accumulate 1")]
    tester.check(all(code == 0 and out.startswith("FITS, TIGHT") for code, out, _ in codes), f"{codes}")


def check_no(tester):
    code, rows = rows_of(tester, "llama3_1_405b --gpus 1 --gpu L4")
    tester.check(code == 1 and set(rows[0].values()) >= {0}, f"Exit {code}: {rows}")
    _, text, _ = tester.run("fit llama3_1_405b --gpus 1 --gpu L4")
    tester.check(text.startswith("DOES NOT FIT") and "--offload" not in text, text)
    _, text, _ = tester.run("fit llama3_1_70b --gpus 1 --gpu L4 --offload no")
    tester.check(text.startswith("DOES NOT FIT") and "--offload yes" in text, text)
    code, rows = rows_of(tester, "llama3_1_70b --gpus 1 --gpu L4")
    tester.check(code == 0 and "CPU offload" in rows[0]["machine"], f"Exit {code}: {rows}")
    code, rows = rows_of(tester, "llama3_1_8b --gpus 8 --gpu L4 --offload yes")
    tester.check(code == 0, f"CPU offload makes no difference: {rows}")


def check_capture(tester):
    model = tester.root / "tests/golden/captured/small_decoder.json"
    batches = {point["dimensions"]["batch"] for point in json.loads(model.read_text(encoding="utf-8"))["points"]}
    code, rows = rows_of(tester, f"{model} --gpus 2 --gpu L4")
    tester.check(code == 0 and rows[0]["micro_batch_checkpointing_none"] == max(batches), f"{rows}, of {batches}")
    _, text, _ = tester.run(f"fit {model} --gpus 2 --gpu L4")
    tester.check(f"{max(batches)} or more" in text and "captured" in text, text)


def check_mistakes(tester):
    for words, wanted in (("fit", "Missing argument: MODEL"), ("fit gpt2 --global-batch 8", "does not take this option"),
                          ("fit gpt2 --gpu L4,X9", "X9"), ("fit gpt2 --gpu L4,,T4", "empty name"),
                          ("fit gpt2 --batches 1,2", "fsdp-plan fit -- python train.py"),
                          ("fit gpt3 --gpus 4 --mem 16G", "gpt2"), ("fit --gpus 2 --", "There is no command")):
        code, out, err = tester.run(words)
        tester.check(code == 2 and wanted in err and not out, f"{words}: exit {code}, {out}{err}")
        tester.check("machines are missing" not in err, f"{words}: {err}")


def main(root, binary):
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        for check in (check_library, check_figures, check_how_far_it_runs_without_room, check_no, check_capture, check_mistakes):
            check(tester)
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
