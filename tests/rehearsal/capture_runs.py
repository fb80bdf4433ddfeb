"""Captures a script, plans what was captured, puts each plan back into the script, and compares."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from capture_cases import PLANS, Case

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE / "capture_scripts"
GPU = ("--gpu", "H100 SXM")
GPUS = ("--gpus", "4")
TOLD = 1024  # bytes
TERMS = {"requested": "live_peak_bytes", "allocated": "allocated_peak_bytes", "reserved": "reserved_peak_bytes"}


class Failed(Exception):
    """What kept a script from being captured or compared: what the program said."""


class Runner:
    """Runs cases in `folder`. `settings`: variables of the environment that name the parts of the program."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path, settings: Mapping[str, str]) -> None:
        self._program, self._folder = program, folder
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **settings}
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, case: Case, plans: Mapping[str, tuple[str, ...]] = PLANS) -> dict[str, Any]:
        """The capture and the differences under each plan, or the sentence with which it was refused."""
        model = self._folder / f"{case.name}.model.json"
        try:
            seconds = self._capture(case, model)
        except Failed as failed:
            return {"refused": str(failed)}
        limits = json.loads(model.read_text())["limits"]
        return {"seconds": seconds, "limits": limits, "plans": {name: self._held(model, name, words) for name, words in plans.items()}}

    def says(self, *words: str) -> str:
        """What the program prints, in the folder of the cases."""
        return self._program_says(*words)[0]

    def _program_says(self, *words: str | pathlib.Path, good: tuple[int, ...] = (0,)) -> tuple[str, float]:
        """Its output, and the CPU seconds that it and the script took. `good`: exit codes that are no failure."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen([str(word) for word in (self._program, *words)], cwd=self._folder, env=self._environment,
                                       stdout=out, stderr=said)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            said.seek(0)
            if process.returncode not in good:
                raise Failed(" ".join(said.read().split()) or f"exit {process.returncode}: {out.read()[:300]}")
            return out.read(), usage.ru_utime + usage.ru_stime

    def _capture(self, case: Case, model: pathlib.Path) -> float:
        command = (sys.executable, *case.launcher, SCRIPTS / case.words[0], *case.words[1:])
        return self._program_says("capture", "--no-check", "--force", *GPU, *case.options, "-o", model, "--", *command)[1]

    def run_alone(self, case: Case) -> dict[str, Any]:
        """The differences between the script as it is and the plan of one GPU, for which its model is in no wrapper."""
        model = self._folder / f"{case.name}.model.json"
        plan = model.with_suffix(".plan.json")
        try:
            self._capture(case, model)
            self._program_says(model, *GPU, "--gpus", "1", "--runtime", "ddp", "--activation-checkpointing", "none", "--force", "-o", plan)
            predicted = json.loads(self._program_says("simulate", plan, "--json")[0])
            script = (sys.executable, SCRIPTS / case.words[0], *case.words[1:])
            measured = json.loads(self._program_says("rehearse", *GPU, "--gpus", "1", "--json", "--", *script)[0])
        except Failed as failed:
            return {"failed": str(failed)}
        found: dict[str, Any] = {
            term: [report["memory"]["phases"]["steady_step"][key] for report in (predicted, measured)] for term, key in TERMS.items()}
        found["collectives"] = [collectives_of(report) for report in (predicted, measured)]
        return found

    def _held(self, model: pathlib.Path, name: str, words: tuple[str, ...]) -> dict[str, Any]:
        plan = model.with_name(f"{model.name.split('.')[0]}.{name}.plan.json")
        try:
            self._program_says(model, *GPU, *GPUS, "--force", "-o", plan, *words)
            measured = json.loads(self._program_says("rehearse", plan, "--json", good=(0, 1))[0])  # 1: it differs
            predicted = json.loads(self._program_says("simulate", plan, "--rank", "0", "--json")[0])
        except Failed as failed:
            return {"failed": str(failed)}
        found: dict[str, Any] = {"units": len(predicted["plan"]["units"]), "mesh": predicted["plan"]["mesh"]}
        for term, key in TERMS.items():
            found[term] = [report["memory"]["phases"]["steady_step"][key] for report in (predicted, measured)]
        found["collectives"] = [collectives_of(report) for report in (predicted, measured)]
        return found


def collectives_of(report: dict[str, Any]) -> dict[str, list[int]]:
    """Count and payload of each kind. Not in a plan, and left out: few numbers that a loop's ranks tell each other, of labels and of
    metrics."""
    found: dict[str, list[int]] = {}
    for row in report["traffic"]["collectives"]:
        if row["payload_bytes"] <= TOLD and (row["dtype"] == "int64" or row["kind"] == "all_gather"):
            continue
        counted = found.setdefault(f"{row['kind']} {row['dtype']} over {row['group_size']}", [0, 0])
        counted[0] += 1
        counted[1] += row["payload_bytes"]
    return found


def difference(pair: list[int]) -> float:
    """Predicted against rehearsed."""
    predicted, rehearsed = pair
    return (predicted - rehearsed) / rehearsed if rehearsed else float(predicted != 0)


def problems_of(found: dict[str, Any], most_off: float) -> list[str]:
    """In what a comparison is not as exact as it must be."""
    if "failed" in found:
        return [found["failed"]]
    wrong = [f"{term}: {found[term][0]} bytes are predicted, {found[term][1]} rehearsed"
             for term in ("requested", "allocated") if abs(difference(found[term])) > most_off]
    predicted, rehearsed = found["collectives"]
    return wrong + ([] if predicted == rehearsed else [f"collectives: {predicted} are predicted, {rehearsed} rehearsed"])
