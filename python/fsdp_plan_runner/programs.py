"""Programs of this project, which a Python of ours starts."""

from __future__ import annotations

import pathlib
import shutil


def find_program(name: str, given: str | None) -> str | None:
    """As given, in bin/ of the prefix that this package is installed in (share/fsdp-plan/python), or on the path."""
    here = pathlib.Path(__file__).resolve()
    installed = here.parents[4] / "bin" / name if len(here.parents) > 4 else None
    return given or (str(installed) if installed and installed.is_file() else None) or shutil.which(name)
