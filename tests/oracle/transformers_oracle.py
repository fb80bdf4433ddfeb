"""Has the real FSDP2 train models of transformers, and compares; scripts/oracle calls it.

    transformers_oracle.py FSDP_PLAN STUB 4=PYTHON 5=PYTHON [--document FILE]
    transformers_oracle.py FSDP_PLAN STUB 5=PYTHON --folders [--packages FOLDER] [--only NAME ...] [--document FILE]

An environment for each major version. Rewrites the recorded cases, and with --document the tables. With --folders the specs are
published config.json files; --packages has transformers if PYTHON does not; --only replaces the lines of some of them. Exit: 1
where collectives differ.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import differences  # noqa: E402
import goldens  # noqa: E402
from marked_text import write_between  # noqa: E402
from predict import ROOT, Case, predict  # noqa: E402
from record import Machine  # noqa: E402
from transformers_cases import cases, folder_cases  # noqa: E402

GOLDENS = ROOT / "tests" / "golden" / "oracle" / "transformers.jsonl"
FOLDERS = ROOT / "tests" / "golden" / "oracle" / "folders.jsonl"


PHASES = ("initialization", "forward", "backward", "optimizer")


@dataclasses.dataclass
class Row:
    """A model under a plan."""

    model: str
    plan: str
    version: int
    collectives: int
    different: int  # How many of them.
    peaks: list[tuple[str, float]]  # "peak, 2, forward", and how far it is off by percent.
    allocator: dict[str, float]  # The same of the allocator's own peaks.

    def steady(self) -> float:
        return next(off for what, off in self.peaks if what == "peak, 2")

    def worst(self, phase: str) -> float:
        """For the initialization, or of a part of the first and the steady step."""
        return max((off for what, off in self.peaks if what.split(", ")[-1] == phase), key=abs)


def run_cases(program: pathlib.Path, machine: Machine, version: int, chosen: list[tuple[Case, dict[str, Any]]],
              kept: list[str]) -> list[Row]:
    made = [(case, given, predict(program, case)) for case, given in chosen]
    requests = [{"name": case.name, "model": found.model, "plan": found.plan, "rank": case.rank, "transformers": given}
                for case, given, found in made]
    answers = machine.run(requests, "transformers")
    rows = []
    for case, _, found in made:
        answer = answers[case.name]
        if "error" in answer:
            raise RuntimeError(f"{case.name}: {answer['error']}")
        compared = differences.compare(found.result, answer["result"], True)
        different = compared.differing["collectives"]
        if different:
            print(case.name, *compared.lines, sep="\n    ")
        model, plan, _ = case.name.split("/")
        off = [(what, 100.0 * (predicted / real - 1)) for what, predicted, real in compared.errors if what.startswith("peak")]
        allocator = {what: 100.0 * (size / answer["result"]["allocator"][what] - 1)
                     for what, size in found.result["allocator"].items()}
        rows.append(Row(model, plan, version, compared.compared["collectives"], different, off, allocator))
        kept.append(goldens.to_line(case, True, answer["result"], compared.exact))
    return rows


def tables(rows: list[Row]) -> list[str]:
    """The plans of a model side by side; then its phases, each under the plan that is furthest off."""
    plans = list(dict.fromkeys(row.plan for row in rows))
    lines = [f"| model | transformers | collectives differ | steady peak: {' | '.join(plans)} |",
             "|---" * (3 + len(plans)) + "|"]
    by_phase = [f"| model | transformers | peak furthest off: {' | '.join(PHASES)} |", "|---" * (2 + len(PHASES)) + "|"]
    for model, version in dict.fromkeys((row.model, row.version) for row in rows):
        mine = [row for row in rows if (row.model, row.version) == (model, version)]
        peaks = " | ".join(f"{row.steady():+.3f} %" for row in mine)
        lines.append(f"| {model} | {version} | {sum(r.different for r in mine)} of {sum(r.collectives for r in mine)} | {peaks} |")
        worst = " | ".join(f"{max((row.worst(phase) for row in mine), key=abs):+.3f} %" for phase in PHASES)
        by_phase.append(f"| {model} | {version} | {worst} |")
    return [*lines, "", *by_phase]


def folder_table(rows: list[Row]) -> list[str]:
    """The same for folders, with the allocator's peaks."""
    plans = list(dict.fromkeys(row.plan for row in rows))
    lines = [f"| model | transformers | collectives differ | steady peak: {' | '.join(plans)} | allocated | reserved |",
             "|---" * (5 + len(plans)) + "|"]
    for model, version in dict.fromkeys((row.model, row.version) for row in rows):
        mine = [row for row in rows if (row.model, row.version) == (model, version)]
        peaks = " | ".join(f"{row.steady():+.3f} %" for row in mine)
        worst = " | ".join(f"{max((row.allocator[what] for row in mine), key=abs):+.3f} %" for what in ("allocated", "reserved"))
        lines.append(f"| {model} | {version} | {sum(r.different for r in mine)} of {sum(r.collectives for r in mine)} | {peaks} | {worst} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=lambda text: pathlib.Path(text).absolute())
    parser.add_argument("stub", type=lambda text: pathlib.Path(text).absolute())
    parser.add_argument("environments", nargs="+")
    parser.add_argument("--document", type=pathlib.Path)
    parser.add_argument("--folders", action="store_true")
    parser.add_argument("--packages", type=lambda text: pathlib.Path(text).absolute())
    parser.add_argument("--only", nargs="+", default=[])
    given = parser.parse_args()
    rows, kept = [], []
    for environment in given.environments:
        version, python = environment.split("=")
        machine = Machine(pathlib.Path(python).absolute(), given.stub, given.packages)
        chosen = folder_cases(int(version), given.only) if given.folders else cases(int(version))
        rows += run_cases(given.program, machine, int(version), chosen, kept)
    made = folder_table(rows) if given.folders else tables(rows)
    print("\n".join(made))
    file = FOLDERS if given.folders else GOLDENS
    names = {json.loads(line)["name"] for line in kept}
    before = file.read_text(encoding="utf-8").splitlines() if given.only and file.exists() else []
    kept = [line for line in before if json.loads(line)["name"] not in names] + kept
    file.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
    if given.document:
        write_between(given.document, "folders" if given.folders else "transformers", made)
    return 1 if any(row.different for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
