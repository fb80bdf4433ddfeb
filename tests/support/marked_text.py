"""Tables in Markdown files, each between two marks of its name."""

from __future__ import annotations

import pathlib


def write_between(path: pathlib.Path, name: str, lines: list[str]) -> None:
    """Replaces what stands between `<!-- name: made by ... -->` and `<!-- end of name -->`."""
    text = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}: made by ", f"<!-- end of {name} -->\n"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise SystemExit(f"{path} does not have the two marks of {name} once each, in their order.")
    first_line = text.index("\n", text.index(begin)) + 1
    path.write_text(text[:first_line] + "\n".join(lines) + "\n" + text[text.index(end):], encoding="utf-8")


def page_with(pages: list[pathlib.Path], name: str) -> pathlib.Path:
    """The page that has the marks of `name`. SystemExit unless exactly one has."""
    found = [page for page in pages if f"<!-- {name}: made by " in page.read_text(encoding="utf-8")]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} of {', '.join(map(str, pages))} have the marks of {name}; one must.")
    return found[0]
