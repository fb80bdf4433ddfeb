"""Recorded cases in a file: one line of JSON each, with what the real FSDP2 did and by how much the prediction differs, where it
does. `renew` writes the differences anew."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from differences import compare
from predict import REST, Case, predict

NAMES = ("Inputs", "Buffer", "All Gather", "Reduce Scatter", "Unsharded Param", "Unsharded Grad", "Sharded Param",
         "Sharded Grad", "OptState", REST)

Golden = tuple[Case, bool, dict[str, Any], dict[str, Any]]  # The case, merges_gradients, the result, the differences.


def _packed(live: dict[str, int]) -> list[int]:
    return [live.get(name, 0) for name in NAMES]


def _unpacked(live: list[int]) -> dict[str, int]:
    return dict(sorted((name, size) for name, size in zip(NAMES, live, strict=True) if size))


def to_line(case: Case, merges: bool, result: dict[str, Any], differing: dict[str, Any]) -> str:
    """REQUIRES: both steps call the same collectives."""
    first, steady = result["steps"]
    assert [row[:-2] for row in first] == [row[:-2] for row in steady], case.name
    return json.dumps({
        "name": case.name, "spec": case.spec, "plan": case.plan, "rank": case.rank, "frozen": case.frozen,
        "dimensions": case.dimensions, "merges": merges, "differs": differing, "repeats": result["repeats"],
        "rows": [[*row[:-1], _packed(row[-1])] for row in steady], "first_live": [row[-2] for row in first],
        "peaks": {name: [live, _packed(by_category)] for name, (live, by_category) in result["peaks"].items()},
        "parts": result["parts"],
    }, separators=(",", ":"))


def from_line(line: str) -> Golden:
    value = json.loads(line)
    case = Case(value["name"], value["spec"], value["plan"], value["rank"], value["dimensions"], value["frozen"])
    steady = [[*row[:-1], _unpacked(row[-1])] for row in value["rows"]]
    first = [[*row[:-2], live, {}] for row, live in zip(steady, value["first_live"], strict=True)]
    peaks = {name: [live, _unpacked(by_category)] for name, (live, by_category) in value["peaks"].items()}
    result = {"steps": [first, steady], "repeats": value["repeats"], "peaks": peaks, "parts": value["parts"]}
    return case, value["merges"], result, value["differs"]


def read(file: pathlib.Path) -> list[Golden]:
    return [from_line(line) for line in file.read_text(encoding="utf-8").splitlines()]


def renew(program: pathlib.Path, file: pathlib.Path) -> list[str]:
    """What the real FSDP2 did stays as it is recorded. Returns the names of the cases whose differences changed."""
    changed, lines = [], []
    for case, merges, recorded, known in read(file):
        found = compare(predict(program, case, wants_model=False).result, recorded, merges)
        if found.exact != known:
            changed.append(case.name)
        lines.append(to_line(case, merges, recorded, found.exact) + "\n")
    file.write_text("".join(lines), encoding="utf-8")
    return changed
