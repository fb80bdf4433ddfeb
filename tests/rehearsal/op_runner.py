"""Runs small models one after the other on the stub GPU and writes down what each step allocates and frees.

    op_runner.py JOBS.json RESULTS.json      with the stub preloaded

JOBS.json is a list of {"name", "model", "plan", "optimizer"}; RESULTS.json is {name: [bytes allocated, -bytes freed,
...]} of the forward and backward (with "optimizer" of its step, too), or {name: "what went wrong"}.
"""

from __future__ import annotations

import gc
import json
import os
import pathlib
import sys
import traceback
import types
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
# flash-attn imports its CUDA as a whole; its cross entropy is a kernel of Triton, and needs none of it.
sys.modules["flash_attn_2_cuda"] = types.ModuleType("flash_attn_2_cuda")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from fsdp_plan_runner.expanded_model import ExpandedModel  # noqa: E402
from fsdp_plan_runner.plan import Plan  # noqa: E402
from fsdp_plan_runner.training import Batch, Job, make_optimizer, prepare, run_forward  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

_COUNTED = {"alloc": 1, "free_requested": -1}


def record(on: bool) -> None:
    """Begins a history of the allocator's events, or ends it."""
    torch.cuda.memory._record_memory_history("all" if on else None, context=None, max_entries=1 << 20)


def events() -> list[int]:
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    return [_COUNTED[e["action"]] * e["size"] for e in entries if e["action"] in _COUNTED]


def warm_up(device: torch.device) -> None:
    """The workspaces of cuBLAS and cuBLASLt, of this thread's and of autograd's, which live as long as the process."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        layer = torch.nn.Linear(64, 64, device=device, dtype=dtype)
        x = torch.ones(64, 64, device=device, dtype=dtype, requires_grad=True)
        (layer(x) @ x).sum().backward()


def run_case(job: dict[str, Any], device: torch.device) -> list[int]:
    model, plan = ExpandedModel(job["model"]), Plan(job["plan"])
    root = prepare(Job(model, plan, 1, device, 0, 2, False))
    root.train()
    batch = Batch(model, root.context.activation, device)
    batch.load()
    optimizer = make_optimizer(root, plan) if job["optimizer"] else None
    torch.cuda.synchronize()
    record(True)
    result = run_forward(root, batch.values)
    loss = result[0] if isinstance(result, tuple) else result
    loss.backward()
    del result, loss
    if optimizer is not None:
        if plan.optimizer.clip_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(root.parameters(), plan.optimizer.clip_grad_norm)
        optimizer.step()
    seen = events()
    record(False)
    return seen


def main() -> None:
    jobs = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    device = torch.device("cuda", 0)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    warm_up(device)
    results: dict[str, Any] = {}
    for job in jobs:
        try:
            results[job["name"]] = run_case(job, device)
        except Exception:  # A case that cannot be run is one of the answers.
            record(False)
            results[job["name"]] = traceback.format_exc(limit=-4)
        gc.collect()
    pathlib.Path(sys.argv[2]).write_text(json.dumps(results), encoding="utf-8")
    os._exit(0)  # Threads of a process group that nobody else is in sometimes abort at a normal exit.


if __name__ == "__main__":
    main()
