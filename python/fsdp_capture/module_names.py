"""Names of modules in a captured model.

A module with parameters has one name, the first. A module without parameters that many blocks share (an activation, a table of
positions) has a name for each place where it is registered, so that blocks are equal whoever owns it; the modules around a
call decide which name applies.
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
    """The module's name among `names` that is nearest to the module `around` it; of equal ones the first."""
    return max(names, key=lambda name: len(os.path.commonprefix([name.split("."), around.split(".")])))
