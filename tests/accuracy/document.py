"""Tables in Markdown files, each between two marks."""

from __future__ import annotations

import pathlib


def write_between(path: pathlib.Path, name: str, lines: list[str]) -> None:
    """Replaces what stands between the marks of `name`."""
    begin, end = f"<!-- {name}: made by ./scripts/accuracy -->\n", f"<!-- end of {name} -->"
    text = path.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"{path} does not have the two marks of {name} once each.")
    head, rest = text.split(begin)
    path.write_text(head + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1], encoding="utf-8")
