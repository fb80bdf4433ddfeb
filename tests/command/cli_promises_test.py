#!/usr/bin/env python3
"""What the command prints can be typed: every value that --help names, and every remedy, which keeps what it promised.

usage: cli_promises_test.py PROJECT_ROOT BINARY
"""

import concurrent.futures
import json
import math
import os
import pathlib
import re
import shlex
import sys
import tempfile

from cli_test import HEADLINE, Tester

# Requests of which each remedy is typed. Small models: each remedy is a search.
REQUESTS = (
    "gpt2 --gpu T4 --gpus 3 --batch 3 --seq 512 --nodes 1",
    "gpt2 --gpus 4 --mem 2G --batch 8 --seq 1024 --offload no",
    "gpt2_medium --gpu A10G --gpus 1 --mem 20G --global-batch 1 --seq 512",
    "gpt2 --gpus 2 --mem 3G --global-batch 12 --seq 1024",
    "gpt2 --gpus 2 --mem 2G --global-batch 12 --batch 3 --accumulate 2 --seq 1024",
    "qwen3_0_6b --gpu L4 --gpus 4 --precision fp32 --seq 2048",
    "qwen3_0_6b --gpu L4 --gpus 2 --precision mixed --seq 1024 --offload yes --host-mem 8G",
    "gpt2_medium --gpu T4 --gpus 4 --nodes 2 --offload yes --host-mem 16G --seq 512",
    "gpt2 --gpu 'A100 40GB SXM' --gpus 4 --mem 2G --seq 1024 --shard 4 --batch 8",
    "gpt2_large --gpu T4 --gpus 1 --offload no --batch 2 --seq 1024",
    "resnet18 --gpus 2 --mem 2G --batch 256",
    "mlp --cluster 'DGX H100' --gpus 4",
)


# As they stand in an answer.
SUGGESTION_KINDS = ("free", "training", "machine")


def options_of(words):
    """The words of a line as its model and its options, each with its words."""
    model, options, last = [], [], None
    for word in words:
        if word.startswith("--"):
            last = [word]
            options.append(last)
        elif last is None:
            model.append(word)
        else:
            last.append(word)
    return model, options


def with_flags(request, flags):
    """The request with a remedy's options in the place of its own."""
    model, options = options_of(shlex.split(request))
    _, wanted = options_of(shlex.split(flags))
    adds = ("--freeze", "--trainable")
    replaced = {each[0] if each[0] != "--set" else (each[0], each[1].split("=")[0]) for each in wanted}
    kept = [each for each in options
            if each[0] in adds or (each[0] if each[0] != "--set" else (each[0], each[1].split("=")[0])) not in replaced]
    return model + [word for each in kept + wanted for word in each]


def test_remedies_fit_as_promised(tester, jobs):
    """Each remedy is taken, and where it is said to fit there is a plan that fits."""
    def ask(request):
        code, out, err = tester.run(f"{request} --json")
        tester.check(code in (0, 1), f"fsdp-plan {request} ends with {code}: {err}")
        return [(request, each) for each in json.loads(out)["explain"]["remedies"]] if out else []

    def type_it(pair):
        request, remedy = pair
        words = with_flags(request, remedy["flag"])
        code, _, err = tester.run(words + ["--quiet"])
        line = shlex.join(words)
        tester.check(code in (0, 1), f"\"{remedy['what']}\" of fsdp-plan {request} cannot be typed.\n  {line}\n  {err}")
        if remedy["verdict"] == "fits":
            tester.check(code == 0, f"\"{remedy['what']}\" of fsdp-plan {request} does not fit.\n  {line}")

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        pairs = [pair for found in pool.map(ask, REQUESTS) for pair in found]
        list(pool.map(type_it, pairs))
    kinds = {remedy["flag"].split()[0] for _, remedy in pairs}
    for kind in ("--gpus", "--batch", "--seq", "--activation-checkpointing", "--offload", "--freeze", "--host-mem", "--mem", "--gpu"):
        tester.check(kind in kinds, f"No request has a remedy with {kind}: {sorted(kinds)}.")
    for request, remedy in pairs:
        flags = dict((each[0], each[1:]) for each in options_of(shlex.split(remedy["flag"]))[1])
        if "--gpus" in flags:
            tester.check(int(flags["--gpus"][0]) in (1, 2, 3, 4, 8), f"No node has {flags['--gpus'][0]} GPUs: {request}")


def test_values_in_help_are_accepted(tester, jobs):
    """Each value that --help names for an option is taken, and means itself."""
    base = {"--intra-link": "--gpu H100 --gpus 2 --intra-bandwidth 100GB/s", "--network": "--gpu T4 --gpus 1 --nodes 2",
            "--packed-attention": "--gpu L4 --gpus 2 --packing 512",
            "--ddp-arguments": "--gpu L4 --gpus 2 --runtime ddp --precision bf16",
            "--optimizer": "--gpu L4 --gpus 2 --runtime ddp --precision bf16"}  # Some update no DTensors.
    needs = {"--separate-reduce-scatter yes": "--gpu L4 --gpus 2 --torch 2.13", "--cuda-graphs yes": "--gpu L4 --gpus 2 --torch 2.13",
             "--precision fp16": "", "--precision autocast": "--gpu L4 --gpus 2 --runtime ddp",
             "--optimizer-impl fused": "", "--strategy HYBRID_SHARD": "--gpu L4 --nodes 2 --gpus 2",
             "--strategy _HYBRID_SHARD_ZERO2": "--gpu L4 --nodes 2 --gpus 2",
             "--runtime ddp": "--gpu L4 --gpus 2 --precision bf16", "--offload nvme": "--gpu L4 --gpus 2 --runtime zero3"}
    help_text = tester.run("--help-all")[1]
    # The completions have the choices, one option a line.
    script = tester.run("completions fish")[1]
    commands = []
    for option, choices in re.findall(r"-l ([a-z-]+) [^\n]*?-a '([^']+)'", script):
        option = f"--{option}"
        if option not in help_text:
            continue
        for value in choices.split():
            machines = needs.get(f"{option} {value}") or base.get(option, "--gpu L4 --gpus 2")
            model = "gpt2"
            if value.startswith(("torchtitan", "automodel")) or value == "flex":  # They have no GPT-2, and FlexAttention no dropout.
                model = "llama3_1_8b"
            model = "llama2_7b" if option == "--attention" else model  # Not every kernel drops scores, or takes grouped heads.
            rows = "--batch 1 --seq 128"
            if option == "--packed-attention" or value == "torchtitan-0.3":
                rows = "" if "--packing" in machines else "--packing 512"
            commands.append((option, value, f"{model} {machines} {rows} {option} {value} --json"))

    def ask(entry):
        option, value, words = entry
        code, out, err = tester.run(words)
        tester.check(code in (0, 1), f"{option} {value} is refused: {err}")
        if option in ("--intra-link", "--network") and code in (0, 1):
            cluster = json.loads(out)["plan"]["cluster"] if "cluster" in json.loads(out)["plan"] else None
            part = {"--intra-link": "intra_node", "--network": "network"}[option]
            tester.check(cluster is None or cluster[part]["kind"] == value, f"{option} {value} means {cluster[part]}.")

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(ask, [entry for entry in commands if entry[0] not in OF_OTHER_COMMANDS]))
    seen = {option for option, _, _ in commands}
    for option in ("--intra-link", "--network", "--precision", "--strategy", "--optimizer-impl", "--optimizer-state-dtype", "--flavor"):
        tester.check(option in seen, f"The completions do not name the values of {option}: {sorted(seen)}.")


def test_suggestions_give_what_they_promise(tester, jobs):
    """Each is typed, and gives what was promised: exactly after a search, else at most the step time, and that it fits."""
    seen = set()
    for words in (HEADLINE, "qwen3_tts --gpus 4 --mem 2G", "gpt2 --gpu L4 --gpus 2 --mem 4G",
                  "llama3_2_1b --gpu RTX4090 --gpus 4 --offload no --global-batch 32",
                  "llama3_2_1b --gpu H200 --gpus 1 --precision mixed --mem 9177M",
                  "gpt2 --gpu L4 --gpus 2 --mem 8G --accumulate 8 --gradient-sync every"):
        report = json.loads(tester.run(words + " --json")[1])
        fits = report["verdict"] == "fits" and "tight" not in report["memory"]
        remedies = report["explain"]["remedies"]
        good = [r for r in remedies if r["verdict"] == "fits" and "tight" not in r]
        tester.check(remedies[:len(good)] == good, f"{words}: what does not fit stands before what does.")
        # Where the plan fits, those that make it faster by a hundredth stand first.
        least = -0.01 * report["time"]["step"] if report["verdict"] == "fits" else math.inf
        steps = [(r["delta_seconds"] > least, SUGGESTION_KINDS.index(r["kind"]), r["delta_seconds"]) for r in good]
        tester.check(steps == sorted(steps), f"{words}: suggestions are not in the order of their kind and time.")
        for remedy in good[:2] if words == HEADLINE else good:  # The others of the headline take a second each.
            typed = with_flags(words, remedy["flag"])
            code, out, err = tester.run([*typed, "--json"])
            tester.check(code == 0, f"{shlex.join(typed)} ends with {code}: {err}")
            if code != 0:
                continue
            given = json.loads(out)
            promised = report["time"]["step"] + remedy["delta_seconds"]
            step = given["time"]["step"]
            if remedy["priced"] == "search":
                kept = abs(step - promised) < 1e-12
                memory = given["memory"]["device_peak_bytes"] - report["memory"]["device_peak_bytes"]
                kept = kept and memory == remedy["delta_bytes"]
            else:
                kept = step <= promised * 1.02 * (1 + 1e-12)
            tester.check(kept, f"{shlex.join(typed)} takes {step} s; {promised} was promised ({remedy['priced']}).")
            seen.add((fits, remedy["priced"], remedy["flag"].split()[0]))
    tester.check(any(fits and priced == "search" for fits, priced, _ in seen), f"No search was priced: {seen}.")
    tester.check(any(not fits for fits, _, _ in seen), "No suggestion makes a plan fit.")
    flags = {flag for _, _, flag in seen}
    tester.check({"--gradient-sync", "--optimizer-impl"} <= flags, f"Gradient sync and optimizer are not suggested: {flags}.")


def test_a_tie_costs_no_memory(tester, jobs):
    """More memory does not make the answer larger for a step that is as good as the same."""
    answers = []
    for memory in ("24G", "28G", "32G"):
        report = json.loads(tester.run(f"qwen3_1_7b --gpu L4 --gpus 4 --seq 2048 --mem {memory} --json")[1])
        answers.append((report["time"]["step"], report["memory"]["device_peak_bytes"]))
        front = report["search"]["pareto"]
        for smaller, larger in zip(front, front[1:]):
            tester.check(smaller["device_peak_bytes"] < larger["device_peak_bytes"] and smaller["step"] > larger["step"],
                         f"A point of the front is dominated: {smaller} by {larger}.")
        tester.check(0 <= report["search"]["optimality_gap"] <= 0.02, "The tie is not stated.")
    for (step, peak), (next_step, next_peak) in zip(answers, answers[1:]):
        tester.check(step - next_step > 0.02 * next_step or next_peak <= peak, f"A tie costs memory: {answers}.")


def test_samples_of_a_step_stay_or_are_announced(tester, jobs):
    """Nothing but an option on the batch changes them per GPU, and a suggestion that would change them says so."""
    def samples_of(report):
        plan = report["plan"]
        return plan["model"]["dimensions"]["batch"] * plan["accumulation"] * plan["mesh"]["shard"] * plan["mesh"]["replicate"]

    for words, samples in (("--gpus 4 --mem 16G", 32), ("--gpus 4 --mem 8G", 32), ("--gpus 2 --nodes 4 --mem 16G", 64),
                           ("--gpus 4 --mem 16G --batch 1", 32), ("--gpus 4 --mem 16G --accumulate 2", 16),
                           ("--gpus 4 --mem 16G --global-batch 24", 24)):
        report = json.loads(tester.run(f"qwen3_tts {words} --json")[1])
        tester.check(samples_of(report) == samples, f"{words}: {samples_of(report)} samples a step.")
        for remedy in report["explain"]["remedies"]:
            if not remedy["flag"].startswith(("--gpus", "--batch")):
                continue
            typed = json.loads(tester.run(with_flags(f"qwen3_tts {words}", remedy["flag"]) + ["--json"])[1])
            says = re.search(r"(\d+) samples a step", remedy["what"])
            wanted = int(says[1]) if says else samples
            tester.check(samples_of(typed) == wanted, f"{words} {remedy['flag']}: {samples_of(typed)} samples, {wanted} were said.")


def test_files_cannot_control_the_terminal(tester, jobs):
    """Nothing of a file that a terminal would obey is printed."""
    (tester.folder / "trace.txt").write_bytes(b"alloc 0 512 0\n\x1b]0;title\x07\x9b31m \xff 3\n")
    name = "weights\x1b[31m\u202e.json"
    (tester.folder / name).write_text("{", encoding="utf-8")
    spec = json.loads((tester.library / "mlp.json").read_text(encoding="utf-8"))
    (tester.folder / "named.json").write_text(json.dumps({**spec, "name": "m\x1b[31mlp\x07"}), encoding="utf-8")
    for words in (["replay", "trace.txt"], ["simulate", name], ["simulate", "trace.txt"], ["m\x1b[2Jlp", "--gpus", "1"],
                  ["mlp", "--gpu", "\x1b[2J"], ["named.json", "--gpus", "1", "--mem", "16G", "--verbose"],
                  ["named.json", "--gpus", "1", "--mem", "16G", "--format", "csv"]):
        _, out, err = tester.run(words)
        bad = [c for c in out + err if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 or c == "\u202e"]
        tester.check(not bad, f"fsdp-plan {words} prints {bad!r}.")


def test_cluster_memory_and_strategies_are_accepted(tester, jobs):
    code, _, err = tester.run(["mlp", "--cluster", "DGX H100", "--mem", "80GiB", "--quiet"])
    tester.check(code == 0, f"A cluster with other memory is refused: {err}")
    _, out, _ = tester.run("mlp --gpus 4 --mem 16G --strategy NO_SHARD")
    tester.check("NO_SHARD is" in out, "The short answer does not say that NO_SHARD is not DDP.")
    for command in ("", "simulate", "explain"):
        _, out, _ = tester.run(f"{command} --help-all")
        tester.check("default: the rank that needs most" in " ".join(out.split()),
                     f"--rank of \"{command}\" does not say which rank is reported without it.")


def test_offered_lengths_are_round(tester, jobs):
    """The longest length that fits is offered as people write lengths."""
    code, out, _ = tester.run("gpt2 --gpus 1 --mem 4G --seq 1024 --batch 4 --offload no --json")
    lengths = [int(each["flag"].split()[1]) for each in json.loads(out)["explain"]["remedies"] if each["flag"].startswith("--seq")]
    tester.check(code == 1 and len(lengths) == 1 and lengths[0] % 64 == 0 and lengths[0] > 64, f"Lengths: {lengths}.")


# Options of rehearse, execute, replay and export, which these requests are not.
OF_OTHER_COMMANDS = {"--record-stream", "--routing", "--device", "--reduction", "--token-dtype", "--resume", "--to", "--format",
                     "--schedule", "--no-decay", "--accumulation", "--nonfinite-loss",
                     "--color"}


def main():
    root, binary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder))
        for test in (test_values_in_help_are_accepted, test_remedies_fit_as_promised,
                     test_suggestions_give_what_they_promise, test_a_tie_costs_no_memory,
                     test_samples_of_a_step_stay_or_are_announced, test_files_cannot_control_the_terminal,
                     test_cluster_memory_and_strategies_are_accepted, test_offered_lengths_are_round):
            if len(sys.argv) > 3 and test.__name__ not in sys.argv[3:]:
                continue
            test(tester, max(1, (os.cpu_count() or 2)))
        problems = tester.problems
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
