#!/usr/bin/env python3
"""What must be true of any answer, of requests that are drawn: nothing here knows how a plan is found.

usage: properties_test.py PROJECT_ROOT BINARY [SEED]

* The same request gives the same bytes.
* `simulate` of the plan that is kept predicts what the search said of it, and a plan that fits is within the budget.
* The proof adds up, and no point of the front is dominated.
* More memory on each GPU never takes a plan away, nor makes the step longer by more than a tie.
* Of more GPUs, of which some may stay idle, no machine trains fewer samples a second.
* To fix what the answer chose changes nothing that is worse than a tie; to leave out what was fixed makes nothing worse.
* What no plan fits into, no plan of the one that needs least fits into; with as much as that needs, one fits.
* A suggestion that was searched gives exactly what it says; another one at least its step time, and fits when it says so.

FSDP_PROPERTIES=N: so many requests instead of a few.
"""

import json
import os
import pathlib
import random
import re
import shlex
import sys
import tempfile

sys.dont_write_bytecode = True
from cli_promises_test import with_flags  # noqa: E402
from cli_test import Tester  # noqa: E402

FEW = 6
TIE = 1.02  # Plans within it count as equally fast.
ROUNDING = 1 + 1e-9
MIB = 1 << 20

# With the memory of a GPU, in GiB, around which plans begin to fit.
MODELS = {"mlp": (1, 2), "resnet18": (1, 3), "gpt2": (2, 6), "vit_b_16": (2, 8), "bert_large": (3, 10),
          "qwen3_0_6b": (4, 16), "llama3_2_1b": (6, 24), "qwen3_tts": (3, 20), "t5_3b": (8, 48), "qwen3_1_7b": (6, 32),
          "whisper_large_v3": (6, 32), "llama3_1_8b": (12, 80)}
# Named ones, because another card stands in for an unnamed one with other memory. The first has less than some draw.
CARDS = (("L4", 22), ("A100-80G", 79), ("H200", 139))
MACHINES = ("--gpus 1", "--gpus 2", "--gpus 3", "--gpus 4", "--gpus 8", "--gpus 2 --nodes 2", "--gpus 4 --nodes 2",
            "--gpus 8 --nodes 2", "--gpus 4 --intra-link pcie-host")
# For the plan: what a user may fix, and the answer otherwise chooses.
FIXED = ("--activation-checkpointing none", "--activation-checkpointing full", "--activation-checkpointing 3",
         "--reshard true", "--reshard false", "--wrap blocks", "--wrap 2", "--wrap root", "--wrap sublayers",
         "--offload no", "--offload yes", "--gradient-sync every", "--gradient-sync last", "--wrap-ends yes",
         "--wrap-ends no", "--strategy FULL_SHARD", "--strategy NO_SHARD", "--shard 1")
WORK = ("--batch 1", "--batch 4", "--accumulate 4", "--global-batch 48", "--precision mixed", "--precision fp32",
        "--optimizer sgd", "--optimizer-impl fused", "--optimizer-state-dtype bfloat16", "--clip-grad-norm none",
        "--alloc-conf expandable_segments:True", "--backward-prefetch 2")


def draw_request(draw):
    """The words of a request, its memory in MiB apart, and what of the plan it fixes."""
    model = draw.choice(list(MODELS))
    least, most = MODELS[model]
    memory = int(1024 * least * (most / least) ** draw.random())
    work = {each.split()[0]: each for each in draw.sample(WORK, draw.choice((0, 0, 1, 2)))}
    if "--global-batch" in work:
        work.pop("--batch", None)
        work.pop("--accumulate", None)
    if "--optimizer" in work:
        work.pop("--optimizer-state-dtype", None)
    if work.get("--optimizer-impl") and work.get("--optimizer"):
        work.pop("--optimizer-impl")
    fixed = draw.choice((None, *FIXED)) if draw.random() < 0.5 else None
    cards = [card for card, gib in CARDS if memory * 1.25 < gib * 1024]
    return " ".join([model, draw.choice(MACHINES), "--gpu", draw.choice(cards), *work.values()]), memory, fixed


class Properties:
    def __init__(self, tester, draw):
        self.tester, self.draw = tester, draw
        self.seen = {}  # What was checked, by how often.

    def check(self, good, what, words):
        self.seen[what] = self.seen.get(what, 0) + 1
        self.tester.check(good, f"{what}: fsdp-plan {words}")

    def ask(self, words, *more):
        code, out, err = self.tester.run([*shlex.split(words), *more, "--json"])
        if code not in (0, 1):
            return None, err
        report = json.loads(out)
        self.check((code == 0) == (report["verdict"] == "fits"), "the exit code is the verdict", words)
        return report, out

    def check_answer(self, words, report):
        memory, search = report["memory"], report["search"]
        needed = memory["device_peak_bytes"] + memory["margin_bytes"]
        has_room = report["verdict"] == "fits" and "tight" not in memory
        self.check((needed <= memory["budget_bytes"]) == has_room or report["verdict"] != "fits", "what has room is within the budget", words)
        self.check(search["evaluated"] + sum(search["ruled_out"].values()) == search["space"], "the proof adds up", words)
        front = search["pareto"]
        self.check(all(a["device_peak_bytes"] < b["device_peak_bytes"] and a["step"] > b["step"]
                       for a, b in zip(front, front[1:])), "no point of the front is dominated", words)

    def check_simulated(self, words):
        plan = self.tester.folder / "drawn.json"
        code, out, err = self.tester.run([*shlex.split(words), "--json", "-o", str(plan), "--force"])
        found = json.loads(out)
        code, out, err = self.tester.run(["simulate", str(plan), "--json"])
        self.check(code in (0, 1), f"the plan can be simulated ({err.strip()})" if err else "the plan can be simulated", words)
        if code in (0, 1):
            simulated = json.loads(out)
            self.check(all(simulated[key] == found[key] for key in ("memory", "time", "traffic", "verdict")),
                       "simulate says what the search said", words)

    def check_not_worse(self, narrow, wide, what, words, words_of_wide):
        """`wide` may do all that `narrow` may. Expandable segments are turned on where nothing fits without them, and else
        suggested: then that is what is compared."""
        settings = [report["plan"]["runtime"]["allocator_settings"] for report in (narrow, wide)]
        if narrow["verdict"] == wide["verdict"] == "fits" and settings[0] and not settings[1]:
            wide, _ = self.ask(f"{words_of_wide} --alloc-conf {settings[0]}")
        if narrow["verdict"] == "fits":
            self.check(wide["verdict"] == "fits", f"{what.split()[0]} {what.split()[1]} takes no plan away", f"{words} ({what})")
        # One without room may be faster than one that has it.
        if narrow["verdict"] == wide["verdict"] == "fits" and "tight" not in narrow["memory"]:
            limit = narrow["time"]["step"] * TIE * ROUNDING
            # A search that a limit stopped says how far it may be off.
            limit *= 1 + max(0, (wide["search"]["optimality_gap"] or 0) - 0.02)
            self.check(wide["time"]["step"] <= limit, f"{what.split()[0]} {what.split()[1]} makes no step longer", f"{words} ({what})")

    def check_more_gpus(self, words, memory):
        found = re.search(r"--gpus (\d+)(?! --nodes)", words)
        if not found:
            return
        few, many = (self.ask(f"{words.replace(found[0], f'--at-most {gpus}')} --mem {memory}M")[0]
                     for gpus in (int(found[1]), 2 * int(found[1])))
        if few is None or few["verdict"] != "fits":
            return
        self.check(many is not None and many["verdict"] == "fits", "more GPUs take no plan away", f"{words} --mem {memory}M")
        if many is not None and many["verdict"] == "fits":
            least = few["search"]["samples_per_second"] / TIE / ROUNDING
            self.check(many["search"]["samples_per_second"] >= least, "more GPUs train no fewer samples a second",
                       f"{words} --mem {memory}M")

    def check_no(self, words, report):
        memory = report["memory"]
        needed = memory["device_peak_bytes"] + memory["margin_bytes"]
        self.check(needed > memory["budget_bytes"], "what does not fit is above the budget", words)
        enough = -(-needed // MIB) + 1
        there, _ = self.ask(f"{words} --mem {enough}M")
        if there is not None:
            self.check(there["verdict"] == "fits", "with what the plan that needs least needs, one fits", f"{words} --mem {enough}M")

    def check_suggestion(self, words, report):
        remedies = report["explain"]["remedies"]
        if not remedies:
            return
        remedy = self.draw.choice(remedies)
        typed = shlex.join(with_flags(words, remedy["flag"]))
        given, problem = self.ask(typed)
        self.check(given is not None, "a suggestion can be typed" + (f" ({problem.strip()})" if given is None else ""), typed)
        if given is None or remedy["verdict"] != "fits":
            return
        self.check(given["verdict"] == "fits", "a suggestion that fits fits", typed)
        step, promised = given["time"]["step"], report["time"]["step"] + remedy["delta_seconds"]
        if remedy["priced"] == "search":
            self.check(abs(step - promised) < 1e-9, "a searched suggestion gives its step", typed)
        else:
            self.check(step <= promised * TIE * ROUNDING, "a suggestion takes no longer than it says", typed)

    def check_request(self, words, memory, fixed):
        base = f"{words} --mem {memory}M"
        report, out = self.ask(base)
        if report is None:
            return False
        self.check_answer(base, report)
        if self.draw.random() < 0.2:
            self.check(self.ask(base)[1] == out, "the same request gives the same bytes", base)
        more = f"{words} --mem {int(memory * 1.25)}M"
        larger, _ = self.ask(more)
        self.check_not_worse(report, larger, "more memory", base, more)
        if self.draw.random() < 0.3:
            self.check_more_gpus(words, memory)
        if fixed is not None:
            narrow, _ = self.ask(f"{base} {fixed}")
            if narrow is not None:
                self.check_answer(f"{base} {fixed}", narrow)
                self.check_not_worse(narrow, report, f"leaving {fixed} out", base, base)
        if report["verdict"] == "fits":
            self.check_simulated(base)
        else:
            self.check_no(words, report)
        self.check_suggestion(base, report)
        return True


def main():
    root, binary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    count = int(os.environ.get("FSDP_PROPERTIES", FEW))
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        draw = random.Random(sys.argv[3] if len(sys.argv) > 3 else "properties")
        properties = Properties(tester, draw)
        answered = sum(properties.check_request(*draw_request(draw)) for _ in range(count))
        for what, times in sorted(properties.seen.items()):
            print(f"{times:6} {what}")
        print(f"{answered} of {count} requests have an answer")
        if answered < count * 0.6:
            tester.problems.append("Most requests make no sense.")
        for problem in tester.problems:
            print(f"FAILED: {problem}")
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main())
