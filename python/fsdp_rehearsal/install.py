"""Installs all replacements in a process that has the stub."""

from __future__ import annotations

import time
from types import ModuleType

from fsdp_rehearsal import checkpoints, generation, groups, known_values, store, uploads, zero_checks
from fsdp_rehearsal.after_import import after_import
from fsdp_rehearsal.apply_plan import ApplyPlan
from fsdp_rehearsal.apply_wrappers import Wrappers
from fsdp_rehearsal.batches import Batches
from fsdp_rehearsal.categories import Owners
from fsdp_rehearsal.eager import leave_out_compile
from fsdp_rehearsal.faults import Faults
from fsdp_rehearsal.guard import failed, warn
from fsdp_rehearsal.history import History
from fsdp_rehearsal.launchers import Launchers
from fsdp_rehearsal.meter import Meter
from fsdp_rehearsal.modules import Modules
from fsdp_rehearsal.phases import Phases
from fsdp_rehearsal.readbacks import Readbacks
from fsdp_rehearsal.record import Record
from fsdp_rehearsal.sent_objects import SentObjects
from fsdp_rehearsal.settings import Settings
from fsdp_rehearsal.step_forward import StepForward
from fsdp_rehearsal.steps import Steps
from fsdp_rehearsal.stub import Stub
from fsdp_rehearsal.techniques import Techniques
from fsdp_rehearsal.ties import Ties
from fsdp_rehearsal.units import Units
from fsdp_rehearsal.versions import Versions, check_torch
from fsdp_rehearsal.watchdog import Watchdog


def install(settings: Settings, is_owner: bool) -> None:
    """Installs everything that docs/rehearsal_inside.md lists, each part when its module is imported."""
    record = Record(settings, is_owner, time.perf_counter())
    stub = record.stub = Stub()
    meter = record.meter = Meter(stub, record.began)
    history = record.history = History(meter, keep_all=bool(settings.snapshot or settings.trace))
    phases = record.phases = Phases(meter, history, stub)
    steps = record.steps = Steps(meter, phases, history, settings.steps, record.stop)
    batches = record.batches = Batches(lambda: steps.calls)
    modules = record.modules = Modules(phases, batches)
    step_forward = StepForward(phases)
    step_forward.enter.append(modules.enter)
    step_forward.leave.append(modules.leave)
    record.units = Units(stub, phases, modules)
    ties = record.ties = Ties()
    record.versions = Versions()
    faults = record.faults = Faults(record.finish)
    owners = record.owners = Owners(modules, steps)
    record.techniques = Techniques(modules, phases, steps)
    progress = record.progress
    record.readbacks = Readbacks(phases, lambda: steps.calls, progress.say)
    watchdog = Watchdog(settings.pause)
    phases.at_first_forward.append(watchdog.wait)
    phases.after_backward.append(watchdog.wait)
    phases.after_backward.append(owners.after_backward)
    steps.at_end.append(watchdog.wait)
    steps.at_end.append(owners.after_step)
    steps.at_end.append(lambda: progress.step(steps.done + 1))
    phases.at_first_forward.append(lambda: progress.step(1))
    progress.say("importing")
    progress.tell_stack()
    faults.install()
    uploads.install()
    Launchers(settings).install()
    if settings.apply:
        record.applying = ApplyPlan(settings.apply, settings.apply_name, faults, record.finish, step_forward)

    def with_torch(torch: ModuleType) -> None:
        progress.say("initializing")
        if torch.version.cuda is None:  # a build for CPUs: there is nothing to measure
            return
        check_torch(str(torch.__version__))
        for part in (meter, history, phases, step_forward, modules, steps, watchdog, ties):
            try:
                part.install(torch)
            except Exception as error:
                failed(type(part).__name__, error)
        if record.applying is not None:  # not a probe: its exceptions end the program
            record.applying.install(torch)
            Wrappers(record.applying).install(after_import)
        if settings.eager:
            leave_out_compile(torch, lambda: warn("plan_in_place", "The script's torch.compile is left out, as it was in the capture."))
        record.readbacks.install(stub)
        if settings.capture and is_owner:
            from fsdp_capture.session import Session

            session = Session(settings, steps, phases, modules, step_forward, history, meter, record.stop, progress.say)
            session.install(torch)
            record.at_end.append(session.end)
            Wrappers(session.unwrapped).install(after_import)
            leave_out_compile(torch, session.note_compile)
        if settings.follow_values:
            try:
                known_values.install(torch, stub, settings.routing == "balanced", modules.in_forward, lambda: steps.calls)
            except Exception as error:
                failed("Values known to the host", error)

    after_import("torch", with_torch)
    install_with_libraries(record, settings)


def install_with_libraries(record: Record, settings: Settings) -> None:
    """Installs the hooks of torch.distributed and of other libraries."""
    stub, phases, steps, units, ties = record.stub, record.phases, record.steps, record.units, record.ties
    after_import("torch.distributed", store.install)
    after_import("torch.distributed", lambda dist: groups.install(dist, stub))
    sent = SentObjects(settings, record.progress.say)
    after_import("torch.distributed", lambda dist: sent.install(dist.distributed_c10d) if dist.is_available() else None)
    after_import("torch.distributed.fsdp._fully_shard._fsdp_param_group", units.install_fsdp2)
    after_import("torch.distributed.fsdp._runtime_utils", units.install_fsdp1)
    after_import("torch.distributed.fsdp._fully_shard._fsdp_param_group", ties.install_fsdp2)
    after_import("torch.distributed.fsdp.fully_sharded_data_parallel", ties.install_fsdp1)
    record.techniques.install(after_import)
    after_import("torch.distributed.checkpoint.utils", checkpoints.install)
    after_import("torch.distributed.checkpoint.default_planner", checkpoints.install_planner)
    savers = ("save", "async_save")
    after_import("torch.distributed.checkpoint.state_dict_saver", lambda m: checkpoints.watch(m, savers, phases.during))
    getters = ("get_state_dict", "get_model_state_dict", "get_optimizer_state_dict")
    after_import("torch.distributed.checkpoint.state_dict", lambda m: checkpoints.watch(m, getters, phases.during))
    after_import("torch.distributed.fsdp._optim_utils", checkpoints.install_fsdp1)
    zero = "deepspeed.runtime.zero"
    after_import(f"{zero}.stage_1_and_2", lambda m: steps.install_wrapper(m.DeepSpeedZeroOptimizer))
    after_import(f"{zero}.stage3", lambda m: steps.install_wrapper(m.DeepSpeedZeroOptimizer_Stage3))
    after_import(f"{zero}.utils", zero_checks.install)
    after_import("transformers.generation.utils", generation.install)
    after_import("transformers.training_args", record.versions.install_transformers)
