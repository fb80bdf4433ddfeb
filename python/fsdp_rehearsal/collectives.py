"""The record's collectives: those of one steady step in order, and the totals of every step."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from fsdp_rehearsal.history import Mark
from fsdp_rehearsal.units import Units

_MOST_STEPS = 16


def describe(
    issued: list[dict[str, Any]], ends: list[int], begin: int, marks: list[Mark], units: Units, is_ddp: bool
) -> dict[str, Any]:
    """`ends`: the number of collectives at the end of each step; `begin`: at the end of the initialization."""
    marked = [m.collectives for m in marks]
    starts = [begin, *ends]

    def row(number: int) -> dict[str, Any]:
        phase = marks[bisect_right(marked, number) - 1].phase
        return {**issued[number], "unit": units.name_of(number), "phase": phase}

    steady = [row(i) for i in range(starts[-2], starts[-1])] if ends else []
    if is_ddp:
        _name_buckets(steady)
    per_step = []
    for step in range(1, min(len(ends), _MOST_STEPS) + 1):
        per_step += _totals(issued[starts[step - 1] : starts[step]], step)
    return {"steady_step": steady, "totals_per_step": per_step, "before_first_step": _totals(issued[:begin], 0)}


def _totals(rows: list[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    totals: dict[str, list[int]] = {}
    for row in rows:
        total = totals.setdefault(row["kind"], [0, 0])
        total[0] += 1
        total[1] += row["payload_bytes"]
    return [{"step": step, "kind": k, "count": n, "payload_bytes": size} for k, (n, size) in totals.items()]


def _name_buckets(rows: list[dict[str, Any]]) -> None:
    """DDP's reducer all-reduces one bucket after the other during backward, from C++."""
    number = 0
    for row in rows:
        if row["kind"] == "all_reduce" and row["phase"] == "backward" and not row["unit"]:
            row["unit"] = f"bucket {number}"
            number += 1
