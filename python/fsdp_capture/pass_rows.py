"""The rows of a captured step's passes: for each backward the calls of its forward, its loss, the optimizers after it, and the
place where gradients are cleared.
"""

from __future__ import annotations

from typing import Any

from fsdp_capture.passes import NotAlike
from fsdp_capture.structure import Structure


def passes_of(structure: Structure, point: dict[str, Any]) -> dict[str, Any]:
    """The keys that a point of several backwards has in addition to those of one. `point`: the keys so far. Raises NotAlike if
    a backward has gradients for only part of a model."""
    _check_gradients(structure)
    losses = point.pop("losses", [point["loss"]])
    said = structure.recording.said
    given = given_in(structure)
    rows = []
    for number in range(structure.num_passes):
        rows.append(
            {
                "calls": _calls_until(structure, number),
                "loss": losses[number],
                "gradients": sorted(given[number]),
                "optimizers": [{"models": said[which]} for of, which in structure.steps if of == number],
            }
        )
    return {"passes": rows, "clearings": _clearings(structure)}


def cleared_in(structure: Structure) -> list[list[list[str]]]:
    """[passes + 1] Models whose gradients are cleared in each pass."""
    cleared: list[list[list[str]]] = [[] for _ in range(structure.num_passes + 1)]
    for number, _, which in structure.clearings:
        cleared[min(number, structure.num_passes)].append(structure.recording.said[which])
    return cleared


def given_in(structure: Structure) -> list[frozenset[str]]:
    """[passes] Models to which each backward gives gradients."""
    return [frozenset(name.partition(".")[0] for name in names) for names in _gradients_in(structure)]


def _gradients_in(structure: Structure) -> list[set[str]]:
    """[passes] Parameters to which each backward gives gradients."""
    given: list[set[str]] = [set() for _ in range(structure.num_passes)]
    number = -1
    for event in structure.recording.events:
        number += event.what == "end"
        if event.what == "gradient" and event.number >= 0:
            given[number].add(structure.recording.gradients[event.number])
    return given


def _calls_until(structure: Structure, number: int) -> int:
    return sum(call.number <= number for call in structure.calls)


def _clearings(structure: Structure) -> list[dict[str, Any]]:
    rows = []
    for number, part, which in structure.clearings:
        end = _calls_until(structure, number) if number < structure.num_passes else len(structure.calls)
        call = structure.call_of(part) if part < len(structure.parts) else len(structure.calls)
        rows.append({"pass": min(number, structure.num_passes), "call": min(call, end), "models": structure.recording.said[which]})
    return rows


def _check_gradients(structure: Structure) -> None:
    """FSDP2 reduces the existing gradients of a unit. We predict a backward that has all gradients of a model or none, for
    example if the script freezes its discriminator while it trains the generator."""
    given = _gradients_in(structure)
    trained = set().union(*given)
    for names in given:
        models = {name.partition(".")[0] for name in names}
        missing = sorted(name for name in trained - names if name.partition(".")[0] in models)
        if missing:
            raise NotAlike(
                f'One backward has gradients for {missing[0].partition(".")[0]} and none for "{missing[0]}", which another one has. A '
                "step is predicted whose backwards have all gradients of a model or none."
            )
