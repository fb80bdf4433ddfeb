"""Has the real FSDP2 train models of transformers, and compares; scripts/oracle calls it.

    transformers_oracle.py FSDP_PLAN STUB 4=PYTHON 5=PYTHON [--document FILE]

An environment for each major version. Rewrites the recorded cases, and with --document the table. Exit: 1 where collectives
differ.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import differences  # noqa: E402
import goldens  # noqa: E402
from marked_text import write_between  # noqa: E402
from predict import ROOT, predict  # noqa: E402
from record import Machine  # noqa: E402
from transformers_cases import cases  # noqa: E402

GOLDENS = ROOT / "tests" / "golden" / "oracle" / "transformers.jsonl"


def percent(predicted: dict[str, Any], recorded: dict[str, Any]) -> tuple[float, float]:
    """How far the peaks of the first and the steady step are off."""
    first, steady = (100.0 * (predicted["peaks"][step] / recorded["peaks"][step][0] - 1) for step in ("1", "2"))
    return first, steady


def run_version(program: pathlib.Path, stub: pathlib.Path, version: int, python: pathlib.Path,
                kept: list[str]) -> list[tuple[str, int, int, float, float]]:
    """[name, collectives, of them different, peaks off by percent]"""
    made = [(case, given, predict(program, case)) for case, given in cases(version)]
    requests = [{"name": case.name, "model": found.model, "plan": found.plan, "rank": case.rank, "transformers": given}
                for case, given, found in made]
    answers = Machine(python, stub).run(requests, "transformers")
    rows = []
    for case, _, found in made:
        answer = answers[case.name]
        if "error" in answer:
            raise RuntimeError(f"{case.name}: {answer['error']}")
        compared = differences.compare(found.result, answer["result"], True)
        different = compared.differing["collectives"]
        if different:
            print(case.name, *compared.lines, sep="\n    ")
        rows.append((case.name, compared.compared["collectives"], different, *percent(found.result, answer["result"])))
        kept.append(goldens.to_line(case, True, answer["result"], compared.exact))
    return rows


def table(rows: list[tuple[str, int, int, float, float]]) -> str:
    """The plans of a model side by side."""
    plans = list(dict.fromkeys(row[0].split("/")[1] for row in rows))
    lines = [f"| model | transformers | collectives differ | steady peak: {' | '.join(plans)} |",
             "|---" * (3 + len(plans)) + "|"]
    for model, version in dict.fromkeys((row[0].split("/")[0], row[0].split("_")[-1]) for row in rows):
        mine = [row for row in rows if row[0].startswith(f"{model}/") and row[0].endswith(version)]
        peaks = " | ".join(f"{row[4]:+.3f} %" for row in mine)
        lines.append(f"| {model} | {version} | {sum(r[2] for r in mine)} of {sum(r[1] for r in mine)} | {peaks} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=lambda text: pathlib.Path(text).absolute())
    parser.add_argument("stub", type=lambda text: pathlib.Path(text).absolute())
    parser.add_argument("environments", nargs="+")
    parser.add_argument("--document", type=pathlib.Path)
    given = parser.parse_args()
    rows, kept = [], []
    for environment in given.environments:
        version, python = environment.split("=")
        rows += run_version(given.program, given.stub, int(version), pathlib.Path(python).absolute(), kept)
    print(table(rows))
    GOLDENS.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
    if given.document:
        write_between(given.document, "transformers", [table(rows)])
    return 1 if any(row[2] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
