"""The tables of keys of trainers' configurations, in the text of their sources."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows_of(name: str, table: str = "") -> dict[str, str]:
    """The rows of planner/jobs/NAME, or of one table of it, by key: what they say after it."""
    text = (ROOT / "planner/jobs" / name).read_text(encoding="utf-8")
    if table:
        text = text[text.index(f"{table}[] = {{") :].split("\n};", 1)[0]
    return dict(re.findall(r'^ +\{"([A-Za-z_0-9.*]+)"(.*?)\},$', text, re.MULTILINE | re.DOTALL))
