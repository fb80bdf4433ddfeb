"""Names of modules, as a captured model has them.

A module with parameters has one name, the first. One without, which many blocks share (an activation, a table of positions), has the
name of each place that it is registered at, so that blocks are alike whoever owns it: which of them a call is, the modules around it say.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any


def named_modules(root: Any) -> list[tuple[str, Any]]:
    """In order of registration, parents before their children."""
    seen: set[int] = set()
    found = []
    for name, module in root.named_modules(remove_duplicate=False):
        if id(module) not in seen or next(module.parameters(), None) is None:
            found.append((name, module))
        seen.add(id(module))
    return found


def name_at(names: Sequence[str], around: str) -> str:
    """The one of a module's `names` that is nearest to the module `around` it; of several the first."""
    return max(names, key=lambda name: len(os.path.commonprefix([name.split("."), around.split(".")])))
