"""Trains one plan under the real FSDP2 and the fake process group, and says what happened."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.limits import problems_of
from fsdp_plan_runner.plan import Plan
from fsdp_plan_runner.training import Batch, Job, make_optimizer, prepare, run_step
from memory_history import Peak, evaluate
from recorder import Event, Recorder
from torch.testing._internal.distributed.fake_pg import FakeStore

STEPS = 3
PARTS = ("forward", "backward", "optimizer")


def start(rank: int, world_size: int) -> torch.device:
    """One rank of many, on the only device."""
    warnings.simplefilter("ignore")
    torch.cuda.set_device(0)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    return torch.device("cuda", 0)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Builds the expanded model, wraps it as the plan says and trains it. ValueError: the plan cannot be run."""
    model, plan, rank = ExpandedModel(request["model"]), Plan(request["plan"]), request["rank"]
    if problems := problems_of(model, plan, plan.world_size):
        raise ValueError("; ".join(problems))
    device = start(rank, plan.world_size)
    recorder = Recorder()
    root = prepare(Job(model, plan, STEPS, device, rank, plan.world_size, False))
    optimizer = make_optimizer(root, plan)
    batch = Batch(model, root.context.activation, device)
    root.train()
    watch(recorder, root, [(root.get_submodule(unit.modules[0]), unit.modules[0]) for unit in plan.units], optimizer)
    recorder.inputs = lambda: batch.values
    load = batch.load

    def next_batch() -> None:
        recorder.phase = "forward"
        recorder.micro_batch += 1
        recorder.hook()
        load()
        if not recorder.steps:
            recorder.begin_step()  # The first batch counts as part of the initialization.
        recorder.hook()

    batch.load = next_batch
    for step in range(STEPS):
        recorder.micro_batch = -1
        if step > 0:
            recorder.begin_step()
        run_step(root, batch, optimizer, plan)
    recorder.hook()
    return describe(recorder, evaluate(recorder))


def watch(recorder: Recorder, root: torch.nn.Module, units: list[tuple[torch.nn.Module, str]],
          optimizer: torch.optim.Optimizer) -> None:
    """Tells the recorder whose parameters it will see, and when a step passes from one part to the next."""
    for module, name in units:
        group = module._get_fsdp_state()._fsdp_param_group
        if group is not None:
            recorder.units[id(group)] = name
            recorder.groups.append(group)
    recorder.buffers = list(root.buffers())
    recorder.optimizer = optimizer
    backward, clip, step = torch.autograd.backward, torch.nn.utils.clip_grad_norm_, optimizer.step

    def run_backward(*args: Any, **kwargs: Any) -> None:
        recorder.phase = "backward"
        recorder.hook()
        backward(*args, **kwargs)
        recorder.hook()

    # The loop has let go of what the model returned before either.
    def run_clip(*args: Any, **kwargs: Any) -> Any:
        recorder.phase = "optimizer"
        recorder.hook()
        return clip(*args, **kwargs)

    def run_optimizer(*args: Any, **kwargs: Any) -> Any:
        recorder.phase = "optimizer"
        recorder.hook()
        result = step(*args, **kwargs)
        recorder.hook()
        return result

    torch.autograd.backward = run_backward
    torch.nn.utils.clip_grad_norm_ = run_clip
    optimizer.step = run_optimizer


def _row(event: Event) -> list[Any]:
    """[kind, unit, phase, dtype, elements in, elements out, [first rank, stride, ranks], live bytes, by category]"""
    stride = event.ranks[1] - event.ranks[0] if len(event.ranks) > 1 else 1
    assert event.ranks == [event.ranks[0] + i * stride for i in range(len(event.ranks))], event.ranks
    return [event.kind, event.unit, event.phase, event.dtype, event.elements_in, event.elements_out,
            [event.ranks[0], stride, len(event.ranks)], event.live, event.by_category]


def describe(recorder: Recorder, peaks: dict[str, Peak]) -> dict[str, Any]:
    """What is compared, and kept as a golden."""
    steps = [[_row(event) for event in step] for step in recorder.steps]
    return {
        "steps": steps[:2],
        "reductions": [[event.op, -1 if event.phase == "optimizer" else event.micro_batch] for event in recorder.steps[1]],
        "repeats": steps[1] == steps[2] and peaks["2"] == peaks["3"],
        "peaks": {name: [peaks[name].live, peaks[name].by_category] for name in ("initialization", "1", "2")},
        "parts": {name: {part: peaks[name].parts.get(part, 0) for part in PARTS} for name in ("1", "2")},
    }
