#!/usr/bin/env python3
"""Predicted tokens a second beside published ones (published_runs.py).

usage: published_runs_test.py FSDP_PLAN [--document FILE]

The shares that cards reach in training were fitted to these runs, so three things are held apart: how near the median comes, whether
nine in ten lie inside the printed band in each half of the sources, and what a card is worth that has no run of its own: A100 and H100
with each other's shares. --document writes the table instead.

Exit: 0 all hold, 1 one does not.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import statistics
import sys
import tempfile
from typing import Any

import published_runs
from published_runs import Prediction, Run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import command
import marked_text

MEDIAN_ERROR = 0.05  # Of all runs.
MEDIAN_ERROR_OF_A_CARD = 0.06
INSIDE = 0.9  # Of the runs of any half, and of borrowed shares.

CARDS = {"A100 40GB SXM": "a100_40gb_sxm", "A100 80GB SXM": "a100_80gb_sxm", "H100 SXM": "h100_80gb_sxm"}
SHARES = ("achievable_compute", "achievable_bandwidth", "achievable_attention")


def predict_all(program: pathlib.Path, runs: list[Run], borrow: bool = False) -> list[Prediction]:
    def one(run: Run) -> Prediction:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            return published_runs.predict(program, run, path, borrowed(run, path) if borrow else None)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, runs))


def borrowed(run: Run, folder: pathlib.Path) -> list[str]:
    """The machine of a run, whose card has the shares of the other architecture, as a card without runs would."""
    cards = command.ROOT / "model_specs" / "clusters" / "gpus"
    read = lambda name: json.loads((cards / f"{name}.json").read_text(encoding="utf-8"))  # noqa: E731
    card, other = read(CARDS[run.gpu]), read("a100_80gb_sxm" if run.gpu.startswith("H100") else "h100_80gb_sxm")
    for share in SHARES:
        card[share] = {**other[share], "provenance": "assumed"}
    cluster = {"format_version": "1.0", "kind": "cluster", "name": "borrowed", "gpu": card, "gpus_per_node": run.gpus_per_node,
               "nodes": run.nodes}  # fmt: skip
    path = folder / "cluster.json"
    path.write_text(json.dumps(cluster), encoding="utf-8")
    return ["--cluster", str(path)]


def inside(predictions: list[Prediction]) -> float:
    return sum(p.is_inside for p in predictions) / len(predictions)


def median_error(predictions: list[Prediction]) -> float:
    return statistics.median(abs(p.ratio - 1) for p in predictions)


def halves(predictions: list[Prediction]) -> tuple[list[Prediction], list[Prediction]]:
    """By source: llm-foundry's tables of A100 80GB and H100; its table of A100 40GB, and everybody else."""
    first = [p for p in predictions if p.run.project == "mosaicml/llm-foundry" and p.run.gpu != "A100 40GB SXM"]
    return first, [p for p in predictions if p not in first]


def quantile_band(predictions: list[Prediction]) -> tuple[float, float]:
    """What 19 of 20 published steps, in predicted ones, are above, and what 19 of 20 are below."""
    ratios = sorted(p.ratio for p in predictions)
    cut = len(ratios) // 20
    return ratios[cut], ratios[-1 - cut]


def share_within(predictions: list[Prediction], band: tuple[float, float]) -> float:
    return sum(band[0] <= p.ratio <= band[1] for p in predictions) / len(predictions)


def table(predictions: list[Prediction], swapped: list[Prediction]) -> list[str]:
    groups: dict[str, list[Prediction]] = {}
    for p in predictions:
        groups.setdefault(p.run.group, []).append(p)
    lines = [f"{len(predictions)} runs. Median error {median_error(predictions):.1%}, inside the printed band {inside(predictions):.0%}."
             .replace("%", " %"), "",
             "| GPU, source, FSDP, size | runs | tokens/s, predicted over published: median | least | most | inside |",
             "|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    for name, group in sorted(groups.items()):
        ratios = [p.ratio for p in group]
        within = sum(p.is_inside for p in group)
        lines.append(f"| {name} | {len(group)} | {statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} | {within} |")
    first, second = halves(predictions)
    lines.append("")
    for fitted, checked, name in ((first, second, "first"), (second, first, "second")):
        low, high = quantile_band(fitted)
        lines.append(f"A band from the {name} half of the sources ({len(fitted)} runs, 5th to 95th percentile of published over "
                     f"predicted steps) is {low:.2f} to {high:.2f}; of the other half {100 * share_within(checked, (low, high)):.0f} % "
                     f"lie inside it, and {100 * inside(checked):.0f} % inside the printed band.")  # fmt: skip
    lines.append(f"With the shares of the other architecture, as a card without runs has them, the median error is "
                 f"{100 * median_error(swapped):.0f} %, and {100 * inside(swapped):.0f} % lie inside the wider band that is printed then.")  # fmt: skip
    return lines


def failures(predictions: list[Prediction], swapped: list[Prediction]) -> list[str]:
    found: list[str] = []

    def hold(what: str, figure: float, is_good: bool, bound: float) -> None:
        if not is_good:
            found.append(f"{what}: {figure:.3f}, the bound is {bound}")

    hold("median error", median_error(predictions), median_error(predictions) <= MEDIAN_ERROR, MEDIAN_ERROR)
    for card in CARDS:
        own = [p for p in predictions if p.run.gpu == card]
        hold(f"median error on {card}", median_error(own), median_error(own) <= MEDIAN_ERROR_OF_A_CARD, MEDIAN_ERROR_OF_A_CARD)
    for name, half in zip(("first", "second"), halves(predictions), strict=True):
        hold(f"inside the band, {name} half", inside(half), inside(half) >= INSIDE, INSIDE)
    hold("inside the band of borrowed shares", inside(swapped), inside(swapped) >= INSIDE, INSIDE)
    width: Any = [(p.high / p.low, q.high / q.low) for p, q in zip(predictions, swapped, strict=True) if p.run.nodes == 1]
    hold("narrowest borrowed band over fitted one", min(b / a for a, b in width), all(b > a for a, b in width), 1)
    return found


def main() -> int:
    program = pathlib.Path(sys.argv[1]).resolve()
    runs = published_runs.runs()
    predictions, swapped = predict_all(program, runs), predict_all(program, runs, borrow=True)
    if sys.argv[2:3] == ["--document"]:
        marked_text.write_between(pathlib.Path(sys.argv[3]), "published runs", table(predictions, swapped))
        return 0
    found = failures(predictions, swapped)
    print("\n".join(found or table(predictions, swapped)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
