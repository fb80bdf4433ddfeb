"""The findings, judged row by row. A row has a finding, its reference, and the allowed difference.

Results: "pass", "fail", "note" (no bound to judge by), "not run" (with the reason). A failed trial is a row.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass
from typing import Any

# A prediction of bytes is meant to be exact; the memory in use on a device includes that of other processes.
MEMORY_BOUNDS = {"live": 0.01, "allocated": 0.01, "reserved": 0.01, "device": 0.02}
PYTORCH_BOUNDS = {"requested": 0.01, "allocated": 0.01, "reserved": 0.01}
OUTSIDE_BOUND = 0.10  # For the context and for communicators, whose sizes are assumed for most cards.
# For a loss: sums in another order, and the precision of the products.
LOSS_BOUNDS = {"float32": 1e-3, "16 bits": 1e-2}
OF_ANOTHER_CARD = "the prediction is for another card"


@dataclass
class Row:
    group: str
    name: str
    result: str
    found: Any = None
    expected: Any = None
    unit: str = ""
    bound: float | None = None
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def relative(found: float, expected: float) -> float:
    if found == expected:
        return 0.0
    return abs(found - expected) / abs(expected) if expected else math.inf


def within(group: str, name: str, found: float, expected: float, unit: str, bound: float, why: str = "") -> Row:
    good = relative(found, expected) <= bound
    return Row(group, name, "pass" if good else "fail", found, expected, unit, bound, why)


def not_run(group: str, why: str) -> Row:
    return Row(group, "the trial", "not run", why=why)


# ---- The machine.


def is_called(card: str, names: list[str]) -> bool:
    """Whether a driver's name of a card is one of these; some drivers put the maker first."""
    return card.removeprefix("NVIDIA ") in {name.removeprefix("NVIDIA ") for name in names}


def machine_rows(cards: list[Any], ranks: int, planned: str, planned_names: list[str]) -> list[Row]:
    enough = len(cards) >= ranks
    rows = [Row("machine", "GPUs of the node", "pass" if enough else "fail", len(cards), ranks,
                why="" if enough else "fewer GPUs than ranks: they share, and times mean nothing")]
    if enough and len(cards) > ranks:
        rows.append(Row("machine", "GPUs that the plan leaves idle", "note", len(cards) - ranks,
                        why=f"Plan again with --gpus {len(cards)} to use all."))
    names = sorted({card.name for card in cards})
    if not planned:
        rows.append(Row("machine", "card", "not run", ", ".join(names),
                        why="the plan names no GPU, so that nothing is predicted; plan again with --gpu"))
    else:
        same = all(is_called(name, planned_names) for name in names)
        rows.append(Row("machine", "card", "pass" if same else "fail", ", ".join(names), planned,
                        why="" if same else "the plan is for another card; is this one in fsdp-plan gpus?"))
    return rows


# ---- fsdp-exec against the prediction.


def _phases(report: dict[str, Any]) -> dict[str, dict[str, int]]:
    return {phase: {kind: sizes[f"{kind}_peak_bytes"] for kind in MEMORY_BOUNDS}
            for phase, sizes in report["memory"]["phases"].items()}


def memory_rows(reports: list[dict[str, Any]], predicted: dict[str, Any], is_of_this_card: bool) -> list[Row]:
    """Rows of rank 0, whose memory is predicted; if another rank has more, rows of that rank."""
    rows = []
    for phase, kinds in _phases(predicted).items():
        for kind, bound in MEMORY_BOUNDS.items():
            found = _phases(reports[0])[phase][kind]
            highest = max(_phases(report)[phase][kind] for report in reports)
            why = "" if highest == found else f"the highest of all ranks has {highest:,}"
            row = within("memory", f"{phase.replace('_', ' ')}: {kind}", found, kinds[kind], "B", bound, why)
            if not is_of_this_card:
                row.result, row.why = "note", OF_ANOTHER_CARD
            rows.append(row)
    return rows


def collective_key(collective: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(collective[key] for key in ("kind", "unit", "phase", "dtype", "elements", "payload_bytes", "group_size"))


def collective_rows(reports: list[dict[str, Any]], predicted: dict[str, Any] | None) -> list[Row]:
    own = [[collective_key(each) for each in report["traffic"]["collectives"]] for report in reports]
    shared = [report["cluster"]["gpu"] for report in reports if "shared by several ranks" in report["cluster"]["gpu"]]
    rows = [Row("collectives", "each rank has a GPU of its own, and NCCL its own transport", "fail" if shared else "pass",
                len(reports) - len(shared), len(reports))]
    if predicted is not None:
        expected = [collective_key(each) for each in predicted["traffic"]["collectives"]]
        differ = [rank for rank, found in enumerate(own) if found != expected]
        rows.append(Row("collectives", "kind, unit, phase, dtype and bytes of each, in their order",
                        "fail" if differ else "pass", len(own[0]), len(expected),
                        why=f"other ones on rank {differ[0]}" if differ else ""))
    return rows


def collective_table(reports: list[dict[str, Any]], predicted: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Every collective of the last step in order, with its times over the ranks."""
    events = [[event for event in report["trace"]["traceEvents"] if "payload bytes" in event.get("args", {})]
              for report in reports]
    for each in events:
        each.sort(key=lambda event: event["args"]["External id"])
    forecasts = predicted["traffic"]["collectives"] if predicted is not None else []
    table = []
    for i, first in enumerate(events[0]):
        times = [each[i]["dur"] * 1e-6 for each in events if i < len(each)]
        told = first["args"]
        row = {"collective": told["Collective name"].strip("_"), "unit": told["FSDP unit"], "phase": told["phase"],
               "payload_bytes": told["payload bytes"], "ranks": told["Group size"], "seconds_median": statistics.median(times),
               "seconds_least": min(times), "seconds_most": max(times), "exposed_seconds": told["exposed us"] * 1e-6}
        if i < len(forecasts):
            row["predicted_seconds"] = forecasts[i]["time"]
        table.append(row)
    return table


def time_rows(reports: list[dict[str, Any]], table: list[dict[str, Any]], predicted: dict[str, Any] | None) -> list[Row]:
    """Judges nothing: the model of times has no bound for a card without a measurement."""
    step = statistics.median(report["time"]["step"] for report in reports)
    exposed = statistics.median(report["time"]["exposed_communication"] for report in reports)
    busy = sum(row["seconds_median"] for row in table)
    forecast = predicted["time"] if predicted is not None else {}
    overlap = max(0.0, 1 - exposed / busy) if busy > 0 else None
    predicted_busy = sum(each["time"] for each in predicted["traffic"]["collectives"]) if predicted is not None else 0
    predicted_overlap = max(0.0, 1 - forecast["exposed_communication"] / predicted_busy) if predicted_busy > 0 else None
    return [Row("times", "step", "note", step, forecast.get("step"), "s"),
            Row("times", "communication that the computing stream waited for", "note", exposed,
                forecast.get("exposed_communication"), "s"),
            Row("times", "all collectives of a step, one after the other", "note", busy, predicted_busy or None, "s"),
            Row("times", "share of them that is hidden behind computing", "note", overlap, predicted_overlap),
            Row("times", "optimizer", "note", statistics.median(report["time"]["optimizer"] for report in reports),
                forecast.get("optimizer"), "s")]


def loss_rows(reports: list[dict[str, Any]], is_stub: bool) -> list[Row]:
    losses = [step["loss"] for report in reports for step in report["steps"]]
    if is_stub:
        return [Row("executor", "losses are numbers that change", "not run", why="the stub GPU computes nothing")]
    good = all(math.isfinite(loss) for loss in losses) and len(set(losses)) > 1
    return [Row("executor", "losses are numbers that change", "pass" if good else "fail", reports[0]["steps"][-1]["loss"])]


# ---- fsdp-exec against PyTorch's FSDP2 on the same GPUs.


def pytorch_rows(reports: list[dict[str, Any]], theirs: list[dict[str, Any]], in_16_bits: bool, is_stub: bool) -> list[Row]:
    bound = LOSS_BOUNDS["16 bits" if in_16_bits else "float32"]
    pairs = [(own["loss"], other["loss"]) for report, found in zip(reports, theirs, strict=True)
             for own, other in zip(report["steps"], found["steps"], strict=True)]
    worst = max((relative(own, other) for own, other in pairs), default=math.inf)
    equal = sum(own == other for own, other in pairs)
    if is_stub:
        rows = [Row("PyTorch FSDP2", "losses of all ranks and steps", "not run", why="the stub GPU computes nothing")]
    else:
        rows = [Row("PyTorch FSDP2", "losses of all ranks and steps: largest relative difference",
                    "pass" if worst <= bound else "fail", worst, 0, "", bound, f"{equal} of {len(pairs)} equal in every bit")]
    for phase, part in (("first step", slice(0, 1)), ("steady step", slice(1, None))):
        for kind, limit in PYTORCH_BOUNDS.items():
            key = f"{'live' if kind == 'requested' else kind}_peak_bytes"
            own = max(step[key] for step in reports[0]["steps"][part])
            other = max(step[kind] for step in theirs[0]["steps"][part])
            rows.append(within("PyTorch FSDP2", f"{phase}: {kind}", own, other, "B", limit))
    medians = [statistics.median(step["wall_seconds"] for step in each["steps"][1:]) for each in (reports[0], theirs[0])]
    rows.append(Row("PyTorch FSDP2", "step", "note", medians[0], medians[1], "s",
                    why="the expected one is PyTorch's, from Python, with the host waiting at the end of each step"))
    return rows


def _by_kind(collectives: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in collectives:
        found.setdefault(each["kind"], []).append(each)
    return found


def _sizes(collectives: list[dict[str, Any]]) -> dict[str, list[int]]:
    return {kind: [each["payload_bytes"] for each in those] for kind, those in _by_kind(collectives).items()}


def pytorch_collective_rows(reports: list[dict[str, Any]], theirs: list[dict[str, Any]],
                            table: list[dict[str, Any]]) -> list[Row]:
    """PyTorch issues the same collectives; kinds may interleave differently. Adds its times to the table, over the ranks."""
    own = reports[0]["traffic"]["collectives"]
    differ = [rank for rank, found in enumerate(theirs) if _sizes(found["collectives"]) != _sizes(own)]
    count = len(theirs[0]["collectives"])
    rows = [Row("PyTorch FSDP2", "kind and bytes of each collective, in the order of their kind", "fail" if differ else "pass",
                len(own), count, why=f"other ones on rank {differ[0]}" if differ else "")]
    if differ or len(table) != len(own):
        return rows
    theirs_by_kind = [_by_kind(found["collectives"]) for found in theirs]
    seen: dict[str, int] = {}
    for row, each in zip(table, own, strict=True):
        place = seen.get(each["kind"], 0)
        seen[each["kind"]] = place + 1
        times = [found[each["kind"]][place]["seconds"] for found in theirs_by_kind]
        if all(seconds is not None for seconds in times):
            row["pytorch_seconds_median"] = statistics.median(times)
    timed = [row for row in table if "pytorch_seconds_median" in row]
    if timed:
        rows.append(Row("PyTorch FSDP2", f"collectives of a step, one after the other, {len(timed)} of {len(table)}", "note",
                        sum(row["seconds_median"] for row in timed), sum(row["pytorch_seconds_median"] for row in timed), "s",
                        why="the expected ones are PyTorch's kernels, by its own profiler"))
    else:
        rows.append(Row("PyTorch FSDP2", "times of its collectives", "note",
                        why="its profiler has seen no kernel of NCCL for them"))
    return rows


# ---- The stub GPU's claims.


def outside_rows(theirs: list[dict[str, Any]], predicted: dict[str, Any] | None, is_of_this_card: bool) -> list[Row]:
    if predicted is None:
        return [not_run("stub GPU", "the plan names no GPU, so that nothing is claimed of its context and communicators")]
    terms = {term["name"]: term["bytes"] for term in predicted["memory"].get("device_terms", [])}
    groups = [sum(size for name, size in terms.items() if name.startswith(f"nccl {group} group"))
              for group in ("shard", "replicate")]
    rows = []
    for name, key, claimed in (("CUDA context", "context", terms.get("CUDA context", 0)),
                               ("a communicator of all ranks", "communicator", max(groups))):
        found = theirs[0]["outside"][key]
        row = within("stub GPU", f"bytes of {name}", found, claimed, "B", OUTSIDE_BOUND,
                     "NVML's bytes of the card, less the allocator's")
        if not is_of_this_card:
            row.result, row.why = "note", OF_ANOTHER_CARD
        elif key == "communicator" and all(groups):
            row.result, row.why = "note", "the plan has two kinds of groups, and this communicator is of neither"
        rows.append(row)
    return rows


def claim_rows(found: dict[str, Any], claimed: dict[str, Any]) -> list[Row]:
    rows = []
    for name, answer in found.items():
        other = claimed.get(name)
        rows.append(Row("stub GPU", name, "pass" if answer == other else "fail", answer, other,
                        "B" if isinstance(answer, int) else ""))
    return rows
