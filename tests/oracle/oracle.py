"""Draws cases, has the real FSDP2 run them, and compares; scripts/oracle calls it.

    oracle.py FSDP_PLAN PYTHON STUB [--seed S] [--cases N] [--only NUMBER] [--keep N] [--jobs J] [--document FILE]
    oracle.py FSDP_PLAN PYTHON STUB --renew

--only shows one drawn case. --keep writes the first N cases as goldens, --document the table. --renew runs nothing: the recorded
cases get the differences that they have now. Exit: 1 where collectives differ.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
from collections import Counter, defaultdict

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import differences  # noqa: E402
import goldens  # noqa: E402
from draw import draw_case  # noqa: E402
from marked_text import write_between  # noqa: E402
from predict import ROOT  # noqa: E402
from record import Machine, record  # noqa: E402

GOLDENS = ROOT / "tests" / "golden" / "oracle" / "drawn.jsonl"


KINDS = {"live bytes": "live bytes at a collective", "peak": "peak of a step"}
PARTS = {"initialization": "peak of the initialization", "forward": "peak of a forward", "backward": "peak of a backward",
         "optimizer": "peak of an optimizer step"}


class Tally:
    """Counts by family of models."""

    def __init__(self) -> None:
        self.cases: Counter[str] = Counter()
        self.equal: Counter[str] = Counter()
        self.compared: dict[str, Counter[str]] = defaultdict(Counter)
        self.differing: dict[str, Counter[str]] = defaultdict(Counter)
        self.errors: dict[str, list[tuple[int, int]]] = {kind: [] for kind in (*KINDS, *PARTS)}  # Predicted, real.

    def add(self, family: str, found: differences.Comparison) -> None:
        self.cases[family] += 1
        self.equal[family] += found.is_equal
        self.compared[family] += found.compared
        self.differing[family] += found.differing
        for what, predicted, real in found.errors:
            parts = what.split(", ")
            kind = parts[2] if len(parts) == 3 else "initialization" if parts[-1] == "initialization" else parts[0]
            self.errors[kind].append((predicted, real))

    def _cells(self, families: list[str]) -> str:
        def of(*names: str) -> str:
            def total(counts: dict[str, Counter[str]]) -> int:
                return sum(counts[family][name] for family in families for name in names)
            return f"{total(self.differing)} of {total(self.compared)}"

        peaks = ("peak, initialization", "peak, 1", "peak, 2", "peak by category",
                 *(f"peak, {step}, {part}" for step in (1, 2) for part in ("forward", "backward", "optimizer")))
        cases, equal = (sum(counts[family] for family in families) for counts in (self.cases, self.equal))
        return f"{cases} | {equal} | {of('collectives')} | {of('live bytes')} | {of('live bytes by category')} | {of(*peaks)}"

    def table(self) -> str:
        lines = ["| models | cases | equal in all | collectives differ | live bytes differ | by category differ | peaks differ |",
                 "|---|---|---|---|---|---|---|"]
        families = sorted(self.cases)
        lines += [f"| {family} | {self._cells([family])} |" for family in families]
        return "\n".join([*lines, f"| all | {self._cells(families)} |"])


    def signs(self) -> str:
        """How often a prediction is too low and too high, and the worst of either."""
        lines = ["| | compared | too low | worst | too high | worst |", "|---|---|---|---|---|---|"]
        for kind, title in {**KINDS, **PARTS}.items():
            errors = self.errors[kind]
            cells = [f"{len(errors)}"]
            for sign in (-1, 1):
                wrong = [(abs(p - r) / r, p - r) for p, r in errors if sign * (p - r) > 0]
                share, by = max(wrong, default=(0.0, 0))
                cells += [f"{len(wrong)}", f"{sign * 100 * share:+.3f} %, {by:+,} bytes" if wrong else "-"]
            lines.append(f"| {title} | {' | '.join(cells)} |")
        return "\n".join(lines)


def run(arguments: argparse.Namespace) -> int:
    begin = time.monotonic()
    numbers = [arguments.only] if arguments.only is not None else range(arguments.cases)
    pairs = [draw_case(arguments.program, arguments.seed, number) for number in numbers]
    answers = record(Machine(arguments.python, arguments.stub), pairs, arguments.jobs)
    tally, kept, failed = Tally(), [], 0
    for case, prediction in pairs:
        answer = answers[case.name]
        if "error" in answer:
            failed += 1
            print(f"{case.name}: {answer['error']}")
            continue
        merges = differences.merges_gradients(prediction.model)
        found = differences.compare(prediction.result, answer["result"], merges)
        tally.add(case.spec["name"].removeprefix("Drawn-"), found)
        if not found.is_equal:
            print(f"{case.name} {case.spec['name']}: {dict(found.differing)}")
            print("\n".join(f"    {line}" for line in found.lines))
        if len(kept) < arguments.keep:
            kept.append(goldens.to_line(case, merges, answer["result"], found.exact))
    print(f"{tally.table()}\n{failed} did not run. {time.monotonic() - begin:.0f} s.")
    if kept:
        GOLDENS.parent.mkdir(parents=True, exist_ok=True)
        GOLDENS.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
    if arguments.document:
        counts = f"Seed {arguments.seed}, {len(pairs)} cases, {failed} did not run."
        write_between(arguments.document, "drawn", [counts, "", tally.table(), "", tally.signs()])
    return 1 if failed or any(counts["collectives"] for counts in tally.differing.values()) else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/oracle")
    for name in ("program", "python", "stub"):
        parser.add_argument(name, type=lambda text: pathlib.Path(text).absolute())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--document", type=pathlib.Path)
    parser.add_argument("--renew", action="store_true")
    arguments = parser.parse_args()
    if not arguments.renew:
        return run(arguments)
    for file in sorted(GOLDENS.parent.glob("*.jsonl")):
        print(f"{file.name}: other differences in {', '.join(goldens.renew(arguments.program, file)) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
