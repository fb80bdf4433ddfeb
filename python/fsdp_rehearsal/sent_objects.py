"""Python objects that ranks send each other: `send_object_list`, and `recv_object_list` of what another rank would have sent.

A pipeline stage sends the next one the shapes of its tensors. So a rank that waits for an object first plays the sender: the
same command, as that rank, until it sends. That one may itself have to wait for the stage before. Sent objects are stored in a
folder, by sender, receiver and number, where all ranks of a rehearsal find them.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from types import ModuleType
from typing import Any, Optional

from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.settings import Settings
from fsdp_rehearsal.whole_files import write_whole

_FOLDER = "FSDP_REHEARSAL_SENT"  # the folder of sent objects
_UNTIL = "FSDP_REHEARSAL_UNTIL_SENT"  # "4 0": the process exists only to send the first object to rank 4
_PLAYED = "FSDP_REHEARSAL_PLAYED"  # ranks that wait for this one
_LINES = 12  # of a sender's last words


class NotSent(RuntimeError):
    """A rank waits for an object whose sender could not be played."""


class SentObjects:
    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings, self._say = settings, say
        self._sent: dict[int, int] = {}  # receiver -> objects
        self._received: dict[int, int] = {}  # sender -> objects
        beside = os.path.join(os.path.dirname(os.path.abspath(settings.record)), "sent") if settings.record else ""
        self._folder = os.environ.get(_FOLDER) or beside

    @guarded("Objects that ranks send")
    def install(self, c10d: ModuleType) -> None:
        """Called after torch.distributed is imported."""
        import torch.distributed as dist

        def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False):
            self._send(dist.get_rank(), _global_rank(dist, group, dst, group_dst), list(object_list))

        def recv_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False):
            sender = _global_rank(dist, group, src, group_src)
            object_list[:] = self._receive(sender, dist.get_rank(), dist.get_world_size())
            return sender

        for function in (send_object_list, recv_object_list):
            for module in (c10d, dist):
                if hasattr(module, function.__name__):
                    setattr(module, function.__name__, function)

    def _path(self, sender: int, receiver: int, number: int) -> str:
        if not self._folder:
            self._folder = tempfile.mkdtemp(prefix="fsdp-rehearsal-")
        os.makedirs(self._folder, exist_ok=True)
        return os.path.join(self._folder, f"{sender}-{receiver}-{number}.pickle")

    def _send(self, rank: int, receiver: int, objects: list[Any]) -> None:
        number = self._sent.get(receiver, 0)
        self._sent[receiver] = number + 1
        path = self._path(rank, receiver, number)
        write_whole(path, pickle.dumps(objects))
        if os.environ.get(_UNTIL) == f"{receiver} {number}":
            os.kill(os.getpid(), 9)  # its work is done, and it writes no record

    def _receive(self, sender: int, rank: int, world_size: int) -> list[Any]:
        number = self._received.get(sender, 0)
        self._received[sender] = number + 1
        path = self._path(sender, rank, number)
        if not os.path.exists(path):
            self._play(sender, rank, number, world_size)
        if not os.path.exists(path):
            raise NotSent(f"Rank {rank} waits for data of rank {sender}, which did not send it when it was played")
        with open(path, "rb") as text:
            return pickle.load(text)

    def _play(self, sender: int, rank: int, number: int, world_size: int) -> None:
        """Runs this program as the sender, until it has sent."""
        played = os.environ.get(_PLAYED, "").split()
        if str(sender) in played:
            raise NotSent(f"Ranks {rank} and {sender} wait for each other's objects")
        self._say(f"playing rank {sender}, which sends to rank {rank}")
        local = int(os.environ.get("LOCAL_WORLD_SIZE") or world_size)
        environment = environment_of(os.environ, sender, local)
        environment |= {_FOLDER: self._folder, _UNTIL: f"{rank} {number}", _PLAYED: " ".join([*played, str(rank)])}
        done = subprocess.run(
            [sys.executable, *sys.orig_argv[1:]],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode != -9:
            last = done.stdout.decode(errors="replace").splitlines()[-_LINES:]
            print(f"rehearse: rank {sender}, played for what it sends to rank {rank}, said:", *last, sep="\n", file=sys.stderr)


def environment_of(own: Any, rank: int, local_world_size: int) -> dict[str, str]:
    """The environment of this process, if it were another rank that writes no record."""
    environment = dict(own)
    node, local = divmod(rank, local_world_size)
    numbers = {"RANK": rank, "ROLE_RANK": rank, "LOCAL_RANK": local, "GROUP_RANK": node, "NODE_RANK": node}
    environment.update({name: str(value) for name, value in numbers.items() if name in own or name == "RANK"})
    environment["FSDP_REHEARSAL_RANK"] = str(rank)
    for name in ("RECORD", "PROGRESS", "SNAPSHOT", "TRACE"):
        environment[f"FSDP_REHEARSAL_{name}"] = ""
    return environment


def _global_rank(dist: Any, group: Optional[Any], rank: Optional[int], group_rank: Optional[int]) -> int:
    if rank is None:
        rank = group_rank if group is None else dist.get_global_rank(group, group_rank)
    return int(rank)
