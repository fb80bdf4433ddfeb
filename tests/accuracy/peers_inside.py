"""What another tool says of one rank's memory, as JSON on standard output, with the CPU seconds that it took. Run by peers.py, in an
environment that has the tool.

    peers_inside.py mem_tracker JOB.json         PyTorch's FSDPMemTracker, under FakeTensorMode and the fake process group
    peers_inside.py deepspeed JOB.json           DeepSpeed's estimate_zero3_model_states_mem_needs
    peers_inside.py accelerate JOB.json          accelerate's estimate-memory, for training with Adam
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import sys
import time
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))


def job_of(path: str, world_size: int) -> Any:
    import torch
    from fsdp_plan_runner.expanded_model import ExpandedModel
    from fsdp_plan_runner.plan import Plan
    from fsdp_plan_runner.training import Job

    job = json.loads(pathlib.Path(path).read_text())
    return Job(ExpandedModel(job["model"]), Plan(job["plan"]), 2, torch.device("cpu"), 0, world_size, False)


def mem_tracker(path: str) -> dict[str, Any]:
    """Two steps, each tracked, as its documentation shows; the second is the steady one. `without_optimizer`: around forward and
    backward only, since it counts DTensor's global fake tensors as optimizer states.
    """
    from fsdp_plan_runner.sharding import make_mesh
    from fsdp_plan_runner.training import Batch, make_optimizer, prepare, run_forward, run_step, start_process_group
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

    def total(tracker: Any) -> int:
        return max(rows["Total"] for rows in tracker.get_tracker_snapshot("peak").values())

    job = job_of(path, int(os.environ["WORLD_SIZE"]))
    start_process_group(job)
    mesh = make_mesh(job.plan, "cpu")  # reads the ranks, which fake tensors do not have
    with FakeTensorMode():
        root = prepare(job, mesh)
        optimizer = make_optimizer(root, job.plan)
        batch = Batch(job.model, root.context.activation, job.device)
        peaks = []
        for _ in range(2):
            tracker = FSDPMemTracker(root, optimizer)
            with tracker:
                run_step(root, batch, optimizer, job.plan)
            peaks.append(total(tracker))
        seconds = time.process_time()
        tracker = FSDPMemTracker(root, optimizer)
        with tracker:
            batch.load()
            result = run_forward(root, batch.values)
            (result[0] if isinstance(result, tuple) else result).backward()
    return {"peak": peaks[1], "cpu_seconds": seconds, "without_optimizer": total(tracker)}


def _sizes(path: str) -> tuple[int, int]:
    """Elements of the model, and of its largest layer."""
    job = json.loads(pathlib.Path(path).read_text())
    sizes: dict[str, int] = {}
    for parameter in job["model"]["parameters"]:
        if parameter["tied_to"] is not None:
            continue
        elements = 1
        for size in parameter["shape"]:
            elements *= size
        module = parameter["name"].rpartition(".")[0]
        sizes[module] = sizes.get(module, 0) + elements
    return sum(sizes.values()), max(sizes.values())


def deepspeed(path: str) -> dict[str, Any]:
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs

    total, largest = _sizes(path)
    _, per_gpu, _ = estimate_zero3_model_states_mem_needs(total, largest, int(os.environ["WORLD_SIZE"]), 1, cpu_offload=False)
    return {"peak": int(per_gpu), "cpu_seconds": time.process_time()}


def accelerate(path: str) -> dict[str, Any]:
    """It knows no sharding: its answer is for the whole model on one GPU."""
    from accelerate.commands.estimate import estimate_training_usage

    total, _ = _sizes(path)
    usage = estimate_training_usage(4 * total, "bfloat16")
    return {"peak": max(usage.values()), "cpu_seconds": time.process_time()}


if __name__ == "__main__":
    tool = {"mem_tracker": mem_tracker, "deepspeed": deepspeed, "accelerate": accelerate}[sys.argv[1]]
    with contextlib.redirect_stdout(io.StringIO()):
        answer = tool(sys.argv[2])
    print(json.dumps(answer), flush=True)
    os._exit(0)  # The threads of the fake process group do not always end by themselves.
