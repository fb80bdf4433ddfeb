"""What is known to differ in op_rules_test.py: for each combination the exact difference, under its cause.

A difference is where PyTorch's events and the predicted ones part and meet again, what stands between, and what that comes to
in bytes. tests/golden/rehearsal/op_differences.json holds them: {cause: {"why": text, "cases": {name: difference}}}.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import pathlib
from typing import Any

FILE = pathlib.Path(__file__).resolve().parents[1] / "golden" / "rehearsal" / "op_differences.json"
MOST_SHOWN = 8  # Longer ones are told by a digest.
UNEXPLAINED = "unexplained"

Difference = dict[str, Any]
Causes = dict[str, dict[str, Any]]


def sorted_frees(events: list[int], names: list[str] | None = None) -> list[tuple[int, str]]:
    """Frees that follow each other have no order."""
    pairs = list(zip(events, names or [""] * len(events), strict=True))
    result: list[tuple[int, str]] = []
    for is_free, group in itertools.groupby(pairs, key=lambda pair: pair[0] < 0):
        of_group = list(group)
        result += sorted(of_group) if is_free else of_group
    return result


def _common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _peak(events: list[int]) -> int:
    return max(itertools.accumulate(events), default=0)


def difference(real: list[int], predicted: list[int]) -> Difference:
    """Empty where the two are equal. Bytes and events are predicted less real."""
    theirs, mine = ([size for size, _ in sorted_frees(events)] for events in (real, predicted))
    if theirs == mine:
        return {}
    before = _common(theirs, mine)
    theirs_left, mine_left = theirs[before:], mine[before:]
    after = _common(theirs_left[::-1], mine_left[::-1])
    middles = [side[:len(side) - after] for side in (theirs_left, mine_left)]
    found = {"equal_before": before, "equal_after": after, "events": len(mine) - len(theirs),
             "allocated": sum(s for s in mine if s > 0) - sum(s for s in theirs if s > 0),
             "kept": sum(mine) - sum(theirs), "peak": _peak(mine) - _peak(theirs)}
    if sum(map(len, middles)) <= MOST_SHOWN:
        return {**found, "pytorch": middles[0], "predicted": middles[1]}
    return {**found, "digest": hashlib.sha256(json.dumps(middles).encode()).hexdigest()[:16]}


def read() -> Causes:
    return json.loads(FILE.read_text(encoding="utf-8"))


def known(causes: Causes) -> dict[str, Difference]:
    """By the combination's name."""
    return {name: found for cause in causes.values() for name, found in cause["cases"].items()}


def cause_of(causes: Causes) -> dict[str, str]:
    return {name: key for key, cause in causes.items() for name in cause["cases"]}


def update(found: dict[str, Difference], all_names: set[str]) -> None:
    """Writes what `found` says of the combinations in it, and leaves those out that are no more. A new one has no cause yet."""
    causes = read()
    where = cause_of(causes)
    for name in where:
        if name in found or name not in all_names:
            del causes[where[name]]["cases"][name]
    for name, one in found.items():
        if one:
            cause = causes.setdefault(where.get(name, UNEXPLAINED), {"why": "", "cases": {}})
            cause["cases"][name] = one
    _write(causes)


def _write(causes: Causes) -> None:
    parts = []
    for key, cause in sorted(causes.items()):
        if cause["cases"]:
            cases = ",\n".join(f"    {json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(cause["cases"].items()))
            parts.append(f"  {json.dumps(key)}: {{\n   \"why\": {json.dumps(cause['why'])},\n   \"cases\": {{\n{cases}\n   }}\n  }}")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
