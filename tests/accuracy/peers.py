"""Our prediction and what a user would pick instead, held against the real PyTorch on the stub GPU: error and CPU time.

    peers.py --command FSDP_PLAN [--document FILE] [MODEL...]      writes the table between the marks of FILE, or prints it

Everything runs in one go on the same machine, one after the other. The truth is `fsdp-plan rehearse PLAN` (allocated bytes of the
steady step). CPU seconds are those of the whole process, imports included, as a user waits for them; ours is the least of ten.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import resource
import sys
import tempfile
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import command as programs  # noqa: E402
from marked_text import write_between  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "python" / "frameworks" / "bin" / "python"
GIB = 1 << 30
MIXED = {"parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"}}
TOOLS = {
    "mem_tracker": "PyTorch FSDPMemTracker, fake tensors",
    "without_optimizer": "the same, around forward and backward only",
    "deepspeed": "DeepSpeed ZeRO-3 estimator",
    "accelerate": "accelerate estimate-memory",
}


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    blocks: list[str]
    gpus: int
    dimensions: dict[str, float]

    def plan(self) -> dict[str, Any]:
        spec = json.loads((ROOT / "model_specs" / f"{self.name}.json").read_text(encoding="utf-8"))
        return {
            "format_version": "1.0",
            "model": {"name": spec["name"], "file": self.name, "dimensions": self.dimensions},
            "mesh": {"replicate": 1, "shard": self.gpus},
            "units": [*({"modules": [row], "modules_per_unit": 1} for row in self.blocks), {"modules": [""]}],
            **MIXED,
        }


MODELS = [
    Model("qwen3_1_7b", ["model.layers.{0..27}"], 4, {"batch": 1, "seq": 2048}),
    Model("llama3_1_8b", ["model.layers.{0..31}"], 8, {"batch": 1, "seq": 2048}),
    Model("gpt2", ["transformer.h.{0..11}"], 4, {"batch": 4, "seq": 1024}),
    Model("qwen3_tts", ["talker.model.layers.{0..27}", "talker.code_predictor.model.layers.{0..4}"], 4, {"batch": 2}),
]


def run(*words: str | pathlib.Path, **environment: str) -> tuple[str, float]:
    """What it prints, and the CPU seconds that it and its children took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _, printed = programs.run(*words, **environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return printed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(command: pathlib.Path, model: Model) -> dict[str, tuple[int, float]]:
    """For each tool the bytes that it says, and the CPU seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan = folder / "plan.json"
        plan.write_text(json.dumps(model.plan()), encoding="utf-8")
        machine = ["--gpu", "H100", "--gpus", str(model.gpus), "--mem", "320GiB", "--json"]
        runs = [run(command, "simulate", plan, *machine) for _ in range(10)]
        ours = json.loads(runs[0][0])
        truth, seconds = run(command, "rehearse", plan, *machine, FSDP_PLAN_TORCH_PYTHON=str(PYTHON))
        rows = {"truth": (json.loads(truth)["memory"]["phases"]["steady_step"]["allocated_peak_bytes"], seconds),
                "ours": (ours["memory"]["phases"]["steady_step"]["allocated_peak_bytes"], min(s for _, s in runs))}  # fmt: skip
        sets = [word for name, value in model.dimensions.items() for word in ("--set", f"{name}={value}")]
        expanded = json.loads(run(command, "models", model.name, "--expanded", "--json", *sets)[0])
        (folder / "job.json").write_text(json.dumps({"model": expanded, "plan": ours["plan"]}), encoding="utf-8")
        for tool in ("mem_tracker", "deepspeed", "accelerate"):
            out, _ = run(PYTHON, "-B", ROOT / "tests" / "accuracy" / "peers_inside.py", tool, folder / "job.json",
                         WORLD_SIZE=str(model.gpus), OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")  # fmt: skip
            answer = json.loads(out)
            rows[tool] = (answer["peak"], answer["cpu_seconds"])
            if "without_optimizer" in answer:
                rows["without_optimizer"] = (answer["without_optimizer"], answer["cpu_seconds"])
    return rows


def table(model: Model, rows: dict[str, tuple[int, float]]) -> list[str]:
    truth, seconds = rows["truth"]
    lines = [f"| **{model.name}**, {model.gpus} GPUs: the real PyTorch on the stub GPU | {truth / GIB:.2f} | | {seconds:.1f} | |"]
    mine = rows["ours"][1]
    for tool, title in {"ours": "`fsdp-plan simulate`", **TOOLS}.items():
        said, took = rows[tool]
        share = 100 * (said / truth - 1)
        lines.append(f"| {title} | {said / GIB:.2f} | {share:+.2f} % | {took:.3f} | {took / mine:,.0f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", type=pathlib.Path, required=True)
    parser.add_argument("--document", type=pathlib.Path)
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    lines = ["| | GiB allocated | error | CPU s | times ours |", "|---|---:|---:|---:|---:|"]
    for model in MODELS:
        if not arguments.models or model.name in arguments.models:
            print(f"peers: {model.name}", file=sys.stderr, flush=True)
            lines += table(model, measure(arguments.command.resolve(), model))
    if arguments.document is None:
        print("\n".join(lines))
        return
    write_between(arguments.document, "peers", lines)


if __name__ == "__main__":
    main()
