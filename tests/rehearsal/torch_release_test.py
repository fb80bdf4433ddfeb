"""Trains plans under another release of PyTorch than the one that all tests run on, and holds the predictions to it.

    torch_release_test.py STUB RELEASE FSDP_PLAN ENVIRONMENTS [CASE...]     without cases: what releases do in different ways

Exit 77: there is no environment of the release. ./scripts/rehearsal_env torch-RELEASE makes it.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def main() -> int:
    stub, release, program, environments, *cases = sys.argv[1:]
    python = pathlib.Path(environments) / f"torch-{release}" / "bin" / "python"
    if not python.is_file():
        print(f"PyTorch {release} is not there. Write: ./scripts/rehearsal_env torch-{release}", file=sys.stderr)
        return 77
    return subprocess.run([python, "-B", HERE / "plan_runner_test.py", stub, program, *(cases or ["torch"])]).returncode


if __name__ == "__main__":
    sys.exit(main())
