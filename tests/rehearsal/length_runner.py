"""Trains a plan whose micro-batches differ in length, by the real framework, and writes the allocator's figures of each step.

    python length_runner.py JOB.json

JOB.json is {"models": [expanded models, one for each length], "plan": the object of a plan file, "steps": [[a place in `models`
for each micro-batch] for each step], "log": the file to write}. The log is {"steps": [{"allocated", "reserved", "allocated_after",
"reserved_after", "flushes"}], "ooms": N}: the peaks in a step, the bytes at its end, num_alloc_retries in it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.job_file import load, set_allocator
from fsdp_plan_runner.plan import Plan

JOB = load(sys.argv[1])
PLAN = Plan(JOB["plan"])
MODELS = [ExpandedModel(model) for model in JOB["models"]]
set_allocator(PLAN.allocator_settings, PLAN.runtime_version)

import torch  # noqa: E402

from fsdp_plan_runner import flat_units, modules, training  # noqa: E402
from fsdp_plan_runner.forward_program import ForwardProgram  # noqa: E402
from fsdp_plan_runner.micro_batch import Batch  # noqa: E402


class Variant:
    """The forwards of a root's modules at one length."""

    def __init__(self, root: modules.PlannedModule, model: ExpandedModel) -> None:
        use = PLAN.implementations
        keep = modules.logits_of(model) if use.keep_logits else ()
        program = ForwardProgram(model, keep, (*model.held, *(model.held_if_cached if use.use_cache else ())))
        positions = {id(op): position for position, op in enumerate(model.ops)}
        self.model = model
        self.shapes = [tensor.shape for tensor in model.tensors]
        self.forwards = {}
        given = {module: module._forwards for module in _planned(root)}
        for module in given:
            module.prepare(program.runs.get(module.name, []), root, positions)
            self.forwards[module.name] = module._forwards
        first, root.program = root.program, program
        self.after_root = modules.AfterRoot(root, positions) if program.after_root else None
        root.program = first
        for module, forwards in given.items():
            module._forwards = forwards

    def put_into(self, root: modules.PlannedModule) -> None:
        for module in _planned(root):
            module._forwards = self.forwards[module.name]
        root.context.shapes[:] = self.shapes
        root.after_root = self.after_root


def _planned(root: torch.nn.Module) -> list[modules.PlannedModule]:
    return [module for module in root.modules() if isinstance(module, modules.PlannedModule)]


VARIANTS: list[Variant] = []
_build_model = modules.build_model
_call_in_place = modules.call_in_place


def build_model(model: ExpandedModel, *rest: Any) -> modules.PlannedModule:
    """With the forwards of all lengths, which are there before the model is wrapped."""
    root = _build_model(model, *rest)
    VARIANTS.extend(Variant(root, each) for each in MODELS)
    VARIANTS[0].put_into(root)
    return root


def call_in_place(root: modules.PlannedModule, module: torch.nn.Module, wrapper: torch.nn.Module) -> None:
    for variant in VARIANTS:
        for forwards in variant.forwards.values():
            for _, steps, _ in forwards:
                for step in steps:
                    if step.op is None and step.called[0] is module:
                        step.called[0] = wrapper


training.build_model = build_model
flat_units.call_in_place = call_in_place


class VaryingBatch(Batch):
    """The micro-batches of the job, each with its length."""

    def __init__(self, root: modules.PlannedModule, device: torch.device) -> None:
        super().__init__(MODELS[0], root.context.activation, device)
        self._root = root
        self._order = [place for step in JOB["steps"] for place in step]

    def load(self) -> None:
        variant = VARIANTS[self._order.pop(0)]
        variant.put_into(self._root)
        self._tensors = [variant.model.tensors[tensor] for tensor in variant.model.inputs]
        super().load()


def main() -> None:
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    job = training.Job(MODELS[0], PLAN, len(JOB["steps"]), device, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), True)
    log: dict[str, Any] = {"steps": [], "ooms": 0}
    training.start_process_group(job)
    root = training.prepare(job)
    optimizer = training.make_optimizer(root, PLAN)
    batch = VaryingBatch(root, device)
    root.train()
    retries = torch.cuda.memory_stats()["num_alloc_retries"]
    for _ in JOB["steps"]:
        torch.cuda.reset_peak_memory_stats()
        try:
            training.run_step(root, batch, optimizer, PLAN)
        except torch.OutOfMemoryError:
            pass
        stats = torch.cuda.memory_stats()
        log["steps"].append({
            "allocated": stats["allocated_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"],
            "allocated_after": stats["allocated_bytes.all.current"], "reserved_after": stats["reserved_bytes.all.current"],
            "flushes": stats["num_alloc_retries"] - retries})
        retries = stats["num_alloc_retries"]
        log["ooms"] = stats["num_ooms"]
        if log["ooms"]:
            break
    with open(JOB["log"], "w", encoding="utf-8") as file:
        json.dump(log, file)
    # A rank that ended in an error leaves work of others behind.
    os._exit(0)


main()
