"""A Slurm cluster with this machine as its only node, for the time of a test. Needs root and Debian's packages slurmctld,
slurmd, slurm-client and munge."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
LIMIT_SECONDS = 900

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={controller}
SlurmdPort={node}
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:8
"""


def why_not() -> str | None:
    """The reason why there can be no cluster here; None if there can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=SYSTEM_PATH) is None]
    if missing:
        return "there is no " + ", ".join(missing)
    return None if os.geteuid() == 0 else "only root can start Slurm's daemons"


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def end(folder: pathlib.Path) -> None:
    """Ends the daemons that have left their process numbers."""
    for name in ("slurmd", "slurmctld", "munged"):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((folder / f"{name}.pid").read_text(encoding="ascii")), 15)


def wait_until_idle(environment: dict[str, str]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        said = subprocess.run(["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True, text=True)
        if said.stdout.strip() == "idle":
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"the node is {said.stdout.strip() or said.stderr.strip()}")
        time.sleep(0.2)


@contextlib.contextmanager
def slurm_cluster() -> Iterator[dict[str, str]]:
    """Starts the cluster and returns the environment in which srun finds it."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for each in ("state", "spool"):
            (folder / each).mkdir()
        controller, node = free_ports(2)
        (folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], folder=folder, cores=os.cpu_count(), controller=controller, node=node),
            encoding="ascii")
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        environment = {**os.environ, "PATH": SYSTEM_PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        munged = ["munged", "--force", *(f"--{key}={folder}/{file}" for key, file in {
            "key-file": "munge.key", "socket": "munge.socket", "log-file": "munged.log", "pid-file": "munged.pid",
            "seed-file": "munge.seed"}.items())]
        try:
            for words in (munged, ["slurmctld"], ["slurmd"]):
                subprocess.run(words, env=environment, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, timeout=LIMIT_SECONDS)
            wait_until_idle(environment)
            yield environment
        finally:
            end(folder)
            time.sleep(0.5)
