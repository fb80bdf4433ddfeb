"""What fsdp-plan predicts for a case, in the rows of the recorder."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from command import answer  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = "H100 SXM"
MERGED = ("Activation", "Temp")  # Only the recorder's remainder.
REST = "Activation or Temp"


@dataclasses.dataclass
class Case:
    """A model, a plan without the model's name and file, and the rank that is looked at."""

    name: str
    spec: dict[str, Any]
    plan: dict[str, Any]
    rank: int = 0
    dimensions: dict[str, float] = dataclasses.field(default_factory=dict)
    frozen: list[str] = dataclasses.field(default_factory=list)

    @property
    def world_size(self) -> int:
        return self.plan["mesh"]["replicate"] * self.plan["mesh"]["shard"]


@dataclasses.dataclass
class Prediction:
    model: dict[str, Any]  # Expanded.
    plan: dict[str, Any]  # With all of its choices.
    result: dict[str, Any]  # As run_case.describe returns it, of the first and the steady step.


def expand(program: pathlib.Path, spec: dict[str, Any], dimensions: dict[str, float] | None = None,
           frozen: list[str] | None = None, flavor: str = "transformers") -> dict[str, Any]:
    """The expanded model of a spec."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "spec.json"
        file.write_text(json.dumps(spec), encoding="utf-8")
        words = ["models", str(file), "--expanded", "--json", "--flavor", flavor]
        for key, value in (dimensions or {}).items():
            words += ["--set", f"{key}={value}"]
        return answer(program, *words, *(["--freeze", *frozen] if frozen else []))


def predict(program: pathlib.Path, case: Case, wants_model: bool = True) -> Prediction:
    """Raises Refused for an impossible plan."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        spec_file, plan_file = folder / "spec.json", folder / "plan.json"
        spec_file.write_text(json.dumps(case.spec), encoding="utf-8")
        of_model = {"name": case.spec.get("name", "model"), "file": str(spec_file), "dimensions": case.dimensions,
                    "frozen": case.frozen}
        plan_file.write_text(json.dumps({"format_version": "1.0", "model": of_model, **case.plan}), encoding="utf-8")
        report = answer(program, "simulate", plan_file, "--gpu", GPU, *_gpus(case.world_size), "--rank", str(case.rank),
                        "--json")
    flavor = report["plan"]["runtime"]["flavor"]
    model = expand(program, case.spec, case.dimensions, case.frozen, flavor) if wants_model else {}
    return Prediction(model, report["plan"], _rows(case, report))


def _gpus(world_size: int) -> list[str]:
    per_node = next(count for count in range(min(8, world_size), 0, -1) if world_size % count == 0)
    return ["--gpus", str(per_node), "--nodes", str(world_size // per_node)]


def _rows(case: Case, report: dict[str, Any]) -> dict[str, Any]:
    found = report["traffic"]["collectives"]
    phases = report["memory"]["phases"]
    return {
        "steps": [[_row(case, c, c["first_step_live_bytes"]) for c in found],
                  [_row(case, c, c["live_bytes"]) for c in found]],
        "live": [_merge(c["live"]) for c in found],
        "reductions": [[c.get("reduce_op", ""), c.get("micro_batch_index", -1)] for c in found],
        "peaks": {name: phases[key]["live_peak_bytes"] for name, key in
                  (("initialization", "initialization"), ("1", "first_step"), ("2", "steady_step"))},
        "parts": {name: phases[key].get("live_peak_bytes_of", {}) for name, key in (("1", "first_step"), ("2", "steady_step"))},
        "allocator": {"allocated": report["memory"]["allocated_peak_bytes"],
                      "reserved": report["memory"]["reserved_peak_bytes"]},
        "peak": [report["memory"]["peak"]["phase"], _merge(report["memory"]["at_peak"])],
    }


def _merge(live: dict[str, int]) -> dict[str, int]:
    merged = {name: size for name, size in live.items() if name not in MERGED and size}
    if rest := sum(live.get(name, 0) for name in MERGED):
        merged[REST] = rest
    return dict(sorted(merged.items()))


def _row(case: Case, c: dict[str, Any], live: int) -> list[Any]:
    """[kind, unit, phase, dtype, elements in, elements out, [first rank, stride, ranks], live bytes]"""
    size, full = c["group_size"], c["elements"]
    group_elements = {"all_gather": (full // size, full), "reduce_scatter": (full, full // size),
                      "all_reduce": (full, full)}[c["kind"]]
    shard = case.plan["mesh"]["shard"]
    group = [case.rank // size * size, 1, size] if c["group"] == "shard" else [case.rank % shard, shard, size]
    return [c["kind"], c["unit"], c["phase"], c["dtype"], *group_elements, group, live]
