"""The first code that runs in a Python process of a measured job. A launcher is such a process, too, and leaves no record."""

from __future__ import annotations

import atexit
import os
from types import ModuleType

from fsdp_measure.job import Job, is_launcher
from fsdp_measure.machine import Machine, NoHistory
from fsdp_measure.profiled_step import ProfiledStep
from fsdp_rehearsal.after_import import after_import
from fsdp_rehearsal.apply_plan import ApplyPlan
from fsdp_rehearsal.apply_wrappers import Wrappers
from fsdp_rehearsal.faults import Faults
from fsdp_rehearsal.guard import failed
from fsdp_rehearsal.phases import Phases
from fsdp_rehearsal.step_forward import StepForward
from fsdp_rehearsal.steps import Steps


def start() -> None:
    """Measures this process after it has imported torch. FSDP_MEASURE_FOLDER: for the records, one file for each rank;
    FSDP_MEASURE_STEPS: the number of steps after which the job ends, 0 for never; FSDP_MEASURE_APPLY: the file of a plan, and
    FSDP_MEASURE_APPLY_NAME the user's name for it."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # the profiler complains about missing GPUs
    steps = int(os.environ.get("FSDP_MEASURE_STEPS", "0"))
    job = Job(os.environ["FSDP_MEASURE_FOLDER"])
    machine, history = Machine(), NoHistory()
    meter = job.meter = machine.meter(job.began)
    phases = job.phases = Phases(meter, history, machine)
    counted = job.steps = Steps(meter, phases, history, steps, job.stop)
    profiled = job.profiled = ProfiledStep()
    step_forward = StepForward(phases)
    step_forward.enter.append(job.called)
    counted.at_end.append(profiled.step_ends)
    counted.at_end.append(job.step_ends)
    job.faults = Faults(job.finish)
    apply = os.environ.get("FSDP_MEASURE_APPLY", "")
    if apply and not is_launcher():
        job.applying = ApplyPlan(apply, os.environ.get("FSDP_MEASURE_APPLY_NAME", ""), job.faults, job.finish, step_forward)
    atexit.register(job.ends)

    def with_torch(torch: ModuleType) -> None:
        for part in (meter, phases, step_forward, counted, job):
            try:
                part.install(torch)
            except Exception as error:
                failed(type(part).__name__, error)
        if job.applying is not None:
            job.applying.install(torch)
            Wrappers(job.applying).install(after_import)

    after_import("torch", with_torch)
