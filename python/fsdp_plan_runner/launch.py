"""A rank's identity and the ranks' meeting place, from each engine's own variables: torchrun, Open MPI's mpirun, srun, Ray
(fsdp_plan_ray) and fsdp-plan execute. The names and the order are those of fsdp-exec (executor/network/launch.cpp).

Sources: torch/distributed/run.py, Open MPI's OMPI_COMM_WORLD_*, Slurm's srun(1) SLURM_*.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
from collections.abc import Mapping

_ENGINES = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "srun": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}
_SLURM_FIRST_PORT, _SLURM_PORTS, _SLURM_STEPS_OF_JOB = 20000, 10000, 16


class NotStarted(Exception):
    """The variables of the engine do not identify this rank; the arguments are the reasons."""


@dataclasses.dataclass(frozen=True)
class Place:
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    address: str = ""
    port: int = 0
    store_file: str = ""  # In place of an address: a file that all ranks see.


def first_host(nodes: str) -> str:
    """The first host of one of Slurm's short lists, where its rank 0 runs: "rack[1-2]node[03-07,12]-ib,other" is rack1node03-ib."""
    one = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", one.group() if one else "")


def _number(variables: Mapping[str, str], name: str, missing: int, problems: list[str]) -> int:
    text = variables.get(name, "")
    if not text:
        return missing
    if not re.fullmatch(r"\d{1,9}", text):
        problems.append(f'{name}: "{text}" is not a number of a rank.')
        return missing
    return int(text)


def read_place(variables: Mapping[str, str] = os.environ) -> Place:
    """Raises NotStarted."""
    problems: list[str] = []
    engine = next((name for name, (rank, world, _) in _ENGINES.items() if variables.get(rank) and variables.get(world)), "")
    rank, world_size, local_rank = 0, 1, 0
    if engine:
        rank, world_size = (_number(variables, name, missing, problems) for name, missing in zip(_ENGINES[engine][:2], (0, 1), strict=True))
        local_rank = _number(variables, _ENGINES[engine][2], rank, problems)
    address, port = variables.get("MASTER_ADDR", ""), _number(variables, "MASTER_PORT", 0, problems)
    store_file = variables.get("FSDP_EXEC_STORE_FILE", "")
    if engine == "srun":
        address = address or first_host(variables.get("SLURM_STEP_NODELIST", ""))
        step = _number(variables, "SLURM_JOB_ID", 0, problems) * _SLURM_STEPS_OF_JOB + _number(variables, "SLURM_STEP_ID", 0, problems)
        port = port or _SLURM_FIRST_PORT + step % _SLURM_PORTS
    if not problems and rank >= world_size:
        problems.append(f"RANK: Rank {rank} of {world_size} does not exist.")
    if world_size > 1 and not store_file and not (address and port):
        problems.append("MASTER_ADDR, MASTER_PORT: They name the ranks' meeting place, and are not set. mpirun: -x MASTER_ADDR -x MASTER_PORT.")
    if problems:
        raise NotStarted(*problems)
    return Place(rank, world_size, local_rank, address, port, store_file)


def join(place: Place, backend: str, timeout_seconds: float) -> None:
    """Makes the process group of all ranks. Sets the launcher's variables that frameworks read."""
    import torch.distributed as dist

    os.environ.update(RANK=str(place.rank), WORLD_SIZE=str(place.world_size), LOCAL_RANK=str(place.local_rank),
                      MASTER_ADDR=place.address or "127.0.0.1", MASTER_PORT=str(place.port or 29500))
    limit = datetime.timedelta(seconds=timeout_seconds)
    if place.store_file:
        store = dist.FileStore(place.store_file, place.world_size)
    elif place.world_size == 1 and not place.port:
        store = dist.HashStore()
    else:
        store = None
    if store is None:
        dist.init_process_group(backend, timeout=limit)
    else:
        dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.world_size, timeout=limit)
