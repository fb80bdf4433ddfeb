"""Records the messages of each rank after a fault, from the tests that cause it, if FSDP_TOLD names a file: the table of
docs/tables/executor_faults.md (faults_document.py)."""

from __future__ import annotations

import json
import os
import pathlib
import re
import tempfile
import time
from typing import Any

from ranks import ROOT, Rank

GOES_ON = "nothing: it trains on"
LONGEST = 320  # Characters of a sentence in the table; PyTorch's own are longer.


def sentence(printed: str) -> str:
    """The errors that a rank has printed, without the folder of the test."""
    lines = [line for line in printed.splitlines() if line.startswith("error: ")]
    return re.sub(re.escape(tempfile.gettempdir()) + r"/\w+/", "", " ".join(lines))


def tell(fault: str, ranks: list[Rank], began: float | None = None) -> None:
    """`began`: the time of the fault, or the end of its time-out; all ranks that should end have ended. REQUIRES: the test has
    checked their output."""
    path = os.environ.get("FSDP_TOLD")
    if not path:
        page = (ROOT / "docs" / "tables" / "executor_faults.md").read_text(encoding="utf-8")
        assert f"\n| {fault} | " in page, f"docs/tables/executor_faults.md does not have the fault {fault!r}: scripts/executor_proof"
        return
    seconds = None if began is None else max(0.0, time.monotonic() - began)
    said = [{"rank": rank.rank, "code": rank.process.poll(),
             "sentence": GOES_ON if rank.process.poll() is None else sentence(rank.printed)} for rank in ranks]
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps({"fault": fault, "seconds": seconds, "ranks": said}) + "\n")


def _alike(rank: dict[str, Any]) -> tuple[int | None, str]:
    """Two ranks got the same message if only numbers, such as their own, and the instruction differ."""
    text = re.sub(r"instruction \S+ of \S+ [^:]*: ", "instruction: ", rank["sentence"])
    return rank["code"], re.sub(r"\d+(\.\d+)?", "#", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")


def _told(ranks: list[dict[str, Any]]) -> str:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for rank in ranks:
        groups.setdefault(_alike(rank), []).append(rank)
    cells = []
    for group in groups.values():
        numbers = ", ".join(str(rank["rank"]) for rank in group)
        text = group[0]["sentence"]
        text = text if len(text) <= LONGEST else text[:LONGEST].rpartition(" ")[0] + " [...]"
        who = f"rank {numbers}: " if len(group) == 1 else f"ranks {numbers}: "
        cells.append(who + (text if text == GOES_ON else f"`{_cell(text)}`"))
    return "<br>".join(cells)


def rows(path: pathlib.Path) -> list[str]:
    """A row of the table for each fault, in order of occurrence; the first of a name counts."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        found.setdefault(told["fault"], told)
    lines = []
    for told in found.values():
        codes = ", ".join(dict.fromkeys(str(rank["code"]) for rank in told["ranks"] if rank["code"] is not None))
        seconds = "" if told["seconds"] is None else f"{told['seconds']:.1f}"
        lines.append(f"| {told['fault']} | {_told(told['ranks'])} | {codes} | {seconds} |")
    return lines
