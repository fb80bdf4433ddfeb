"""The page of a proof: first the verdict, then the failures, then everything, with pictures in SVG. One file, no scripts."""

from __future__ import annotations

import html
import statistics
from typing import Any

_STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em;color:#1a1a1a;background:#fff}
h1{font-size:1.6em;margin-bottom:.2em}h2{margin-top:2em;border-bottom:1px solid #ccc}
table{border-collapse:collapse;width:100%}td,th{padding:.25em .6em;text-align:left;border-bottom:1px solid #e4e4e4}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.verdict{padding:.8em 1em;border-left:.5em solid;font-size:1.15em}
.proven{border-color:#1a7f37;background:#e9f6ec}.not{border-color:#b3261e;background:#fbecea}
.stub{border-color:#8a6d00;background:#fff7d6}
.pass{color:#1a7f37}.fail{color:#b3261e;font-weight:600}.note{color:#555}.skipped{color:#8a6d00;font-weight:600}
svg text{font:12px system-ui,sans-serif;fill:#333}"""
_COLORS = {"found": "#3465a4", "expected": "#c4a000", "compute": "#73a857", "all_gather": "#3465a4",
           "reduce_scatter": "#a85f9b", "all_reduce": "#c4603a", "copy": "#888"}
_WIDTH, _LABEL = 1000, 230
_MOST_EVENTS = 4000


def _text(value: Any, unit: str) -> str:
    if value is None:
        return ""
    if unit == "B" and isinstance(value, int | float):
        return f"{value:,.0f} B"
    if unit == "s" and isinstance(value, int | float):
        return f"{value * 1e3:.3f} ms"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _difference(row: dict[str, Any]) -> str:
    found, expected = row["found"], row["expected"]
    if not all(isinstance(value, int | float) for value in (found, expected)) or not expected or row["unit"] == "":
        return ""
    return "0" if found == expected else f"{(found - expected) / expected:+.2%}".replace("%", " %")


def _table(head: list[str], rows: list[list[str]], right: set[int]) -> str:
    def line(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}{' class=n' if i in right else ''}>{cell}</{tag}>"
                                for i, cell in enumerate(cells)) + "</tr>"

    return "<table>" + line(head, "th") + "".join(line(row, "td") for row in rows) + "</table>"


def _rows_table(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        style = {"not run": "skipped"}.get(row["result"], row["result"])
        bound = "" if row["bound"] is None else f"{row['bound']:g}"
        cells.append([f"<span class={style}>{row['result']}</span>", html.escape(f"{row['group']}: {row['name']}"),
                      html.escape(_text(row["found"], row["unit"])), html.escape(_text(row["expected"], row["unit"])),
                      _difference(row), bound, html.escape(row["why"])])
    return _table(["", "what", "found", "expected", "difference", "bound", "why"], cells, {2, 3, 4, 5})


def _bars(rows: list[dict[str, Any]]) -> str:
    """Found and expected values as bars."""
    most = max([*(row["found"] or 0 for row in rows), *(row["expected"] or 0 for row in rows)], default=0)
    if not rows or not most:
        return ""
    lines, y = [], 0
    for row in rows:
        lines.append(f'<text x="{_LABEL - 8}" y="{y + 17}" text-anchor="end">{html.escape(row["name"])}</text>')
        for offset, key in ((0, "found"), (11, "expected")):
            width = (_WIDTH - _LABEL - 110) * (row[key] or 0) / most
            lines.append(f'<rect x="{_LABEL}" y="{y + 3 + offset}" width="{width:.1f}" height="10" fill="{_COLORS[key]}"/>')
        lines.append(f'<text x="{_WIDTH}" y="{y + 17}" text-anchor="end">{(row["found"] or 0) / 2**20:,.1f} MiB</text>')
        y += 30
    legend = "".join(f'<rect x="{_LABEL + 110 * i}" y="{y + 4}" width="10" height="10" fill="{_COLORS[key]}"/>'
                     f'<text x="{_LABEL + 110 * i + 15}" y="{y + 13}">{key}</text>' for i, key in enumerate(("found", "expected")))
    return f'<svg viewBox="0 0 {_WIDTH} {y + 22}" width="100%" role="img">{"".join(lines)}{legend}</svg>'


def _timeline(events: list[dict[str, Any]]) -> str:
    """The streams of rank 0 in its last step."""
    names = {event["tid"]: event["args"]["name"].rpartition(" ")[2] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event.get("ph") == "X" and event.get("cat") != "user_annotation"][:_MOST_EVENTS]
    lanes = [tid for tid in names if any(event["tid"] == tid for event in spans)]
    end = max((event["ts"] + event["dur"] for event in spans), default=0)
    if not lanes or not end:
        return ""
    parts = []
    for i, tid in enumerate(lanes):
        y = 4 + 30 * i
        parts.append(f'<text x="{_LABEL - 8}" y="{y + 16}" text-anchor="end">{html.escape(names[tid])}</text>')
        for event in spans:
            if event["tid"] != tid:
                continue
            x = _LABEL + (_WIDTH - _LABEL) * event["ts"] / end
            width = max(0.5, (_WIDTH - _LABEL) * event["dur"] / end)
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="22" fill="{_COLORS.get(names[tid], "#888")}">'
                         f'<title>{html.escape(event["name"])}: {event["dur"] / 1e3:.3f} ms</title></rect>')
    height = 30 * len(lanes) + 24
    parts.append(f'<text x="{_WIDTH}" y="{height - 6}" text-anchor="end">{end / 1e3:.3f} ms</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="100%" role="img">{"".join(parts)}</svg>'


def _collectives(table: list[dict[str, Any]]) -> str:
    cells = []
    for row in table:
        seconds = row["seconds_median"]
        rate = f"{row['payload_bytes'] / seconds / 1e9:.1f}" if seconds > 0 else ""
        forecast, theirs = row.get("predicted_seconds"), row.get("pytorch_seconds_median")
        cells.append([row["collective"], html.escape(row["unit"]), row["phase"], f"{row['payload_bytes']:,}", str(row["ranks"]),
                      f"{seconds * 1e6:.1f}", f"{row['seconds_least'] * 1e6:.1f} to {row['seconds_most'] * 1e6:.1f}",
                      "" if theirs is None else f"{theirs * 1e6:.1f}",
                      "" if forecast is None else f"{forecast * 1e6:.1f}", rate, f"{row['exposed_seconds'] * 1e6:.1f}"])
    return _table(["collective", "unit", "phase", "bytes", "ranks", "µs, median of ranks", "least to most",
                   "PyTorch's, median", "predicted", "GB/s", "waited for, µs (rank 0)"], cells, {3, 4, 5, 6, 7, 8, 9, 10})


def _losses(losses: dict[str, Any]) -> str:
    names = [name for name in ("fsdp_exec", "pytorch") if losses[name]]
    if not names:
        return ""
    means = {name: [statistics.fmean(step) for step in zip(*losses[name], strict=True)] for name in names}
    cells = [[str(i + 1), *(f"{means[name][i]:.8g}" for name in names)] for i in range(len(means[names[0]]))]
    return _table(["step", *(name.replace("_", "-") for name in names)], cells, {0, 1, 2})


def _verdict(proof: dict[str, Any]) -> str:
    counts = proof["counts"]
    numbers = f"{counts['pass']} rows pass, {counts['fail']} fail, {counts['not run']} were not run, {counts['note']} are notes."
    if proof["made_on"] == "the stub GPU":
        return ("<p class='verdict stub'><b>Made on the stub GPU: this page proves nothing of a card.</b> There is no GPU here. Every "
                "byte and every time is the stub's own; losses are not computed. It shows that the trials run, and what a page of "
                f"real cards will look like. {numbers}</p>")
    if proof["verdict"] == "proven":
        return f"<p class='verdict proven'><b>Proven.</b> {numbers}</p>"
    return f"<p class='verdict not'><b>Not proven.</b> {numbers}</p>"


def page(proof: dict[str, Any], trace_events: list[dict[str, Any]]) -> str:
    rows, versions = proof["rows"], proof["versions"]
    wrong = [row for row in rows if row["result"] in ("fail", "not run")]
    cards = ", ".join(sorted({card["name"] for card in proof["cards"]}))
    mesh = proof["mesh"]
    facts = [("model", proof["model"]), ("mesh", f"{mesh['replicate']} x {mesh['shard']}"),
             ("cards", f"{len(proof['cards'])} x {cards}"), ("driver", versions["driver"]), ("fsdp-exec", versions["executor"]),
             ("PyTorch", versions["torch"]), ("its CUDA and NCCL", f"{versions['cuda']}, {versions['nccl']}"),
             ("fsdp-plan", versions["fsdp_plan"]), ("at", proof["provenance"]["at"]),
             ("command", proof["provenance"]["command"]),
             *((f"sha256 of {name}", value) for name, value in proof["provenance"]["sha256"].items())]
    memory = [row for row in rows if row["group"] == "memory" and not row["name"].endswith("live")]
    sections = [("What is not as it should be", _rows_table(wrong) if wrong else "<p>Nothing.</p>"),
                ("Memory of rank 0, found and predicted", _bars(memory)),
                ("The last step of rank 0", _timeline(trace_events)),
                ("Losses, mean of the ranks", _losses(proof["losses"])),
                ("Every row", _rows_table(rows)),
                ("Every collective of the last step", _collectives(proof["collectives"])),
                ("On what, and with what", _table(["", ""], [[html.escape(name), html.escape(str(value))] for name, value in facts],
                                                  set()))]
    body = "".join(f"<h2>{title}</h2>{content}" for title, content in sections if content)
    on = f"{len(proof['cards'])} x {'stub GPU, playing ' if proof['made_on'] == 'the stub GPU' else ''}{cards}"
    title = f"{html.escape(proof['model'])} on {html.escape(on)}"
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
            f"<h1>{title}</h1>{_verdict(proof)}{body}</html>\n")
