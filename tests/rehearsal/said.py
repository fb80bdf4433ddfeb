"""What the program says beside its answer."""

from __future__ import annotations

import re


def without_progress(said: str) -> str:
    """Without the lines that say what a rehearsal is at, where it takes more than a second."""
    return re.sub(r"^rank \d+(, the first of \d+ side by side)?: .*, \d+ s\n", "", said, flags=re.MULTILINE)
