"""Writes the table of docs/tables/executor_faults.md with each fault, the message of every rank, the exit code, and its
duration, from the tests of faults. scripts/executor_proof calls it.

    faults_document.py BIN STUB TORCHRUN DOCUMENT      run by a Python that has torch

BIN is the folder of fsdp-exec, fsdp-exec-cuda and fsdp-plan. Raises AssertionError if a test has failed.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
from marked_text import write_between  # noqa: E402
from told import rows  # noqa: E402

_ALONE = ["unshare", "-Urn"]
# Runs some tests of a script, which takes its programs from its arguments.
_SOME = """
import importlib, sys, unittest
name, tests, sys.argv = sys.argv[1], sys.argv[2].split(","), [sys.argv[1], *sys.argv[3:]]
suite = unittest.defaultTestLoader.loadTestsFromNames(tests, importlib.import_module(name))
sys.exit(not unittest.TextTestRunner().run(suite).wasSuccessful())
"""


def main() -> None:
    programs, stub, torchrun, document = (pathlib.Path(argument).resolve() for argument in sys.argv[1:5])
    cpu, cuda, planner = (programs / name for name in ("fsdp-exec", "fsdp-exec-cuda", "fsdp-plan"))
    runs: list[tuple[list[str], str, str, list[pathlib.Path]]] = [
        ([], "faults_test", "Faults", [cpu]),
        ([], "hosts_test", "", [cpu]),  # Without arguments: it restarts itself.
        ([], "data_test", "Labels.test_rank_without_labels_stops_all_ranks", [cpu]),
        ([], "checkpoint_faults_test", "Faults.test_full_disk_is_reported,Faults.test_file_size_limit_is_reported",
         [cpu, torchrun]),
        ([], "stub_ranks_test", "EndOfRanks", [cuda, planner, stub]),
        ([], "strangers_test", "Strangers,MeetingPlaces", [cpu]),
    ]
    # If a network answers for every address, the test of a missing host needs a separate network.
    if subprocess.run([*_ALONE, "true"], capture_output=True, check=False).returncode == 0:
        runs.append((_ALONE, "strangers_test", "MeetingPlaces.test_silent_host_is_reported", [cpu]))
    with tempfile.TemporaryDirectory() as folder:
        told = pathlib.Path(folder) / "told"
        told.touch()
        for before, script, tests, arguments in runs:
            words = [str(HERE / f"{script}.py")] if not tests else ["-c", _SOME, script, tests]
            done = subprocess.run([*before, sys.executable, "-B", *words, *map(str, arguments)], cwd=HERE, check=False,
                                  env={**os.environ, "FSDP_TOLD": str(told), "PYTHONPATH": str(HERE)})
            assert done.returncode == 0, script
        lines = ["| fault | what each rank is told | exit | seconds |", "|---|---|---|---:|", *rows(told)]
    write_between(document, "faults", lines)


if __name__ == "__main__":
    main()
