"""Where a prediction and a recorded run differ, and the first differing collective with its neighbors."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from predict import REST

GRADIENTS = "Unsharded Grad"
FIELDS = ("kind", "unit", "phase", "dtype", "elements in", "elements out", "group", "live")
STEP_NAMES = ("first step", "steady step")
AROUND = 3


@dataclasses.dataclass
class Comparison:
    compared: Counter[str] = dataclasses.field(default_factory=Counter)
    differing: Counter[str] = dataclasses.field(default_factory=Counter)
    lines: list[str] = dataclasses.field(default_factory=list)
    exact: dict[str, Any] = dataclasses.field(default_factory=dict)  # Predicted less real, as JSON has it.
    errors: list[tuple[str, int, int]] = dataclasses.field(default_factory=list)  # What, predicted, real: live bytes and peaks.

    @property
    def is_equal(self) -> bool:
        return not self.differing

    def count(self, what: str, differs: bool) -> bool:
        self.compared[what] += 1
        self.differing[what] += differs
        if not differs:
            self.differing -= Counter()
        return differs


def merges_gradients(model: dict[str, Any]) -> bool:
    """A parameter with several uses has gradients that wait for each other inside autograd, where no object of FSDP2
    shows them: they are then counted with the temporaries."""
    first_name = {p["name"]: p["tied_to"] or p["name"] for p in model["parameters"]}
    uses = Counter(first_name[name] for op in model["ops"] for name in op["parameters"])
    return any(count > 1 for count in uses.values())


def _merged(live: dict[str, int], merges: bool) -> dict[str, int]:
    if not merges:
        return live
    kept = {name: size for name, size in live.items() if name not in (GRADIENTS, REST)}
    return {**kept, REST: live.get(REST, 0) + live.get(GRADIENTS, 0)}


def compare(predicted: dict[str, Any], recorded: dict[str, Any], merges: bool) -> Comparison:
    found = Comparison()
    for step, name in enumerate(STEP_NAMES):
        _compare_step(found, name, step, predicted, recorded, merges)
    if found.count("repeated step", recorded["repeats"] is False):
        found.lines.append("the third step is not like the second")
        found.exact["repeated step"] = True
    for phase, live in predicted["peaks"].items():
        _compare_peak(found, f"peak, {phase}", live, recorded["peaks"][phase][0])
    for phase, parts in predicted["parts"].items():
        for part, live in parts.items():
            _compare_peak(found, f"peak, {phase}, {part}", live, recorded["parts"][phase][part])
    real = _merged(recorded["peaks"][highest(recorded)][1], merges)
    forecast = _merged(predicted["peak"][1], merges)
    if found.count("peak by category", real != forecast):
        found.exact["peak by category"] = _difference(forecast, real)
        found.lines.append(f"highest peak by category: predicted less real {_difference(forecast, real)}")
    return found


def _compare_peak(found: Comparison, what: str, predicted: int, real: int) -> None:
    found.errors.append((what, predicted, real))
    if found.count(what, predicted != real):
        found.exact[what] = predicted - real
        found.lines.append(f"{what}: predicted {predicted}, real {real}")


def highest(recorded: dict[str, Any]) -> str:
    """The phase of the highest peak, the first of equal ones."""
    return max(recorded["peaks"], key=lambda phase: recorded["peaks"][phase][0])


def _difference(predicted: dict[str, int], real: dict[str, int]) -> dict[str, int]:
    names = sorted({*predicted, *real})
    return {n: predicted.get(n, 0) - real.get(n, 0) for n in names if predicted.get(n, 0) != real.get(n, 0)}


def _compare_step(found: Comparison, name: str, step: int, predicted: dict[str, Any], recorded: dict[str, Any],
                  merges: bool) -> None:
    ours, theirs = predicted["steps"][step], recorded["steps"][step]
    other_calls, other_bytes = [], []
    live: dict[str, int] = {}
    categories: dict[str, dict[str, int]] = {}
    for i in range(max(len(ours), len(theirs))):
        one = ours[i] if i < len(ours) else None
        other = theirs[i] if i < len(theirs) else None
        if found.count("collectives", one is None or other is None or one[:-1] != other[:-2]):
            other_calls.append(i)
            continue
        found.errors.append(("live bytes", one[-1], other[-2]))
        if found.count("live bytes", one[-1] != other[-2]):
            live[str(i)] = one[-1] - other[-2]
        if step == 1:
            apart = _difference(_merged(predicted["live"][i], merges), _merged(other[-1], merges))
            if found.count("live bytes by category", bool(apart)):
                categories[str(i)] = apart
        if str(i) in live or str(i) in categories:
            other_bytes.append(i)
    for what, exact in (("collectives", other_calls), ("live bytes", live), ("live bytes by category", categories)):
        if exact:
            found.exact[f"{what}, {name}"] = exact
    if not other_calls and not other_bytes:
        return
    first = (other_calls or other_bytes)[0]
    found.lines.append(f"{name}: {len(ours)} collectives predicted, {len(theirs)} real; the first to differ is number {first}")
    for i in range(max(0, first - AROUND), first + AROUND + 1):
        mark = ">" if i == first else " "
        for who, rows in (("predicted", ours), ("real     ", [row[:-1] for row in theirs])):
            if i < len(rows):
                found.lines.append(f"  {mark} {i:3} {who} {' '.join(map(str, rows[i]))}")
    if first < len(ours) and first < len(theirs) and step == 1:
        by_category = _difference(_merged(predicted["live"][first], merges), _merged(theirs[first][-1], merges))
        found.lines.append(f"    by category, predicted less real: {by_category}")
