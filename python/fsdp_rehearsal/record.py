"""Writes the record of this process, once, however it ends."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import sys
import time
from typing import Any, Optional

from fsdp_rehearsal import applied, children, collectives, environment, frames, memory, trace
from fsdp_rehearsal.apply_plan import ApplyPlan
from fsdp_rehearsal.batches import Batches
from fsdp_rehearsal.categories import Owners
from fsdp_rehearsal.faults import Faults
from fsdp_rehearsal.guard import failed, guarded, warn, warnings
from fsdp_rehearsal.history import History
from fsdp_rehearsal.meter import Meter
from fsdp_rehearsal.modules import Modules
from fsdp_rehearsal.phases import ASIDE, Phases
from fsdp_rehearsal.progress import Progress
from fsdp_rehearsal.readbacks import Readbacks
from fsdp_rehearsal.settings import Settings
from fsdp_rehearsal.steps import Steps
from fsdp_rehearsal.stub import Stub
from fsdp_rehearsal.techniques import Techniques
from fsdp_rehearsal.ties import Ties
from fsdp_rehearsal.units import Units
from fsdp_rehearsal.versions import Versions
from fsdp_rehearsal.whole_files import write_whole

_SECONDS_FOR_DESTRUCTORS = 20
_leave = os._exit  # faults.py replaces it


class Record:
    stub: Stub
    meter: Meter
    history: History
    phases: Phases
    modules: Modules
    units: Units
    steps: Steps
    batches: Batches
    owners: Owners
    techniques: Techniques
    ties: Ties
    versions: Versions
    faults: Faults
    readbacks: Readbacks
    applying: Optional[ApplyPlan] = None

    def __init__(self, settings: Settings, is_owner: bool, began: float) -> None:
        self.began = began
        self._started = time.time()
        self.at_end: list[Any] = []  # called with the message of the exception that ended the run, or "", and whether memory
                                     # ran out
        self.progress = Progress(settings.progress if is_owner else "", settings.steps)
        self._settings = settings
        self._is_owner = is_owner
        self._process = os.getpid()
        self._written = False

    def stop(self) -> None:
        """Ends the process after the requested number of steps."""
        if os.getpid() == self._process:
            self._write("exception" if self._lacks_plan() else "steps_reached")
            children.end()
            logging.shutdown()
            _flush()
            _leave(0)

    def finish(self) -> None:
        """Writes the record of a process that ends by itself. After an exception it ends here and now: the later destructors
        of PyTorch and NCCL do not matter. Otherwise only the interpreter knows its exit status (`raise SystemExit("no data")`
        bypasses every hook), so the process continues to its end, and a destructor that hangs is ended."""
        why = self._why()
        error = self.faults.exception
        for action in self.at_end:
            try:
                action(str(error["message"]) if error is not None else "", why == "out_of_memory")
            except Exception as failure:
                failed("The end of the run", failure)
        if self._write(why):
            _flush()
            if why != "script_ended":
                _leave(0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_SECONDS_FOR_DESTRUCTORS)

    def _why(self) -> str:
        error = self.faults.exception
        if error is None and self._gave_up_out_of_memory():
            return "out_of_memory"
        if error is None and self._lacks_plan():
            return "exception"
        if error is None:
            return "script_ended"
        return "out_of_memory" if error["out_of_memory"] else "exception"

    def _lacks_plan(self) -> bool:
        """Whether a plan was requested, and not applied."""
        return self.applying is not None and self._is_mine() and self.applying.missing()

    @guarded("The number of out-of-memory errors", False)
    def _gave_up_out_of_memory(self) -> bool:
        """Whether the last event was an out-of-memory error that the program caught."""
        if not self.meter.running or not self.meter.stats()["num_ooms"]:
            return False
        self.history.drain()
        cuts, failures = self.meter.cuts, self.history.ledger.failures
        return bool(failures) and (not cuts or failures[-1]["position"] >= cuts[-1].position)

    def _write(self, why: str) -> bool:
        if self._written or not self._is_mine():
            return False
        self._written = True
        if self.applying is not None:
            self.applying.note_end()
        self.progress.say("writing the record")
        try:
            contents = self._contents(why)
        except Exception as error:
            failed("The run as a whole", error)
            contents = {"format_version": "1.0", "end": self.faults.end(why), "warnings": warnings}
        self._write_snapshot()
        if self._settings.record and not self._is_better_one_there():
            write_whole(self._settings.record, json.dumps(contents, default=str).encode())
        return True

    def _is_mine(self) -> bool:
        """Children of the script write a record only if they train: a rank that other code started for the script."""
        if not self._settings.record or os.getpid() != self._process:
            return False
        rank = os.environ.get("RANK", "")
        trains = self.steps.calls > 0 or self.phases.phase != "initialization"
        return self._is_owner or (trains and rank in ("", str(self._settings.rank)))

    def _is_better_one_there(self) -> bool:
        """Whether a child of this process has trained and written meanwhile; or a training before this process, which is then
        another program of the same command without a record."""
        try:
            with open(self._settings.record, encoding="utf-8") as text:
                other = json.load(text)
            meanwhile = os.path.getmtime(self._settings.record) > self._started
            theirs = (other["steps"], other["environment"]["cuda_initialized"])
        except (OSError, ValueError, KeyError):
            return False
        return theirs > (self.steps.done, self.meter.running) and (meanwhile or "torch" not in sys.modules)

    def _contents(self, why: str) -> dict[str, Any]:
        meter, history, steps = self.meter, self.history, self.steps
        meter.cut(self.phases.phase if self.phases.phase in ASIDE else "end")
        self.owners.after_backward()
        self.owners.after_step()
        history.drain()
        steps.close()
        timeline = memory.Timeline(meter.cuts, steps.calls_per_step)
        what = applied.describe(self.modules, [o for o in (r() for r in steps.optimizers) if o is not None])
        self.ties.check([r for r in (w() for w in self.modules.roots) if r is not None])
        self.versions.check(what["wrappers"])
        ends = [step[-1] for step in timeline.steps]
        begin = timeline.begin
        self._warn_of_limits()
        self._warn_of_steps(why, len(ends))
        times = [begin.seconds if begin else 0.0] + [c.seconds for c in ends]
        return {
            "format_version": "1.0",
            "end": self.faults.end(why),
            "environment": environment.describe(),
            "job": environment.job(self.modules.uses_data_parallel()),
            "steps": len(ends),
            "seconds": {
                "total": round(time.perf_counter() - self.began, 3),
                "steps": [round(b - a, 3) for a, b in zip(times, times[1:])],
            },
            "host_peak_bytes": environment.host_peak_bytes(),
            "gpu": self._gpu(),
            "memory": {
                **memory.describe(meter, history, self.stub, timeline, self.modules.shown),
                "categories": self.owners.at_peak(history.ledger, timeline.began(history.ledger.peak.position)),
            },
            "collectives": collectives.describe(
                self.stub.collectives(),
                [c.collectives for c in ends],
                begin.collectives if begin else 0,
                history.marks,
                self.units,
                any(w["name"] == "DDP" for w in what["wrappers"]),
            ),
            "applied": {**what, "techniques": self.techniques.seen(len(ends))},
            "warnings": warnings,
            "limits": self._limits(),
        }

    @guarded("The GPU")
    def _gpu(self) -> Any:
        return environment.gpu(self.meter.device) if self.meter.running else None

    def _warn_of_steps(self, why: str, done: int) -> None:
        calls = self.steps.calls_per_step or max(1, self.steps.calls)
        self.batches.check([calls * (n + 1) for n in range(done)])
        asked = self._settings.steps
        if why == "script_ended" and 0 < done < asked:
            warn("ended_early", f"The script ended by itself after {done} of {asked} steps; later ones may need more.")
        if why == "script_ended" and done == 0 and self.meter.running:
            warn("no_steps", "No torch.optim optimizer stepped: these figures are not those of a training step.")

    def _warn_of_limits(self) -> None:
        for row in self.readbacks.rows():
            if row["steers_sizes"]:
                warn(
                    "readback",
                    f"{row['operation']} makes a tensor whose size depends on device contents, which are not there "
                    f"({row['count']} times).",
                    row["file"] or None,
                    row["line"] or None,
                )
        if self.faults.exception and "torch/utils/cpp_extension.py" in self.faults.exception["traceback"]:
            warn(
                "compiled_extension",
                "The program compiles kernels of its own while it runs, as DeepSpeed's fused optimizers do: that needs the CUDA "
                "compiler (nvcc), or the package built beforehand.",
            )
        for name in self.stub.missing_functions():
            warn("missing_function", f"The stub GPU does not have {name}, which the program called.")

    def _limits(self) -> dict[str, Any]:
        rows = self.readbacks.rows()
        return {
            "readbacks": rows,
            "missing_functions": self.stub.missing_functions(),
            "allocator_event_queries": self.stub.counter("allocator_event_query"),
            "cudnn_plans": self.stub.counter("cudnn"),
            "triton": self.stub.counter("module_kernel") > 0 and "triton.runtime.driver" in sys.modules,
            "cuda_graphs": self.stub.counter("graph_launch") > 0,
            "data_dependent_routing": any(row["steers_sizes"] and row["phase"] != "initialization" for row in rows),
        }

    @guarded("The snapshot")
    def _write_snapshot(self) -> None:
        if self._settings.snapshot:
            frames.hide_ours(self.history.snapshot)
            write_whole(self._settings.snapshot, pickle.dumps(self.history.snapshot))
        if self._settings.trace:
            traces = self.history.snapshot.get("device_traces", [])
            entries = traces[self.meter.device] if traces else []
            write_whole(self._settings.trace, trace.text(entries, self.meter.cuts, self.history.marks).encode())


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
