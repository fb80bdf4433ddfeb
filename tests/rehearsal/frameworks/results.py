"""Results of cases: one small file each in the folder of results, and the table that is made of them."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from cases import Case
from marked_text import write_between

MIB, GIB = 1 << 20, 1 << 30


def lookup(report: dict[str, Any], key: str) -> Any:
    """The value of keys joined by dots."""
    value: Any = report
    for part in key.split("."):
        value = value[part]
    return value


def peaks(report: dict[str, Any]) -> dict[str, int]:
    memory = report["memory"]
    return {name: memory[f"{name}_peak_bytes"] for name in ("live", "allocated", "reserved", "device")}


def _path(folder: pathlib.Path, name: str) -> pathlib.Path:
    return folder / f"{name}.json"


def read(folder: pathlib.Path, name: str) -> dict[str, Any] | None:
    """The run before, if it left its peaks."""
    path = _path(folder, name)
    result = json.loads(path.read_text()) if path.is_file() else None
    return result if result and result.get("peaks") else None


def write(folder: pathlib.Path, case: Case, run: dict[str, Any], wrong: list[str], before: dict[str, Any] | None) -> None:
    result: dict[str, Any] = {"case": case.name, "wrong": wrong, "runs": 1}
    if before and not wrong:
        result["runs"] = before["runs"] + 1
    if "report" in run:
        report = run["report"]
        applied = report["rehearsal"]["applied"]["wrappers"]
        packages = report["rehearsal"]["environment"]["packages"]
        result |= {
            "peaks": peaks(report),
            "reserved_range": _range(report),
            "verdict": report["verdict"],
            "units": len(applied[0]["units"]) if applied else 0,
            "versions": [f"{name} {packages[name]}" for name in case.packages if name in packages],
            "figures": [_measured(figure, report) for figure in case.figures],
            "gpu": report["cluster"]["gpu"],
        }
    result |= {key: run[key] for key in ("seconds", "cpu_seconds") if key in run}
    folder.mkdir(parents=True, exist_ok=True)
    _path(folder, case.name).write_text(json.dumps(result, indent=1) + "\n")


def _measured(figure: Any, report: dict[str, Any]) -> dict[str, Any]:
    return {"key": figure.key, "measured": lookup(report, figure.key), "wanted": figure.value, "source": figure.source}


def _range(report: dict[str, Any]) -> list[int]:
    for rank in report["rehearsal"]["ranks"]:
        if rank["rank"] == report["rehearsal"]["rank"]:
            return [rank["reserved_peak"]["low_bytes"], rank["reserved_peak"]["high_bytes"]]
    return []


def _reserved(result: dict[str, Any]) -> str:
    low, high = (value / GIB for value in result["reserved_range"] or [result["peaks"]["reserved"]] * 2)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} - {high:.2f}"


def _figures(result: dict[str, Any]) -> str:
    """How the figures lie to what they should be; the communication of every case is exact, or it would have failed."""
    texts = []
    for figure in result.get("figures", []):
        above = figure["measured"] - figure["wanted"]
        if "at_end" in figure["key"]:
            texts.append(f"states + {above / MIB:.0f} MiB")
        else:
            texts.append(f"{figure['key'].split('.')[-1].split('_')[0]} {100 * above / figure['wanted']:+.1f} %")
    return ", ".join(texts)


def _row(case: Case, result: dict[str, Any] | None) -> str:
    if result is None:
        return f"| {case.title} | | not run | | | | | |"
    versions = ", ".join(result.get("versions", []))
    works = "no: " + result["wrong"][0].split("\n")[0][:120] if result["wrong"] else "out of memory, as it should" \
        if case.runs_out else "yes"  # fmt: skip
    if "peaks" not in result:
        return f"| {case.title} | {versions} | {works} | | | | | |"
    return (f"| {case.title} | {versions} | {works} | {result['units'] or '-'} | {result['peaks']['allocated'] / GIB:.2f} | "
            f"{_reserved(result)} | {_figures(result)} | {result.get('cpu_seconds', 0):.0f} |")


def document(folder: pathlib.Path, table: list[Case], path: pathlib.Path) -> None:
    """Writes the table between its two marks."""
    rows = ["| script | versions | works | units | allocated GiB | reserved GiB | against its formula | CPU s |",
            "|---|---|---|---:|---:|---:|---|---:|"]  # fmt: skip
    for case in table:
        file = _path(folder, case.name)
        rows.append(_row(case, json.loads(file.read_text()) if file.is_file() else None))
    write_between(path, "results", rows)
