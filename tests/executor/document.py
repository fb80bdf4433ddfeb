"""Writes the table of docs/tables/executor_predicted.md: trains every case of parity_cases.py on this machine, and puts
measured values next to predicted ones. scripts/executor_proof calls it.

    document.py FSDP_PLAN DOCUMENT
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from marked_text import write_between  # noqa: E402
from parity_cases import CASES, Case  # noqa: E402

LIMIT_SECONDS = 900


def execute(fsdp_plan: pathlib.Path, case: Case, *options: str) -> dict[str, dict[str, float]]:
    """The compared terms by name."""
    with tempfile.TemporaryDirectory() as name:
        plan = case.write(pathlib.Path(name))
        done = subprocess.run([str(fsdp_plan), "execute", str(plan), "--json", *options],
                              capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS)
    return {term["name"]: term for term in json.loads(done.stdout)["comparison"]["terms"]}


def calibrated(fsdp_plan: pathlib.Path, case: Case) -> dict[str, dict[str, float]]:
    """The terms of a prediction that uses a calibration with another plan of the model."""
    with tempfile.TemporaryDirectory() as name:
        options = ("--calibration", f"{name}/calibration.json")
        teacher = case.teacher()
        if teacher is not None:
            execute(fsdp_plan, teacher, "--steps", "1", *options)
        return execute(fsdp_plan, case, "--steps", "3", *options)


def error_text(term: dict[str, float]) -> str:
    if term["difference"] == 0:
        return "0 B"
    return f"{term['difference']:+d} B ({term['relative']:+.3%})".replace("%", " %")


def row(case: Case, before: dict[str, dict[str, float]], terms: dict[str, dict[str, float]]) -> list[str]:
    collectives = terms.get("collectives as predicted", {"measured": 0, "predicted": 0})  # One rank has none.
    mesh = f"{case.replicate} x {case.shard}" if case.replicate > 1 else str(case.shard)
    cells = [case.name, mesh, f"{collectives['measured']} of {collectives['predicted']}",
             f"{terms['steady step: live peak']['measured']:,}",
             error_text(before["live peak"]),
             *(error_text(terms[f"{phase}: live peak"]) for phase in ("initialization", "first step", "steady step")),
             f"{sum(abs(t['difference']) for name, t in terms.items() if name.startswith('at peak')):,} B"]
    return cells


def table(rows: list[list[str]]) -> list[str]:
    """Cases whose terms are all equal in one line, the others in a table."""
    equal = [cells for cells in rows if {*cells[4:]} == {"0 B"} and len({*cells[2].split(" of ")}) == 1]
    listed = "; ".join(f"{name} ({ranks}, {collectives.split()[0]}, {peak})" for name, ranks, collectives, peak, *_ in equal)
    return [f"All differences are 0 B, calibrated or not, in (ranks, collectives, peak in bytes): {listed}.", "",
            "| case | ranks | collectives as predicted | peak, bytes | uncalibrated | initialization | first step "
            "| steady step | categories |",
            "|---|---|---|---:|---:|---:|---:|---:|---:|",
            *("| " + " | ".join(cells) + " |" for cells in rows if cells not in equal)]


def main() -> None:
    fsdp_plan, document = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    rows = []
    for number, case in enumerate(CASES):
        print(f"{number + 1} of {len(CASES)}: {case.name}", file=sys.stderr, flush=True)
        rows.append(row(case, execute(fsdp_plan, case, "--steps", "3"), calibrated(fsdp_plan, case)))
    write_between(document, "executions", table(rows))


if __name__ == "__main__":
    main()
