#!/usr/bin/env python3
"""Scripts, captured and planned, next to what they do under the plans: the table in docs/capture_proof.md.

    capture_proof.py --command PATH --results FOLDER [NAME...]   captures and rehearses; NAME is a script of capture_cases.py
    capture_proof.py --results FOLDER --document FILE --packages NAME   writes the results into a Markdown file

Run by a Python that has torch and the packages of an environment (Case.packages). Exit: 0 all are as expected, 1 one is not.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import statistics
import sys
from typing import Any

from capture_cases import CASES, PLANS, REFUSED, Case
from capture_runs import TERMS, Failed, Runner, difference, problems_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_OFF = 0.005  # requested and allocated
BEGIN = {"published-models": "<!-- results: made by ./scripts/capture_proof -->\n",
         "finetuning": "<!-- results of fine-tuning: made by ./scripts/capture_proof -->\n"}
END = "<!-- end of results -->"


def run_all(cases: list[Case], runner: Runner, results: pathlib.Path) -> int:
    def run(case: Case) -> int:
        found = runner.run(case)
        (results / f"{case.name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        wrong = wrong_in(case, found)
        print(f"{'FAILED' if wrong else 'passed'}  {case.name}", *wrong, sep="\n        ", flush=True)
        return bool(wrong)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return int(any(list(pool.map(run, cases))))


def wrong_in(case: Case, found: dict[str, Any]) -> list[str]:
    refused = found.get("refused", "")
    if case.refusal:
        return [] if case.refusal in refused else [f"It is not refused with \"{case.refusal}\": {refused or 'it is captured'}"]
    if refused:
        return [refused]
    return [f"{name}: {problem}" for name, plan in found["plans"].items() for problem in problems_of(plan, MOST_OFF)]


def percent(value: float) -> str:
    text = f"{100 * value:+.3f}"
    return "0" if float(text) == 0 else text


def row_of(case: Case, found: dict[str, Any]) -> list[str]:
    """The worst of each plan's requested and allocated, and each plan's reserved."""
    cells = []
    for name in PLANS:
        plan = found["plans"][name]
        if "failed" in plan:
            cells.append("failed")
            continue
        percents = [percent(difference(plan[term])) for term in TERMS]
        cells.append(" / ".join(percents) if {*percents} != {"0"} else "0")
    plans = [plan for plan in found["plans"].values() if "failed" not in plan]
    same = all(plan["collectives"][0] == plan["collectives"][1] for plan in plans)
    return [case.title, f"{found['seconds']:.0f}", *cells, "equal" if same else "differ"]


def summary_of(founds: list[dict[str, Any]]) -> list[str]:
    plans = [plan for found in founds for plan in found["plans"].values()]
    compared = [plan for plan in plans if "failed" not in plan]
    equal = sum(plan["collectives"][0] == plan["collectives"][1] for plan in compared)
    lines = [f"{len(founds)} scripts, {len(plans)} plans, of which {len(compared)} could be compared. Kinds, counts and payloads of the collectives of a",
             f"steady step are equal in {equal}.", "", "| of a steady step | median | nine of ten within | worst |", "|---|---:|---:|---:|"]
    for term in TERMS:
        off = sorted(abs(difference(plan[term])) for plan in compared)
        tenth = off[math.ceil(0.9 * len(off)) - 1]
        lines.append(f"| {term} | {100 * statistics.median(off):.3f} % | {100 * tenth:.3f} % | {100 * off[-1]:.3f} % |")
    return lines


def table(header: list[str], rows: list[list[str]], left: int = 1) -> list[str]:
    marks = ["---"] * left + ["---:"] * (len(header) - left)
    return ["| " + " | ".join(cells) + " |" for cells in (header, marks, *rows)]


def scripts(rows: list[list[str]]) -> list[str]:
    """The rows of scripts, as row_of makes them: those that are equal throughout in one line, the others in a table."""
    equal = [row for row in rows if {*row[2:-1]} == {"0"} and row[-1] == "equal"]
    listed = "; ".join(f"{row[0]} ({row[1]})" for row in equal)
    return [*([f"0 under all plans, collectives equal, with the CPU seconds of the capture: {listed}.", ""] if equal else []),
            *table(["script", "capture, CPU s", *PLANS, "collectives"], [row for row in rows if row not in equal])]


def sentence_of(refused: str) -> str:
    """The error alone: without the traceback before it, and with files named by their place in the project."""
    return refused.rpartition("error: ")[2].removeprefix("rank 0: ").replace(f"{ROOT}/", "")


def document(results: pathlib.Path, path: pathlib.Path, packages: str) -> None:
    """Writes the table of the scripts whose libraries are those of one environment."""

    def read(case: Case) -> dict[str, Any] | None:
        file = results / f"{case.name}.json"
        is_wanted = case.packages == packages and file.exists()
        return json.loads(file.read_text(encoding="utf-8")) if is_wanted else None

    founds = [(case, found) for case in CASES if (found := read(case)) and "plans" in found]
    lines = summary_of([found for _, found in founds])
    lines += ["", "Each cell: requested / allocated / reserved, predicted against rehearsed, in percent; 0: all three.", ""]
    lines += scripts([row_of(case, found) for case, found in founds])
    refused = [[case.title, sentence_of(found["refused"])] for case in (*REFUSED, *CASES)
               if (found := read(case)) and "refused" in found]
    lines += ["", "What cannot be captured, and what is printed:", "", *table(["script", "sentence"], refused, left=2), ""]
    begin = BEGIN[packages]
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    path.write_text(before + begin + "\n".join(lines) + END + rest.partition(END)[2], encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--document", type=pathlib.Path)
    parser.add_argument("--packages", help="only scripts whose libraries are those of this environment")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if (arguments.command is None) == (arguments.document is None):
        parser.error("Give one of --command and --document.")
    if arguments.document:
        document(arguments.results, arguments.document, arguments.packages or "published-models")
        return 0
    every = [*CASES, *REFUSED]
    unknown = set(arguments.names) - {case.name for case in every}
    if unknown:
        parser.error(f"There is no {sorted(unknown)[0]}. There are: {' '.join(case.name for case in every)}")
    arguments.results.mkdir(parents=True, exist_ok=True)
    folder = arguments.results.resolve() / "work"
    chosen = [case for case in every if not arguments.names or case.name in arguments.names]
    chosen = [case for case in chosen if arguments.packages in (None, case.packages)]
    try:
        return run_all(chosen, Runner(arguments.command.resolve(), folder, {}), arguments.results)
    except Failed as failed:
        sys.exit(str(failed))


if __name__ == "__main__":
    sys.exit(main())
