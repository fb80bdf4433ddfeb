"""One rank of a measured job. Writes its record once, however the rank ends."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any, Optional

from fsdp_measure.profiled_step import ProfiledStep
from fsdp_rehearsal import environment, memory, sizes
from fsdp_rehearsal.apply_plan import ApplyPlan
from fsdp_rehearsal.faults import Faults
from fsdp_rehearsal.guard import failed, guarded, warn, warnings
from fsdp_rehearsal.meter import Meter
from fsdp_rehearsal.phases import Phases
from fsdp_rehearsal.steps import Steps
from fsdp_rehearsal.whole_files import write_whole

_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")


def is_launcher() -> bool:
    """Whether this process only starts ranks."""
    words = " ".join(sys.orig_argv[:4])
    return "RANK" not in os.environ and any(name in words for name in _LAUNCHERS)


class Job:
    meter: Meter
    phases: Phases
    steps: Steps
    profiled: ProfiledStep
    faults: Faults
    applying: Optional[ApplyPlan] = None

    def __init__(self, folder: str) -> None:
        self.began = time.perf_counter()
        self._folder = folder
        self._process = os.getpid()
        self._rank = os.environ.get("RANK", "0")
        first = os.environ.setdefault(f"FSDP_MEASURE_FIRST_OF_{os.environ.get('RANK', 'LAUNCHER')}", str(self._process))
        self._is_first = first == str(self._process)
        self._written = False
        self._roots: list[Any] = []
        self._ends: list[float] = []  # of steps, in seconds

    def install(self, torch: Any) -> None:
        """Watches for the first forward with gradients, where initialization ends; watches no module after it."""
        module = torch.nn.modules.module

        def first(called: Any, inputs: Any) -> None:
            if self.called(called):
                handle.remove()

        handle = module.register_module_forward_pre_hook(first)

    def called(self, module: Any) -> bool:
        """A module is called. Returns whether the initialization is over."""
        torch = sys.modules["torch"]
        trains = torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
        if trains and self.phases.phase == "initialization":
            self._note_rank()
            self._roots.append(module)
            self.phases.enter("forward")
        return self.phases.phase != "initialization"

    def step_ends(self) -> None:
        self._ends.append(time.perf_counter())

    def stop(self) -> None:
        """Ends the process after the requested number of steps; all ranks arrive here after the same step."""
        if os.getpid() != self._process:
            return
        self._write("steps_reached")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)

    def finish(self) -> None:
        """The run is over: it has failed, or was interrupted."""
        error = self.faults.exception
        self._write("script_ended" if error is None else "out_of_memory" if error["out_of_memory"] else "exception")

    def ends(self) -> None:
        """At the end of the process."""
        error = getattr(sys, "last_value", None)
        if os.getpid() != self._process:
            return
        if self.faults.exception is None and error is not None:
            self.faults.note(error)
        if self.applying is not None and self._is_started_as_rank():
            self.applying.missing()
        self.finish()

    def _trains(self) -> bool:
        return self.steps.calls > 0 or self.phases.phase != "initialization"

    def _is_started_as_rank(self) -> bool:
        """Whether a launcher or the user started it as a rank. False for a rank's children, such as data-loading workers,
        which inherit its variables."""
        return self._is_first and not is_launcher()

    def _is_worth_a_record(self) -> bool:
        """Among processes that do not train, only a failed rank writes a record, and only if nobody else has."""
        if self._trains():
            return True
        failed_early = self._is_started_as_rank() and self.faults.exception is not None
        return failed_early and not os.path.exists(self._path())

    def _note_rank(self) -> None:
        """Scripts that start their ranks themselves pass the rank only to the process group, which no longer exists at the
        end."""
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            self._rank = str(distributed.get_rank())

    def _path(self) -> str:
        return f"{self._folder}/rank-{self._rank}.json"

    def _write(self, why: str) -> None:
        if self._written or not self._is_worth_a_record():
            return
        self._written = True
        if self.applying is not None:
            self.applying.note_end()
        try:
            contents = self._contents(why)
        except Exception as error:
            failed("The run as a whole", error)
            contents = {"format_version": "1.0", "end": self.faults.end(why), "warnings": warnings}
        write_whole(self._path(), json.dumps(contents, default=str).encode())

    def _contents(self, why: str) -> dict[str, Any]:
        self.meter.cut("end")
        self.steps.close()
        timeline = memory.Timeline(self.meter.cuts, self.steps.calls_per_step)
        if self.profiled.collectives is None:
            warn("no_profile", f"The collectives were not seen: the profiler looks at a step after the third, of {len(self._ends)}.")
        return {
            "format_version": "1.0",
            "end": self.faults.end(why),
            "environment": environment.describe(),
            "job": environment.job(False),
            "steps": len(self._ends),
            "seconds": {"total": round(time.perf_counter() - self.began, 3), **self._times()},
            "host_peak_bytes": environment.host_peak_bytes(),
            "gpu": environment.gpu(self.meter.device) if self.meter.running else None,
            "memory": self._memory(timeline),
            "collectives": {"steady_step": self.profiled.collectives or []},
            "applied": self._applied(),
            "warnings": warnings,
        }

    def _times(self) -> dict[str, float]:
        """The median of the steps between the second and the last, without the profiled one and the one after it."""
        spans = [b - a for a, b in zip(self._ends, self._ends[1:])]
        kept = [s for n, s in enumerate(spans, start=1) if n not in (self.profiled.seen, self.profiled.seen + 1)]
        result = {"step": statistics.median(kept)} if kept else {}
        if self.profiled.communication is not None:
            result.update({f"communication_{k}": v for k, v in self.profiled.communication.items()})
        return result

    @guarded("The memory", {})
    def _memory(self, timeline: memory.Timeline) -> dict[str, Any]:
        if not self.meter.running:
            return {}
        stats = self.meter.stats()
        return {
            "peaks": self.meter.peaks(),
            "phases": timeline.phases(),
            "cache_flushes": stats.get("num_alloc_retries", 0),
            "out_of_memory_errors": stats.get("num_ooms", 0),
        }

    @guarded("What was trained", {})
    def _applied(self) -> dict[str, Any]:
        root = self.applying.root if self.applying is not None and self.applying.applied else None
        total = sizes.Total()
        for each in [root] if root is not None else self._roots:
            total.add(each)
        return {"wrappers": [], "parameters": total.parameters, "trainable_parameters": total.trainable}
