"""Launchers start one process for each GPU. Here each becomes, by one exec, the only rehearsed process.

torchrun, torch.distributed.run and the launchers of accelerate all end in torch.distributed.launcher.api.launch_agent, with a
command or with a function (notebook_launcher, elastic_launch). DeepSpeed's is in launch_deepspeed.py.
torch.multiprocessing.spawn starts processes from a function; here its rank runs in this process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from fsdp_rehearsal.after_import import after_import
from fsdp_rehearsal.guard import guarded, warn
from fsdp_rehearsal.launch_deepspeed import DeepSpeedLauncher
from fsdp_rehearsal.rank_environment import environment_of_rank
from fsdp_rehearsal.settings import Settings


class Launchers:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def install(self) -> None:
        after_import("torch.distributed.launcher.api", self._torchrun)
        after_import("torch.multiprocessing.spawn", self._spawn)
        after_import("accelerate.commands.launch", self._accelerate)
        DeepSpeedLauncher(self._begin, become).install()

    def _ranks(self, world_size: int, local_world_size: int) -> tuple[int, int, int]:
        """Rank, number of ranks, and ranks of a node, from the command, or else from the launcher's arguments."""
        settings = self._settings
        if settings.world_size is not None:
            world_size = settings.world_size
            local_world_size = settings.local_world_size or min(local_world_size, world_size)
        if settings.rank >= world_size:
            print(
                f"rehearse: rank {settings.rank} was asked for, but the launcher starts {world_size} ranks, "
                "the first of them 0.",
                file=sys.stderr,
                flush=True,
            )
            os._exit(2)
        return settings.rank, world_size, local_world_size

    def _begin(self, world_size: int, local_world_size: int) -> int:
        """Sets the environment of the rank; returns its number in its node."""
        rank, world_size, local_world_size = self._ranks(world_size, local_world_size)
        environment_of_rank(rank, world_size, local_world_size)
        return rank % local_world_size

    @guarded("torchrun")
    def _torchrun(self, api: ModuleType) -> None:
        def launch_agent(config: Any, entrypoint: Any, args: Sequence[Any], **_: Any) -> Any:  # 2.13: a server of its health.
            local = config.nproc_per_node
            self._begin(local * config.max_nodes, local)
            _remove_folder_of_logs(config)
            if callable(entrypoint):
                return {self._settings.rank: entrypoint(*args)}
            become([entrypoint, *map(str, args)])

        api.launch_agent = launch_agent

    @guarded("torch.multiprocessing.spawn")
    def _spawn(self, spawn: ModuleType) -> None:
        class Done:
            """The result of spawn(join=False): the work is already done."""

            processes: list[Any] = []

            def join(self, *args: Any, **kwargs: Any) -> bool:
                return True

            def pids(self) -> list[int]:
                return [os.getpid()]

        def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
            index = self._settings.rank % nprocs
            warn("spawned", f"torch.multiprocessing would start {nprocs} processes; number {index} was played in place.")
            fn(index, *args)
            return None if join else Done()

        def spawn_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
            return start_processes(fn, args, nprocs, join, daemon, start_method)

        spawn.start_processes, spawn.spawn = start_processes, spawn_processes
        package = sys.modules.get("torch.multiprocessing")
        for name, function in (("start_processes", start_processes), ("spawn", spawn_processes)):
            if package is not None and callable(getattr(package, name, None)):
                setattr(package, name, function)

    @guarded("accelerate launch")
    def _accelerate(self, launch: ModuleType) -> None:
        """For one process accelerate starts a child; here the launcher becomes it."""
        launch.subprocess = _Executing(launch.subprocess, lambda command: True)


@guarded("torchrun's folder of logs")
def _remove_folder_of_logs(config: Any) -> None:
    """torchrun has made an empty one in the folder of temporary files, unless the user named one."""
    folder = str(config.logs_specs.root_log_dir)
    if os.path.basename(folder).startswith("torchelastic_") and os.path.isdir(folder) and not os.listdir(folder):
        os.rmdir(folder)


class _Executing:
    """The module subprocess, in which Popen of a command that is the rank turns this process into it."""

    def __init__(self, real: ModuleType, is_rank: Callable[[Sequence[Any]], bool]) -> None:
        self._real, self._is_rank = real, is_rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def Popen(self, command: Sequence[Any], *args: Any, env: Any = None, **kwargs: Any) -> Any:
        if isinstance(command, (list, tuple)) and self._is_rank(command):
            if env is not None:
                os.environ.clear()
                os.environ.update(env)
            become([str(part) for part in command])
        return self._real.Popen(command, *args, env=env, **kwargs)


def become(command: Sequence[str]) -> NoReturn:
    """Turns this process into `command`; a Python there finds the hook again, and the process number stays the same."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], list(command))
