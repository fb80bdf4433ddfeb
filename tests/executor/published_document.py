"""Writes the table of docs/tables/executor_published.md that compares fsdp-exec with published model code: loss, gradients, and
the losses of a training run. scripts/executor_proof calls it.

    published_document.py FSDP_EXEC FSDP_PLAN PACKAGES DOCUMENT      run by a Python that has torch
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[1] / "support")]
sys.path.append(sys.argv[3])
from marked_text import write_between  # noqa: E402
from ranks import ROOT  # noqa: E402
from published_models import MODELS, Published  # noqa: E402
from published import Agreement, compare, torch, train  # noqa: E402

EXECUTOR, PLANNER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
STEPS = 200


def difference(value: float) -> str:
    return "0" if value == 0 else f"{value:.0e}"


def compared(model: Published, dtype: torch.dtype) -> Agreement:
    with tempfile.TemporaryDirectory() as folder:
        return compare(model, EXECUTOR, PLANNER, pathlib.Path(folder), dtype)


def row(model: Published) -> str:
    wide = compared(model, torch.float32)
    assert not wide.missing, wide
    cells = [model.name, difference(wide.loss), difference(wide.logits), difference(wide.gradient)]
    if model.in_bf16:
        narrow = compared(model, torch.bfloat16)
        cells += [difference(narrow.loss), difference(narrow.gradient), difference(narrow.noise)]
    else:
        cells += ["", "", ""]
    with tempfile.TemporaryDirectory() as folder:
        curves = train(model, EXECUTOR, PLANNER, pathlib.Path(folder), ROOT / "LICENSE", STEPS)
    cells += [f"{curves.theirs[0]:.3f}", f"{curves.theirs[-1]:.6f}", f"{curves.ours[-1]:.6f}", difference(curves.worst),
              f"{curves.back.tensors} equal, loss {difference(curves.back.loss)}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    lines = ["| model | loss, fp32 | logits | worst gradient | loss, bf16 | worst gradient | its own noise | first loss "
             "| its loss of step 200 | ours | worst of 200 losses | checkpoint there and back |",
             "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"]
    for model in MODELS:
        print(model.name, file=sys.stderr, flush=True)
        lines.append(row(model))
    write_between(pathlib.Path(sys.argv[4]), "published", lines)


if __name__ == "__main__":
    main()
