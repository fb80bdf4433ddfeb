"""Runs one rank of a plan with fsdp-exec on the stub GPU, and compares its measurements with the prediction.

The stub (rehearsal/) plays the card and all other ranks; libtorch_cuda, the caching allocator and every allocation are the
real ones.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "rehearsal"), str(ROOT / "tests" / "executor")]
from command import answer  # noqa: E402
import parity_cases  # noqa: E402
import plan_cases  # noqa: E402

LIMIT_SECONDS = 900
STEPS = 3
KINDS = {"requested": "live_peak_bytes", "allocated": "allocated_peak_bytes", "reserved": "reserved_peak_bytes",
         "device": "device_peak_bytes"}
_CALLED = re.compile(r"(all_gather|reduce_scatter|all_reduce) of (\d+) (\w+), communicator \d+ of (\d+) ranks")
_THREADS_PER_SM = {75: 1024, 86: 1536, 87: 1536, 89: 1536, 120: 1536}
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass
class Trial:
    """A plan, the card, and the simulated rank."""

    name: str
    plan: dict[str, Any]
    spec: dict[str, Any]
    shard: int
    replicate: int = 1
    rank: int = 0
    gpu: str = "H100 SXM"
    options: list[str] = field(default_factory=lambda: ["--nccl-alone"])

    @property
    def ranks(self) -> int:
        return self.shard * self.replicate


def of_parity(case: parity_cases.Case, gpu: str = "H100 SXM", rank: int = 0) -> Trial:
    name = case.name if gpu == "H100 SXM" and rank == 0 else f"{case.name}_{gpu.split()[0].lower()}_{rank}"
    return Trial(name, case.plan_of("spec.json"), case.spec(), case.shard, case.replicate, rank, gpu)


def of_plan(case: plan_cases.Case, **changes: Any) -> Trial:
    with tempfile.TemporaryDirectory() as folder:
        spec, plan = plan_cases.write_case(case, ROOT / "model_specs", pathlib.Path(folder))
        texts = [json.loads(path.read_text(encoding="utf-8")) for path in (plan, spec)]
    texts[0]["model"]["file"] = "spec.json"
    return Trial(**{"name": f"{case.model}_{case.name}", "plan": texts[0], "spec": texts[1], "shard": case.shard,
                    "replicate": case.replicate, "rank": case.rank, "gpu": case.gpu, **changes})


def _bytes(text: str) -> int:
    return next(int(text.removesuffix(unit)) * size for unit, size in _UNITS.items() if text.endswith(unit))


def card(name: str) -> dict[str, str]:
    """The stub's settings for a card of the library."""
    for path in sorted((ROOT / "model_specs" / "clusters" / "gpus").glob("*.json")):
        gpu = json.loads(path.read_text(encoding="utf-8"))
        if gpu["name"] == name:
            break
    else:
        raise AssertionError(f"no GPU {name}")
    capability = int(gpu["compute_capability"].replace(".", ""))
    return {"STUB_GPU_NAME": name, "STUB_GPU_COMPUTE_CAPABILITY": str(capability),
            "STUB_GPU_SMS": str(gpu["sms"]["value"]), "STUB_GPU_L2_BYTES": str(_bytes(gpu["l2_cache"]["value"])),
            "STUB_GPU_SHARED_PER_BLOCK_BYTES": str(_bytes(gpu["shared_memory_per_block"]["value"])),
            "STUB_GPU_SHARED_PER_SM_BYTES": str(_bytes(gpu["shared_memory_per_sm"]["value"])),
            "STUB_GPU_THREADS_PER_SM": str(_THREADS_PER_SM.get(capability, 2048))}


def outside(predicted: dict[str, Any], shard: int, replicate: int) -> dict[str, str]:
    """The stub's charges for memory outside the allocator: the predicted ones, so that the sums can be compared."""
    terms = {term["name"]: term["bytes"] for term in predicted["memory"]["device_terms"]}
    group = {what: sum(size for name, size in terms.items() if name.startswith(f"nccl {what} group"))
             for what in ("shard", "replicate")}
    sizes = {shard: group["shard"], replicate: group["replicate"]}
    if shard == replicate:  # The stub identifies a group only by its size.
        sizes = {shard: (group["shard"] + group["replicate"]) // 2}
    nccl = ",".join(f"{ranks}:{size}" for ranks, size in sizes.items() if ranks > 1)
    return {"STUB_GPU_CONTEXT_BYTES": str(terms.get("CUDA context", 0)), "STUB_GPU_CUDNN_WORKSPACE_BYTES": "0",
            **({"STUB_GPU_NCCL_BYTES": nccl} if nccl else {})}


class StubRun:
    """The results of both. The text of an AssertionError is the rank's output before it failed."""

    def __init__(self, trial: Trial, program: pathlib.Path, planner: pathlib.Path, stub: pathlib.Path | None,
                 **environment: str) -> None:
        """Without a stub, runs on the real GPU."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "spec.json").write_text(json.dumps({k: v for k, v in trial.spec.items() if k != "$schema"}),
                                              encoding="utf-8")
            plan = folder / "plan.json"
            trial.plan["model"]["file"] = str(folder / "spec.json")
            plan.write_text(json.dumps(trial.plan), encoding="utf-8")
            self.predicted = answer(planner, "simulate", plan, "--gpu", trial.gpu, "--gpus", str(min(trial.ranks, 8)),
                                    "--nodes", str(max(1, trial.ranks // 8)), "--rank", str(trial.rank), "--json")
            self.printed = self._execute(trial, program, stub, folder, environment)
            self.measured = json.loads((folder / "report.json").read_text(encoding="utf-8"))
            self.replayed = answer(planner, "replay", folder / "trace.txt", "--json")["recorded"]

    def _execute(self, trial: Trial, program: pathlib.Path, stub: pathlib.Path | None, folder: pathlib.Path,
                 given: dict[str, str]) -> str:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "LOCAL_RANK": "0",
                       "FSDP_PLAN_MODEL_SPECS": str(ROOT / "model_specs"), **given}
        if stub is not None:
            environment |= {"LD_PRELOAD": str(stub), "STUB_GPU_TRACE": "nccl", **card(trial.gpu),
                            **outside(self.predicted, trial.shard, trial.replicate), **given}
        words = [program, folder / "plan.json", "--device", "cuda", "--stand-in", str(trial.rank), "--steps", str(STEPS),
                 "--report", folder / "report.json", "--allocation-trace", folder / "trace.txt", *trial.options]
        done = subprocess.run([str(word) for word in words], env=environment, capture_output=True, text=True,
                              timeout=LIMIT_SECONDS, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{trial.name}: exit {done.returncode}\n{done.stderr[-3000:]}")
        return done.stderr

    def peaks(self) -> dict[str, tuple[int, int]]:
        """(measured, predicted) of each kind of peak in each phase."""
        found = {}
        for phase, forecast in self.predicted["memory"]["phases"].items():
            for kind, key in KINDS.items():
                found[f"{phase} {kind}"] = (self.measured["memory"]["phases"][phase][key], forecast[key])
        return found

    def left(self) -> dict[str, int]:
        """Measured minus predicted, if not 0."""
        return {name: measured - predicted for name, (measured, predicted) in self.peaks().items() if measured != predicted}

    @staticmethod
    def collectives(report: dict[str, Any]) -> list[tuple[Any, ...]]:
        return [(c["kind"], c["elements"], c["dtype"], c["group_size"], c["payload_bytes"], c["unit"], c["phase"])
                for c in report["traffic"]["collectives"]]

    def called(self) -> list[tuple[str, int, str, int]]:
        """NCCL's calls in all steps, as the stub recorded them."""
        return [(kind, int(elements), dtype, int(ranks)) for kind, elements, dtype, ranks in _CALLED.findall(self.printed)]
