"""One rank of the PyTorch side, started by torchrun: queries its card, then trains the plan with the real FSDP2 over NCCL.

    python -m fsdp_proof.worker JOB.json RESULT SEED        writes RESULT.RANK.json

Weights, data and the loop are those of fsdp_plan_runner, so that losses can be compared with fsdp-exec's.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from fsdp_plan_runner.job_file import read_job, read_parts, set_allocator

from fsdp_proof.cards import node, plain, used_bytes


def used_before_cuda() -> dict[str, int]:
    """REQUIRES: torch has not used a card yet. The stub's process has its context from its start, and is alone."""
    here = node()
    return {uuid: 0 if here.is_stub else used for uuid, used in used_bytes(here).items()}


def measure_outside(device: Any, uuid: str, before: int) -> dict[str, int]:
    """Bytes of the CUDA context and of a communicator of all ranks: the memory in use on the card outside the allocator."""
    import torch
    import torch.distributed as dist

    def outside() -> int:
        torch.cuda.synchronize()
        return used_bytes(node())[uuid] - torch.cuda.memory_reserved()

    torch.zeros(1, device=device)
    context = outside()
    part = torch.zeros(1 << 20, device=device)
    whole = torch.zeros(dist.get_world_size() << 20, device=device)
    dist.all_gather_into_tensor(whole, part)
    dist.reduce_scatter_tensor(part, whole)
    return {"context": context - before, "communicator": outside() - context}


def peaks() -> dict[str, int]:
    import torch

    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    return {"requested": stats["requested_bytes.all.peak"], "allocated": stats["allocated_bytes.all.peak"],
            "reserved": stats["reserved_bytes.all.peak"], "device": total - free}


# The common part of NCCL's kernel names.
_KERNELS = {"all_gather": "allgather", "reduce_scatter": "reducescatter", "all_reduce": "allreduce"}


def add_times(collectives: list[dict[str, Any]], kernels: list[tuple[int, str, float]]) -> None:
    """`kernels`: begin, name and seconds of the device's work. The collectives of a kind run in the order of their calls; if
    there are fewer kernels of the kind, as in a group of one rank, none of them gets a time."""
    for kind, word in _KERNELS.items():
        of_kind = [each for each in collectives if each["kind"] == kind]
        times = [seconds for _, name, seconds in sorted(kernels) if "nccl" in name.lower() and word in name.lower()]
        for each, seconds in zip(of_kind, times if len(times) == len(of_kind) else [None] * len(of_kind), strict=True):
            each["seconds"] = seconds


def profiled(step: Callable[[], object]) -> list[dict[str, Any]]:
    """The collectives of a step in the order of their calls, each with the seconds of its kernel, as PyTorch's profiler sees them."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from fsdp_measure.profiled_step import collectives_of

    profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True, acc_events=True)
    profiler.start()
    step()
    torch.cuda.synchronize()
    profiler.stop()
    results = profiler.profiler.kineto_results
    found = collectives_of(results.experimental_event_tree(), torch.distributed.get_world_size())
    add_times(found, [(event.start_ns(), event.name(), event.duration_ns() * 1e-9) for event in results.events()
                      if str(event.device_type()).endswith("CUDA")])
    return found


def train(job: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The steps, and the collectives of one more, which is used for no other measurement."""
    import torch

    from fsdp_plan_runner.training import make_optimizer, prepare, run_step
    from fsdp_plan_runner.trial import SyntheticBatch, fill

    root = prepare(dataclasses.replace(job, trial=None))
    fill(job, root)
    optimizer = make_optimizer(root, job.plan, job.trial.learning_rate)
    batch = SyntheticBatch(job, root.context.activation)
    root.train()
    torch.manual_seed(job.trial.seed + job.rank)
    steps = []
    for _ in range(job.steps):
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        began = time.perf_counter()
        loss = run_step(root, batch, optimizer, job.plan).loss
        torch.cuda.synchronize()
        steps.append({"loss": loss, "wall_seconds": time.perf_counter() - began, **peaks()})
    return steps, profiled(lambda: run_step(root, batch, optimizer, job.plan))


def main(job_file: str, result: str, seed: int) -> None:
    contents = read_job(job_file)
    model, plan = read_parts(job_file, contents)
    set_allocator(plan.allocator_settings, plan.runtime_version)
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    before = used_before_cuda()

    import torch
    import torch.distributed as dist

    from fsdp_plan_runner.training import Job, Trial, start_process_group

    from fsdp_proof.claims import claims, facts

    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)
    job = Job(model, plan, contents["steps"], device, rank, int(os.environ["WORLD_SIZE"]), True)
    start_process_group(job)
    uuid = plain(str(torch.cuda.get_device_properties(device).uuid))
    found: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda,
                             "nccl": ".".join(str(part) for part in torch.cuda.nccl.version()), "card": facts(device),
                             "uuid": uuid,
                             "outside": measure_outside(device, uuid, before[uuid])}
    if rank == 0:
        found["claims"] = claims(device)
    dist.barrier()
    torch.cuda.empty_cache()
    found["steps"], found["collectives"] = train(dataclasses.replace(job, trial=Trial(seed=seed, learning_rate=1e-4, accumulation="mean", results=result)))
    with open(f"{result}.{rank}.json", "w", encoding="utf-8") as file:
        json.dump(found, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
