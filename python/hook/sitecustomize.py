"""Loaded by every Python that `fsdp-plan rehearse`, `run` or `measure` starts, and by their children, because its folder leads
PYTHONPATH.

It calls the package fsdp_rehearsal, or fsdp_measure, and then runs the sitecustomize that it hides. Errors here are printed on
stderr; they never stop the user's program.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _hand_over(package: str) -> None:
    sys.path.append(os.path.dirname(_FOLDER))
    wrote_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        importlib.import_module(f"{package}.bootstrap").start()
    except Exception as error:
        print(f"fsdp-plan: {package} is not in this Python: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        sys.dont_write_bytecode = wrote_bytecode


def _hidden_sitecustomize() -> None:
    """Runs the sitecustomize that Python would have found without this one."""
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != _FOLDER]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("FSDP_REHEARSAL") == "1":
    _hand_over("fsdp_rehearsal")
elif os.environ.get("FSDP_MEASURE_FOLDER"):
    _hand_over("fsdp_measure")
_hidden_sitecustomize()
