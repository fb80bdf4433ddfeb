#!/usr/bin/env python3
"""The proof that `fsdp-plan rehearse` works under the frameworks that people use: frameworks/cases.py, run and compared.

    frameworks_test.py --check                                    only what needs no PyTorch: the table and its formulas
    frameworks_test.py --command PATH --results FOLDER [NAME...]  run cases; NAME is a case, an environment or a pattern
    frameworks_test.py --results FOLDER --document FILE           write the table of results into a Markdown file
    frameworks_test.py --list

A case passes when the report of the rehearsal says that what should be applied was applied (wrapper, units, parameters,
precision, collectives by closed formulas), when its figures are within their tolerances, and when its peaks are those of the
run before, in FOLDER. Exit: 0 all passed, 1 a case failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import pathlib
import resource
import subprocess
import sys
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent / "frameworks"
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "support")]

import cases  # noqa: E402
import results  # noqa: E402
import shapes  # noqa: E402
from cases import Case  # noqa: E402

LIMIT_SECONDS = 1800
# Losses, gradient norms and flags, which have no closed formula worth writing down.
SMALL_COLLECTIVES = 64 << 10


def wrong_table(table: list[Case]) -> list[str]:
    """What is wrong with the table itself."""
    wrong = [f"{name} has {model.elements} parameters by the formulas, but {total} are published."
             for name, (model, total, _) in shapes.PUBLISHED.items() if model.elements != total]
    names = [case.name for case in table]
    wrong += [f"Two cases are called {name}." for name in sorted({n for n in names if names.count(n) > 1})]
    requirements = ROOT / "tests" / "rehearsal" / "requirements"
    for case in table:
        if not (requirements / f"{case.environment}.txt").is_file():
            wrong.append(f"{case.name}: there is no environment {case.environment}.")
        for word in [*case.command, *case.before]:
            if "{here}" in word and not pathlib.Path(word.format(here=HERE)).exists():
                wrong.append(f"{case.name}: there is no {word}.")
        wrong += [f"{case.name}: {figure.key} has no source." for figure in case.figures if not figure.source]
    return wrong


def chosen(table: list[Case], names: list[str]) -> list[Case]:
    for name in names:
        if not any(fnmatch.fnmatch(case.name, name) or case.environment == name for case in table):
            sys.exit(f"No case and no environment is called {name}. See --list.")
    return [case for case in table
            if not names or any(fnmatch.fnmatch(case.name, n) or case.environment == n for n in names)]


def rehearse(case: Case, command: pathlib.Path, folder: pathlib.Path) -> dict[str, Any]:
    """Runs a case; its report, what it cost, and what it printed."""
    python = ROOT / "build" / "python" / case.environment / "bin"
    if not (python / "python").exists():
        return {"failed": f"There is no environment. Write: ./scripts/rehearsal_env {case.environment}"}
    work = folder / case.name
    work.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PATH": f"{python}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    for script in case.before:
        subprocess.run([python / "python", script.format(here=HERE)], cwd=work, env=environment, check=True)
    words = [word.format(here=HERE) for word in case.command]
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([command, "rehearse", "--json", "--timeout", f"{LIMIT_SECONDS}s", *case.options, "--", *words],
                          cwd=work, env=environment, capture_output=True, text=True, errors="replace", check=False)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    run: dict[str, Any] = {
        "exit": done.returncode,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
    }
    (work / "stderr.txt").write_text(done.stderr)
    try:
        run["report"] = json.loads(done.stdout)
    except ValueError:
        run["failed"] = f"exit {done.returncode} and no report: {done.stderr.strip()[-600:]}"
    return run


def compared(what: str, found: Any, wanted: Any) -> list[str]:
    return [] if found == wanted else [f"{what} is {found}, and should be {wanted}."]


def traffic_of(case: Case, report: dict[str, Any]) -> tuple[dict[tuple[str, str], tuple[int, int]], int]:
    """Count and elements by kind and type; and the bytes of those that check and log, which are left out: small all-reduces, and
    small ones of a kind that no formula names."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    small = 0
    for row in report["traffic"].get("collectives", []):
        key = (row["kind"], row["dtype"])
        is_small = row["payload_bytes"] < SMALL_COLLECTIVES and not row["unit"]
        if is_small and (row["kind"] == "all_reduce" or key not in case.traffic):
            small += row["payload_bytes"]
            continue
        count, size = found.get(key, (0, 0))
        found[key] = (count + 1, size + row["elements"])
    return found, small


def wrong_traffic(case: Case, report: dict[str, Any]) -> list[str]:
    found, small = traffic_of(case, report)
    # DistributedDataParallel asks once a step which parameters were used, one int32 for each.
    found.pop(("all_reduce", "int32"), None)
    wrong = [f"There is {kind} of {dtype}: {rows}, which no formula names."
             for (kind, dtype), rows in found.items() if (kind, dtype) not in case.traffic]
    for (kind, dtype), (count, size) in case.traffic.items():
        got = found.get((kind, dtype), (0, 0))
        wrong += compared(f"{kind} of {dtype}, elements in a step,", got[1], size)
        if count is not None:
            wrong += compared(f"{kind} of {dtype}, calls in a step,", got[0], count)
    return wrong + ([f"Small collectives move {small} bytes a step."] if small > 4 * SMALL_COLLECTIVES else [])


def wrong_figures(case: Case, report: dict[str, Any]) -> list[str]:
    wrong = []
    for figure in case.figures:
        found = results.lookup(report, figure.key)
        if not figure.value + figure.low <= found <= figure.value + figure.high:
            wrong.append(f"{figure.key} is {found:,}, and should be {figure.value:,.0f} ({figure.low:+,.0f}, "
                         f"{figure.high:+,.0f}): {figure.source}.")
    return wrong


def wrong_run(case: Case, run: dict[str, Any]) -> list[str]:
    """Everything in which the report of a case is not what it should be."""
    if "failed" in run:
        return [run["failed"]]
    report = run["report"]
    rehearsal = report["rehearsal"]
    wrong = compared("The verdict", report["verdict"], "does_not_fit" if case.runs_out else "fits")
    wrong += compared("The exit status", run["exit"], 1 if case.runs_out else 0)
    wrong += compared("The number of parameters", report["model"]["parameters"], case.parameters or case.model.elements)
    applied = rehearsal["applied"]
    wrong += compared("The wrappers", [w["name"] for w in applied["wrappers"]], [case.wrapper])
    for wrapper in applied["wrappers"][:1]:
        wrong += compared("The number of units", len(wrapper["units"]), case.units)
        if wrapper["units"]:
            wrong += compared("Elements of all units", sum(u["elements"] for u in wrapper["units"]),
                              case.parameters or case.model.elements)
        for key, value in case.wrapper_keys.items():
            wrong += compared(f"The wrapper's {key}", wrapper.get(key), value)
    wrong += compared("The types of parameters", list(applied["parameter_dtypes"]), [case.dtype])
    wrong += compared("The kinds of warnings", sorted({w["kind"] for w in rehearsal["warnings"]}), sorted(case.warnings))
    if case.runs_out:
        failed = rehearsal.get("failed_allocation", {})
        wrong += compared("What ran out of memory", (failed.get("phase"), failed.get("step")), case.runs_out)
    else:
        optimizers = [o["class"].rsplit(".", 1)[-1] for o in applied["optimizers"]]
        wrong += compared("The optimizers", optimizers, list(case.optimizers))
        wrong += compared("The end", rehearsal["end"], "steps_reached")
        wrong += wrong_traffic(case, report)
    return wrong + wrong_figures(case, report)


def run_cases(chosen_cases: list[Case], command: pathlib.Path, folder: pathlib.Path) -> int:
    failed = 0
    for number, case in enumerate(chosen_cases, start=1):
        run = rehearse(case, command, folder)
        wrong = wrong_run(case, run)
        before = results.read(folder, case.name)
        if "report" in run and before and before["peaks"] != results.peaks(run["report"]):
            wrong.append(f"The peaks are {results.peaks(run['report'])}, but were {before['peaks']} in the run before.")
        results.write(folder, case, run, wrong, before)
        failed += bool(wrong)
        seconds = f"{run['seconds']:.0f} s" if "seconds" in run else ""
        print(f"[{number}/{len(chosen_cases)}] {'FAILED' if wrong else 'passed'}  {case.name}  {seconds}", flush=True)
        for sentence in wrong:
            print(f"        {sentence}", flush=True)
    print(f"{len(chosen_cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--command", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--document", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    table = cases.all_cases()
    if arguments.check:
        wrong = wrong_table(table)
        print("\n".join(wrong) or f"{len(table)} cases, {len(shapes.PUBLISHED)} models.")
        return 1 if wrong else 0
    if arguments.list:
        for case in table:
            print(f"{case.name:34} {case.environment:16} {case.title}")
        return 0
    if arguments.results is None or (arguments.command is None) == (arguments.document is None):
        parser.error("Give --results, and one of --command and --document.")
    if arguments.document:
        results.document(arguments.results, table, arguments.document)
        return 0
    return run_cases(chosen(table, arguments.names), arguments.command.resolve(), arguments.results.resolve())


if __name__ == "__main__":
    sys.exit(main())
