"""Starts the ranks of a run: those of fsdp-exec as programs, those of the real FSDP2 as forks of this Python.

A fork has torch loaded already, which takes longer than the training of a small model. So this process computes nothing with
torch before it forks.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "python")]
from command import LIMIT_SECONDS, answer  # noqa: E402

STARTERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "FSDP_EXEC_STORE_FILE")


def stopped_in_a_step(rank: int) -> str:
    """A regular expression for the message of a rank that was stopped in a step: at an instruction, or at the comparison of
    losses after the last one."""
    return rf"error: rank {rank}: step \d+, (instruction \d+ of \d+, \w.*|comparing losses): "


class InAFolder(unittest.TestCase):
    """Each test has its own folder, which is removed with it."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


def clean_environment() -> dict[str, str]:
    """The environment without the variables of an engine around this test."""
    kept = {name: value for name, value in os.environ.items()
            if name not in STARTERS and not name.startswith(("OMPI_", "SLURM_", "TORCHELASTIC_"))}
    return {**kept, "FSDP_PLAN_MODEL_SPECS": str(ROOT / "model_specs"), "OMP_NUM_THREADS": "1"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Rank:
    """A running rank. Its output goes to a file, so that nobody needs to read a pipe meanwhile."""

    def __init__(self, words: list[str], rank: int, log: pathlib.Path, environment: dict[str, str]) -> None:
        self.rank = rank
        self._log = log
        with open(log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    @property
    def printed(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def wait(self, seconds: float = LIMIT_SECONDS) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"rank {self.rank} has not ended after {seconds} s\n{self.printed}") from None


@contextlib.contextmanager
def started(program: pathlib.Path, count: int, plans: list[pathlib.Path], folder: pathlib.Path,
            options: list[str], *, world_size: int | None = None, port: int | None = None) -> Iterator[list[Rank]]:
    """Starts `count` ranks; rank r trains plans[r] or the only one. They meet through a file, or, with a port, through rank 0.
    None of them outlives the block. RANK in an option is replaced by the number of the rank."""
    mark = time.monotonic_ns()
    ranks = []
    try:
        for r in range(count):
            environment = {**clean_environment(), "RANK": str(r), "LOCAL_RANK": str(r),
                           "WORLD_SIZE": str(world_size or count)}
            if port is None:
                environment["FSDP_EXEC_STORE_FILE"] = str(folder / f"store.{mark}")
            else:
                environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            words = [str(program), str(plans[r % len(plans)]), "--threads", "1",
                     *(option.replace("RANK", str(r)) for option in options)]
            ranks.append(Rank(words, r, folder / f"{mark}.{r}.log", environment))
        yield ranks
    finally:
        for rank in ranks:
            if rank.process.poll() is None:
                rank.process.kill()
                rank.process.wait()


def run_executor(program: pathlib.Path, plan: pathlib.Path, ranks: int, folder: pathlib.Path, name: str,
                 options: list[str]) -> dict[str, Any]:
    """Trains; returns {"steps": of every rank, "parameters"}. The text of an AssertionError is the ranks' output."""
    words = ["--report", str(folder / f"{name}.RANK.json"), "--save-parameters", str(folder / f"{name}.safetensors")]
    with started(program, ranks, [plan], folder, [*options, *words]) as running:
        codes = [rank.wait() for rank in running]
        printed = "".join(rank.printed for rank in running)
    if any(codes):
        raise AssertionError(f"fsdp-exec: exit {codes}\n{printed}")
    return results_of(folder / name, ranks)


def results_of(base: pathlib.Path, ranks: int) -> dict[str, Any]:
    steps = [json.loads(pathlib.Path(f"{base}.{r}.json").read_text(encoding="utf-8"))["steps"] for r in range(ranks)]
    return {"steps": steps, "parameters": parameters_of(pathlib.Path(f"{base}.safetensors"))}


def parameters_of(path: pathlib.Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Name -> dtype, shape and bytes of every tensor of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], tuple(entry["shape"]), data[8 + size + entry["data_offsets"][0]:
                                                              8 + size + entry["data_offsets"][1]])
            for name, entry in header.items()}


def floats_of(tensor: tuple[str, tuple[int, ...], bytes]) -> list[float]:
    dtype, shape, data = tensor
    count = math.prod(shape)
    if dtype == "BF16":
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return list(struct.unpack(f"<{count}{'e' if dtype == 'F16' else 'f'}", data))


def expanded(program: pathlib.Path, plan: dict[str, Any]) -> dict[str, Any]:
    model = plan["model"]
    words = ["models", model["file"], "--expanded", "--json"]
    words += ["--recipe", model["recipe"]] if model.get("recipe") else []
    words += ["--flavor", plan.get("runtime", {}).get("flavor", "transformers")]
    for name, value in model.get("dimensions", {}).items():
        words += ["--set", f"{name}={value}"]
    return answer(program, *words, *(["--freeze", *model["frozen"]] if model.get("frozen") else []))


def _reference_rank(rank: int, world_size: int, port: int, words: list[str], log: str) -> None:
    with open(log, "w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    from fsdp_plan_runner.__main__ import main

    sys.argv = ["fsdp_plan_runner", *words]
    os._exit(main())


def run_reference(planner: pathlib.Path, plan_file: pathlib.Path, ranks: int, folder: pathlib.Path, name: str,
                  steps: int, options: list[str]) -> dict[str, Any]:
    """The same with the real FSDP2 over Gloo."""
    import fsdp_plan_runner.trial  # noqa: F401  Loaded once, for all ranks to come.

    plan = json.loads(plan_file.read_text(encoding="utf-8"))
    job_file = folder / f"{name}.job.json"
    job_file.write_text(json.dumps({"format_version": "1.0", "model": expanded(planner, plan), "plan": plan,
                                    "dimensions": plan["model"]["dimensions"], "steps": steps}), encoding="utf-8")
    words = [str(job_file), "--device", "cpu", "--results", str(folder / name), *options]
    port = free_port()
    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=_reference_rank, args=(r, ranks, port, words, str(folder / f"{name}.{r}.log")))
               for r in range(ranks)]
    for process in running:
        process.start()
    deadline = time.monotonic() + LIMIT_SECONDS
    for process in running:
        process.join(max(0.0, deadline - time.monotonic()))
    late = [r for r, process in enumerate(running) if process.is_alive()]
    for r in late:
        running[r].kill()
        running[r].join()
    if late or any(process.exitcode for process in running):
        logs = "".join((folder / f"{name}.{r}.log").read_text(encoding="utf-8") for r in range(ranks))
        raise AssertionError(f"PyTorch: exit {[process.exitcode for process in running]}, late: {late}\n{logs[-6000:]}")
    return results_of(folder / name, ranks)
