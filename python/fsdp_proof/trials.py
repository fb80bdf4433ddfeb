"""The trials of a proof. Each returns its findings, or raises TrialFailed; they do not depend on each other."""

from __future__ import annotations

import json
import os
import pathlib
import re
import socket
import sys
from dataclasses import dataclass
from typing import Any

from fsdp_proof.processes import TrialFailed, run_together

_OF_LAUNCHERS = re.compile(r"RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_(ADDR|PORT)|(OMPI|SLURM|TORCHELASTIC|PMI)_.*")
_LIMIT_SECONDS = 1800


@dataclass
class Request:
    """The request of fsdp-plan execute --proof (command/execute_proof.cpp)."""

    folder: pathlib.Path
    values: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.values[name]

    @property
    def ranks(self) -> int:
        return self.values["shard"] * self.values["replicate"]

    def environment(self, **more: str) -> dict[str, str]:
        """Our environment, without the variables of a launcher around us."""
        kept = {name: value for name, value in os.environ.items() if not _OF_LAUNCHERS.fullmatch(name)}
        return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": self.values["python_path"], **more}


def _fresh(folder: pathlib.Path) -> pathlib.Path:
    """A folder for a trial, without the files of an earlier one."""
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        if file.is_file():
            file.unlink()
    return folder


def _read(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrialFailed(f"{path.name}: {error}") from None


def executor(request: Request) -> list[dict[str, Any]]:
    """fsdp-exec on one GPU for each rank, over NCCL: every rank's report, with its trace under "trace"."""
    folder = _fresh(request.folder / "executor")
    words = [request.program, request.plan, "--device", "cuda", "--steps", str(request.steps), "--seed", str(request.seed),
             "--timeout", str(request.timeout_seconds), "--report", str(folder / "report.{rank}.json"),
             "--chrome-trace", str(folder / "trace.{rank}.json")]
    common = {"WORLD_SIZE": str(request.ranks), "LOCAL_WORLD_SIZE": str(request.ranks),
              "FSDP_EXEC_STORE_FILE": str(folder / "store")}
    run_together([words] * request.ranks,
                 [request.environment(RANK=str(r), LOCAL_RANK=str(r), **common) for r in range(request.ranks)],
                 [folder / f"{r}.log" for r in range(request.ranks)], _LIMIT_SECONDS)
    return [{**_read(folder / f"report.{r}.json"), "trace": _read(folder / f"trace.{r}.json")} for r in range(request.ranks)]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def pytorch(request: Request) -> list[dict[str, Any]]:
    """Runs torchrun with the real FSDP2 on the same GPUs, and returns every rank's findings (worker.py)."""
    if not request.torch:
        raise TrialFailed(request.why_no_torch)
    folder = _fresh(request.folder / "pytorch")
    words = [request.torch, "-B", "-m", "torch.distributed.run", "--nproc-per-node", str(request.ranks), "--master-addr",
             "127.0.0.1", "--master-port", str(_free_port()), "-m", "fsdp_proof.worker", str(request.folder / "job.json"),
             str(folder / "found"), str(request.seed)]
    run_together([words], [request.environment(TORCH_NCCL_ASYNC_ERROR_HANDLING="1")], [folder / "log"], _LIMIT_SECONDS)
    return [_read(folder / f"found.{r}.json") for r in range(request.ranks)]


def stub(request: Request, card: dict[str, Any]) -> dict[str, Any]:
    """The stub GPU's answers in place of this card's (claims.py)."""
    if not pathlib.Path(request.stub).is_file():
        raise TrialFailed("the stub GPU was not built: ./scripts/bootstrap --with rehearsal, then build again")
    folder = _fresh(request.folder / "stub")
    played = {f"STUB_GPU_{name}": str(value) for name, value in card.items()}
    # PyTorch gets the whole card: the context already includes the driver's own memory.
    environment = request.environment(LD_PRELOAD=request.stub, STUB_GPU_CONTEXT_BYTES="0", STUB_GPU_COUNT="1", **played)
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    log = folder / "log"
    run_together([[request.torch, "-B", "-m", "fsdp_proof.claims"]], [environment], [log], _LIMIT_SECONDS)
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    if not lines:
        raise TrialFailed("it has printed nothing")
    return json.loads(lines[-1])


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
