"""Test cases that run fsdp-plan in a folder of scripts, beside libraries that must ask nobody for anything."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import unittest


class ProgramInAFolder(unittest.TestCase):
    program = ""  # Its path, which whoever runs the tests says.

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    @classmethod
    def run_program(cls, *words: str) -> str:
        """What it printed. AssertionError: it ended otherwise than with 0."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([cls.program, *words], cwd=cls.folder, env=environment, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise AssertionError(f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout
