"""Compares fsdp-exec's measurements on a real GPU with the prediction. Skipped without a GPU (exit status 77).

    gpu_test.py FSDP_EXEC_CUDA FSDP_PLAN [--first COUNT] [--write DOCUMENT FOLDER]

One rank of each plan runs alone on the first GPU with simulated collectives, so one GPU is enough for any number of ranks;
ranks that share the GPU over NCCL run only for their collectives. Allocated and reserved bytes must be within 1 % of the
prediction, those of the device within 2 %, and the allocator model's replay of the recorded requests must match the
measurement byte for byte. --write updates the table of DOCUMENT and stores the measurements in FOLDER; on the stub GPU, which
measures nothing, both state this. --first: the number of plans.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from stub_gpu import KINDS, ROOT, StubRun, Trial, of_parity, of_plan  # noqa: E402
from command import answer, run  # noqa: E402
from marked_text import write_between  # noqa: E402
import parity_cases  # noqa: E402
import plan_cases  # noqa: E402

sys.path.append(str(ROOT / "python"))
from fsdp_proof.cards import node  # noqa: E402

PROGRAM, PLANNER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
SKIPPED = 77
BOUNDS = {"requested": 0.01, "allocated": 0.01, "reserved": 0.01, "device": 0.02}
ALONE = plan_cases.Case("alone", "llama3_2_1b", 1, plan_cases.MIXED, {"batch": 1, "seq": 1024})
ONE_OF_1024 = plan_cases.Case("one_of_1024", "llama3_2_1b", 1024, plan_cases.MIXED, {"batch": 1, "seq": 1024}, rank=5)
NAMES = ("mixed_precision", "gpt2_fp32_fused", "vit_sgd", "hsdp_tied_accumulate", "accumulate_without_sync", "frozen_part",
         "checkpoint_full", "prefetch_groups", "qwen3_tts")


def gpu_here() -> str | None:
    """The first GPU by the library's name for it, or else the driver's."""
    if shutil.which("nvidia-smi") is None:
        return None
    asked = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True,
                           check=False)
    return asked.stdout.splitlines()[0].removeprefix("NVIDIA ").strip() if asked.returncode == 0 and asked.stdout else None


def trials(gpu: str) -> list[Trial]:
    found = [of_plan(case, gpu=gpu) for case in plan_cases.CASES if case.name in NAMES]
    found += [of_plan(ALONE, gpu=gpu), of_plan(ONE_OF_1024, gpu=gpu)]
    found += [of_parity(case, gpu) for case in parity_cases.CASES if case.always and case.shard > 1]
    return [dataclasses.replace(trial, options=[]) for trial in found]


def problems_of(trial: Trial, done: StubRun) -> list[str]:
    found = []
    if done.collectives(done.measured) != done.collectives(done.predicted):
        found.append("collectives differ")
    for name, (measured, predicted) in done.peaks().items():
        kind = name.rpartition(" ")[2]
        if kind == "device" and trial.ranks > 1:
            continue
        if abs(predicted - measured) > BOUNDS[kind] * measured:
            found.append(f"{name}: {measured} measured, {predicted} predicted")
    for kind in ("requested", "allocated", "reserved"):
        highest = max(phase[KINDS[kind]] for phase in done.measured["memory"]["phases"].values())
        if done.replayed[f"{kind}_peak_bytes"] != highest:
            found.append(f"replayed {kind}: {done.replayed[f'{kind}_peak_bytes']}, measured {highest}")
    return found


def row(trial: Trial, done: StubRun) -> str:
    cells = [trial.name, f"{trial.rank} of {trial.ranks}"]
    for kind in ("allocated", "reserved", "device"):
        measured, predicted = done.peaks()[f"steady_step {kind}"]
        # Without communicators the device has no memory of NCCL.
        cells.append("" if kind == "device" and trial.ranks > 1 else
                     f"{measured:,} ({(predicted - measured) / measured:+.2%})".replace("%", " %"))
    measured_time, predicted_time = (report["time"]["step"] for report in (done.measured, done.predicted))
    cells.append(f"{1e3 * measured_time:.2f} ms ({1e3 * predicted_time:.2f})" if trial.ranks == 1 else "")
    return "| " + " | ".join(cells) + " |"


def share_a_gpu(gpu: str) -> list[str]:
    """Two ranks on one GPU over NCCL: compares everything except memory and times."""
    with tempfile.TemporaryDirectory() as name:
        plan = pathlib.Path(name) / "plan.json"
        run(PLANNER, "mlp", "--gpu", gpu, "--gpus", "2", "-o", plan)
        report = answer(PLANNER, "execute", plan, "--device", "cuda", "--steps", "3", "--json", CUDA_VISIBLE_DEVICES="0")
    return [f"two ranks on one GPU: {term['name']}" for term in report["comparison"]["terms"]
            if term["name"].endswith(("count", "payload", "as predicted")) and term["difference"] != 0]


def main() -> int:
    gpu = gpu_here()
    if gpu is None:
        print("There is no GPU.", file=sys.stderr)
        return SKIPPED
    lines = ["| plan | rank | allocated, bytes | reserved, bytes | device, bytes | step (predicted) |", "|---|---|---:|---:|---:|---:|"]
    kept: list[dict[str, Any]] = []
    problems = []
    try:
        problems = share_a_gpu(gpu)
    except (AssertionError, subprocess.SubprocessError) as error:  # Mostly a card that is not in the library.
        problems = [f"two ranks on one GPU: {str(error).strip().splitlines()[-1]}"]
    first = int(sys.argv[sys.argv.index("--first") + 1]) if "--first" in sys.argv else None
    for trial in trials(gpu)[:first]:
        try:
            done = StubRun(trial, PROGRAM, PLANNER, None)
        except (AssertionError, subprocess.SubprocessError) as error:
            problems.append(f"{trial.name}: {str(error).strip().splitlines()[-1]}")
            lines.append(f"| {trial.name} | {trial.rank} of {trial.ranks} | failed | | | |")
            continue
        lines.append(row(trial, done))
        print(lines[-1], flush=True)
        problems += [f"{trial.name}: {problem}" for problem in problems_of(trial, done)]
        kept.append({"name": trial.name, "gpu": done.measured.get("cluster"), "plan": trial.plan,
                     "memory": done.measured["memory"]["phases"], "time": done.measured["time"]})
    for problem in problems:
        print(problem, file=sys.stderr)
    if "--write" in sys.argv:
        document, folder = (pathlib.Path(path) for path in sys.argv[sys.argv.index("--write") + 1:][:2])
        on = f"the stub GPU, which plays {gpu}: nothing here is of a card" if node().is_stub else gpu
        write_between(document, "gpu", [f"Measured on {on}.", "", *lines])
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(each) + "\n" for each in kept)
        name = ("stub_" if node().is_stub else "") + gpu.lower().replace(" ", "_")
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
