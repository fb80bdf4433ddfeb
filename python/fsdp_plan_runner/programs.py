"""Finds programs of this project for our Python code to start."""

from __future__ import annotations

import pathlib
import shutil


def find_program(name: str, given: str | None) -> str | None:
    """The given path, or the program in bin/ of the prefix in which this package is installed (share/fsdp-plan/python), or on
    the path."""
    here = pathlib.Path(__file__).resolve()
    installed = here.parents[4] / "bin" / name if len(here.parents) > 4 else None
    return given or (str(installed) if installed and installed.is_file() else None) or shutil.which(name)
