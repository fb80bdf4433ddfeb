#!/usr/bin/env python3
"""What a process takes of a card beside what PyTorch reserves, as others saw it (tests/golden/real_gpu/contexts.csv), beside the library's context.

usage: contexts_test.py PROJECT_ROOT [--document FILE]

An out-of-memory message of PyTorch says what the process has in use, what is allocated and what is reserved beside that; the rest is
the context with the kernels that were loaded until then. Messages of several devices in one process, and of processes that share a card,
were not taken. A card's context is the median.

Exit: 0 the library has the medians, 1 it does not.
"""

from __future__ import annotations

import csv
import json
import pathlib
import statistics
import sys

MIB = {"MiB": 1.0, "GiB": 1024.0}
SAME_CHIP = ("A100",)  # Whatever their memory.


def mebibytes(text: str) -> float:
    """"1.15 GiB unallocated"."""
    number, unit = text.split()[:2]
    return float(number) * MIB[unit]


def context(row: dict[str, str]) -> float:
    if row["context_mib"]:
        return float(row["context_mib"])
    _, used, allocated, unallocated = map(mebibytes, row["source"].split("; "))
    return used - allocated - unallocated


def contexts(root: pathlib.Path) -> dict[str, list[float]]:
    """By card, in the order of the file."""
    found: dict[str, list[float]] = {}
    with (root / "tests/golden/real_gpu/contexts.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            name = next((chip for chip in SAME_CHIP if row["card"].startswith(chip)), row["card"])
            found.setdefault(name, []).append(context(row))
    return found


def of_library(root: pathlib.Path, name: str) -> list[float]:
    """The contexts of the cards of a name."""
    cards = [json.loads(path.read_text(encoding="utf-8")) for path in (root / "model_specs/clusters/gpus").glob("*.json")]
    chosen = [card for card in cards if card["name"] == name or (name in SAME_CHIP and card["name"].startswith(name))]
    return [float(card["context"]["value"].removesuffix("MiB")) for card in chosen]


def table(root: pathlib.Path) -> list[str]:
    lines = ["| card | processes | least MiB | median | most | in the library |", "|---|---:|---:|---:|---:|---:|"]
    for name, seen in contexts(root).items():
        figures = (min(seen), statistics.median(seen), max(seen), of_library(root, name)[0])
        lines.append(f"| {name} | {len(seen)} | {' | '.join(f'{figure:.0f}' for figure in figures)} |")
    return lines


def main() -> int:
    root = pathlib.Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(root / "tests" / "support"))
    import marked_text

    page = pathlib.Path(sys.argv[3]) if sys.argv[2:3] == ["--document"] else root / "docs" / "real_gpus.md"
    if sys.argv[2:3] == ["--document"]:
        marked_text.write_between(page, "contexts", table(root))
    wrong = [f"{name}: the median is {statistics.median(seen):.0f} MiB, and the library has {had:.0f}." for name, seen in contexts(root).items()
             for had in of_library(root, name) or [0.0] if abs(had - statistics.median(seen)) > 1]  # fmt: skip
    if "\n".join(table(root)) not in page.read_text(encoding="utf-8"):
        wrong.append(f"{page} has another table. Run tests/accuracy/contexts_test.py {root} --document {page}.")
    print("\n".join(wrong or table(root)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
