"""A measured run: trains a plan with its framework and measures the figures of a report (docs/file_formats.md).

PyTorch's profiler watches the first step and the last: collectives, and on the CPU the bytes of tensors. Their times include
the profiler's cost, so the time of a step comes from the steps between; with fewer than three steps it is unknown. On a GPU
the bytes are those of PyTorch's allocator, in every step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fsdp_plan_runner.training import Job, StepResult, make_optimizer, prepare, run_step
from fsdp_plan_runner.trial import SyntheticBatch, fill
from fsdp_plan_runner.watch import Seen, Watch, count_bytes, mark
from fsdp_plan_runner.zero import run_engine_step, start_engine
from fsdp_rehearsal.whole_files import write_whole

REPORT_FORMAT_VERSION = "1.0"
_LOADED = "the first batch is there"
_PASSES = {"all_reduce": 2}  # Passes of a ring. Defaults to 1.


@dataclasses.dataclass
class Step:
    """`peaks` has the known ones of: live, allocated, reserved, device."""

    number: int
    result: StepResult
    wall: float
    cpu: float
    peaks: dict[str, int]
    seen: Seen | None
    segments: int = 0  # Pieces that PyTorch's allocator took from a GPU.


class _Memory:
    """Peaks since the last query."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.segments = 0
        if device.type == "cpu":
            count_bytes()

    def begin(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def peaks(self, seen: Seen | None, begin: int | None = None, end: int | None = None) -> dict[str, int]:
        if self._device.type == "cuda":
            stats = torch.cuda.memory_stats()
            free, total = torch.cuda.mem_get_info()
            self.segments = stats["segment.all.peak"]
            return {"live": stats["requested_bytes.all.peak"], "allocated": stats["allocated_bytes.all.peak"],
                    "reserved": stats["reserved_bytes.all.peak"], "device": total - free}
        live = seen.peak(begin, end) if seen is not None else None
        return {} if live is None else {"live": live}


def higher(*peaks: dict[str, int]) -> dict[str, int]:
    return {key: max(each[key] for each in peaks if key in each) for key in dict.fromkeys(key for each in peaks for key in each)}


def _nothing() -> None:
    pass


class _BatchesAhead(SyntheticBatch):
    """Batches that exist before a step begins, as from a data loader: the memory for making their values is not measured. They
    lie outside of PyTorch's memory until they are loaded."""

    def __init__(self, job: Job, activation: torch.dtype) -> None:
        super().__init__(job, activation)
        self._ahead: list[list[tuple[Any, torch.dtype]]] = []
        self.when_loaded: Callable[[], None] = _nothing  # Called once.

    def prepare(self, micro_batches: int) -> None:
        for _ in range(micro_batches):
            values = [*super().next_on_host()]
            # NumPy has no bfloat16.
            self._ahead.append([((v.view(torch.int16) if v.dtype == torch.bfloat16 else v).numpy().copy(), v.dtype) for v in values])

    def next_on_host(self) -> Iterator[torch.Tensor]:
        for array, dtype in self._ahead.pop(0):
            yield torch.from_numpy(array).view(dtype).clone()

    def load(self) -> None:
        super().load()
        mark(_LOADED)
        self.when_loaded()
        self.when_loaded = _nothing


class MeasuredRun:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._on_cuda = job.device.type == "cuda"
        self._memory = _Memory(job.device)
        self.initialization: dict[str, int] = {}
        self.steps: list[Step] = []

    def _watch(self, looks_at_tensors: bool = True) -> Watch:
        return Watch(self._job.plan, self._on_cuda, looks_at_tensors)

    def _begin(self) -> Callable[[], StepResult]:
        """Makes the model and its optimizer. Filling it with values belongs to the experiment, and is not measured."""
        job, trial = self._job, self._job.trial
        self._memory.begin()
        with self._watch(looks_at_tensors=False) as making:
            root = prepare(dataclasses.replace(job, trial=None))
        fill(job, root)
        with self._watch(looks_at_tensors=False) as starting:
            optimizer = make_optimizer(root, job.plan, trial.learning_rate)
            root.train()
            if job.plan.zero_stage:
                start_engine(root, optimizer, job.plan)
        self._end_initialization(self._memory.peaks(making.seen), self._memory.peaks(starting.seen))
        self.root = root
        self._batch = batch = _BatchesAhead(job, root.context.activation)
        torch.manual_seed(trial.seed + job.rank)  # For dropout.
        if job.plan.zero_stage:
            return lambda: run_engine_step(root, batch, job.plan)
        return lambda: run_step(root, batch, optimizer, job.plan, trial.accumulation)

    def _end_initialization(self, *peaks: dict[str, int]) -> None:
        """Up to and including the first batch."""
        self.initialization = higher(self.initialization, *peaks)
        self._memory.begin()

    def run(self, after_step: Callable[[Step], None]) -> None:
        step = self._begin()
        if self._on_cuda:
            self._batch.when_loaded = lambda: self._end_initialization(self._memory.peaks(None))
        for number in range(1, self._job.steps + 1):
            is_watched = number in (1, self._job.steps)
            self._batch.prepare(self._job.plan.accumulation)
            self._memory.begin()
            with self._watch() if is_watched else contextlib.nullcontext() as watch:
                wall, cpu = time.perf_counter(), time.process_time()
                result = step()
                if self._on_cuda:
                    torch.cuda.synchronize()
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            seen = watch.seen if watch is not None else None
            begin = None
            if number == 1 and seen is not None:
                begin = seen.marks.get(_LOADED)
                if not self._on_cuda:
                    self._end_initialization(self._memory.peaks(seen, None, begin))
            self.steps.append(Step(number, result, wall, cpu, self._memory.peaks(seen, begin), seen, self._memory.segments))
            after_step(self.steps[-1])

    # ---- The report.

    def timed(self) -> list[float]:
        """Seconds of the steps that the profiler did not watch."""
        return [step.wall for step in self.steps if step.seen is None]

    def _phases(self) -> dict[str, dict[str, int]]:
        later = higher(*(step.peaks for step in self.steps[1:]))
        return {"initialization": self.initialization, "first_step": self.steps[0].peaks, **({"steady_step": later} if later else {})}

    def report(self, plan: dict[str, Any]) -> dict[str, Any]:
        """`plan`: as in the job. Unmeasured figures are absent."""
        job, phases = self._job, self._phases()
        model = job.model
        sizes = [(getattr(p, "ds_numel", p.numel()), p.requires_grad) for p in _whole(self.root, job)]
        dimensions = plan["model"].get("dimensions", {})
        report: dict[str, Any] = {
            "format_version": REPORT_FORMAT_VERSION, "kind": "measured", "runtime": job.plan.runtime_name,
            "runtime_version": torch.__version__.partition("+")[0], "verdict": "unknown",
            "model": {"name": model.name, "parameters": sum(size for size, _ in sizes),
                      "trainable_parameters": sum(size for size, is_trained in sizes if is_trained)},
            "cluster": {"gpu": torch.cuda.get_device_name() if self._on_cuda else "CPU", "gpus_per_node": job.world_size, "nodes": 1,
                        "memory_bytes": 0, "assumptions": []},
            "workload": {"dimensions": dimensions, "accumulation": job.plan.accumulation, "world_size": job.world_size},
            "plan": plan,
            "memory": {"budget_bytes": 0, "margin_bytes": 0, **_named(higher(*phases.values())),
                       "peak": {"phase": "", "instruction": "", "unit": "", "op": ""}, "device_terms": [],
                       "phases": {name: _named(peaks) for name, peaks in phases.items() if peaks}},
            "traffic": _traffic(self.steps[-1].seen.collectives if self.steps[-1].seen else []),
        }
        for name, key in (("micro_batch", "batch"), ("sequence", "seq")):
            if key in dimensions:
                report["workload"][name] = dimensions[key]
        walls = self.timed()
        if walls:
            median = statistics.median(walls)
            report["time"] = {"step": median, "uncertainty": {"low": min(walls), "high": max(walls)}}
            if tokens := tokens_of_step(job):
                report["time"]["tokens_per_second_per_gpu"] = tokens / median
        report["steps"] = [self._row(step) for step in self.steps]
        return report

    def _row(self, step: Step) -> dict[str, Any]:
        peaks = {f"{key}_bytes" if key == "device" else f"{key}_peak_bytes": size for key, size in step.peaks.items()}
        if self._on_cuda:
            peaks["segments"] = step.segments
        return {"step": step.number, "mean_of": 1, "loss": _finite(step.result.loss), "gradient_norm": _finite(step.result.gradient_norm),
                "learning_rate": self._job.trial.learning_rate, "wall_seconds": step.wall, "cpu_seconds": step.cpu, **peaks}


def tokens_of_step(job: Job) -> float:
    """Tokens of one rank. 0 if a sample has none."""
    return job.tokens_per_step * job.plan.accumulation


def _whole(root: Any, job: Job) -> list[Any]:
    """Parameters with the sizes of the model. FSDP1's are flat and sharded."""
    if job.plan.runtime_name != "pytorch-fsdp1":
        return list(root.parameters())
    from torch.distributed.fsdp import FullyShardedDataParallel

    with FullyShardedDataParallel.summon_full_params(root.wrapper[0], writeback=False):
        return [torch.empty(p.shape, device="meta").requires_grad_(p.requires_grad) for p in root.parameters()]


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _named(peaks: dict[str, int]) -> dict[str, int]:
    return {f"{key}_peak_bytes": size for key, size in peaks.items()}


def _traffic(collectives: list[dict[str, Any]]) -> dict[str, Any]:
    totals: dict[str, dict[str, int]] = {kind: {"count": 0, "payload_bytes": 0, "sent_bytes_per_rank": 0}
                                         for kind in ("all_gather", "reduce_scatter", "all_reduce")}
    for each in collectives:
        total = totals.setdefault(each["kind"], {"count": 0, "payload_bytes": 0, "sent_bytes_per_rank": 0})
        total["count"] += 1
        total["payload_bytes"] += each["payload_bytes"]
        if ranks := each.get("group_size"):
            total["sent_bytes_per_rank"] += _PASSES.get(each["kind"], 1) * (ranks - 1) * each["payload_bytes"] // ranks
    return {"totals": totals, "collectives": collectives}


def say_step(job: Job, step: Step) -> None:
    """Prints the line of fsdp-exec; only on rank 0."""
    if job.rank != 0:
        return
    tokens = tokens_of_step(job) * job.world_size
    words = [f"step {step.number}: loss {step.result.loss:.6f}", f"{step.wall:.3f} s"]
    if tokens:
        words.append(f"{tokens / step.wall:.0f} tokens/s")
    if "live" in step.peaks:
        words.append(f"peak {step.peaks['live'] / 2**20:.1f} MiB per rank")
    print(", ".join(words), file=sys.stderr, flush=True)


def write_report(path: str, report: dict[str, Any]) -> None:
    write_whole(path, (json.dumps(report, indent=1) + "\n").encode())
