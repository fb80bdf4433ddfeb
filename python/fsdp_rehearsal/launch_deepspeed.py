"""DeepSpeed's launcher: an outer program starts an inner one on each node, directly or through pdsh, which starts the ranks.

Here the outer one becomes the rank at once: its arguments for the inner program are sufficient. The user may also call the
inner one directly. It runs as a module (`python -m`), so it cannot be changed after an import.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from fsdp_rehearsal.after_import import after_import
from fsdp_rehearsal.guard import guarded

_INNER = "deepspeed.launcher.launch"
# Options of the inner program that take a value, which may be a separate word.
_WITH_VALUE = {
    "--world_info", "--node_rank", "--master_addr", "--master_port", "--save_pid", "--enable_each_rank_log", "--log_level",
    "--bind_core_list",
}  # fmt: skip


class DeepSpeedLauncher:
    """`begin(world_size, local_world_size)` sets the environment of the rank, and returns its number in its node."""

    def __init__(self, begin: Callable[[int, int], int], become: Callable[[Sequence[str]], NoReturn]) -> None:
        self._begin, self._become = begin, become

    def install(self) -> None:
        arguments = sys.orig_argv
        for i in range(len(arguments) - 1):
            if arguments[i] == "-m":
                if arguments[i + 1] == _INNER:
                    self._become_rank(arguments[i + 2 :])
                break
        after_import("deepspeed.launcher.runner", self._outer)

    @guarded("DeepSpeed's launcher")
    def _outer(self, runner: ModuleType) -> None:
        runner.subprocess = _Subprocess(runner.subprocess, self._become_rank)
        runner.PDSHRunner.backend_exists = lambda self: True

    def _become_rank(self, arguments: Sequence[str]) -> NoReturn:
        """`arguments`: those of the inner program."""
        options, script = _split(arguments)
        nodes = json.loads(base64.urlsafe_b64decode(options["--world_info"]).decode())
        slots = [len(slots) if isinstance(slots, list) else int(slots) for slots in nodes.values()]
        local_rank = self._begin(sum(slots), slots[0])
        command = [] if "--no_python" in options else [sys.executable, "-u"]
        if "--module" in options:
            command.append("-m")
        command.append(script[0])
        if "--no_local_rank" not in options:
            command.append(f"--local_rank={local_rank}")
        self._become([*command, *script[1:]])


def _split(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options of the inner program, and the script with its own."""
    options: dict[str, str] = {}
    i = 0
    while i < len(arguments) and arguments[i].startswith("-"):
        name, _, value = arguments[i].partition("=")
        if name in _WITH_VALUE and not value:
            i += 1
            value = arguments[i]
        options[name] = value
        i += 1
    return options, list(arguments[i:])


class _Subprocess:
    """The module subprocess for the outer program: other nodes answer, and the inner program is the rank."""

    def __init__(self, real: ModuleType, become_rank: Callable[[Sequence[str]], NoReturn]) -> None:
        self._real, self._become_rank = real, become_rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def Popen(self, command: Sequence[Any], *args: Any, env: Any = None, **kwargs: Any) -> Any:
        if isinstance(command, (list, tuple)) and _INNER in command:
            if env is not None:
                os.environ.clear()
                os.environ.update(env)
            self._become_rank([str(part) for part in command[command.index(_INNER) + 1 :]])
        return self._real.Popen(command, *args, env=env, **kwargs)

    def check_call(self, command: Sequence[str], *args: Any, **kwargs: Any) -> int:
        """Checks whether a node can be reached: always true."""
        return 0 if command and command[0] == "ssh" else self._real.check_call(command, *args, **kwargs)

    def check_output(self, command: Sequence[str], *args: Any, **kwargs: Any) -> bytes:
        """The address of the first node."""
        return b"127.0.0.1" if command and command[0] == "ssh" else self._real.check_output(command, *args, **kwargs)
