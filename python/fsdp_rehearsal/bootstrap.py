"""The first thing that runs in a Python process: get the stub GPU in front, then install everything else.

A library can only be put before others when a process starts, so a Python without the stub starts itself again, once,
with the same arguments. Then LD_PRELOAD is what the user had: a compiler or another program that the script starts is left
alone, and a Python among its children comes here and does the same.
"""

from __future__ import annotations

import ctypes
import os
import sys

from fsdp_rehearsal import compilers
from fsdp_rehearsal import settings as settings_of
from fsdp_rehearsal import stub

_OWNER = "FSDP_REHEARSAL_OWNER"


def start() -> None:
    """Makes this process a rehearsed one. Returns only in a process that has the stub."""
    try:
        settings = settings_of.read()
    except settings_of.SettingsError as error:
        print(f"rehearse: {error}", file=sys.stderr, flush=True)
        os._exit(3)
    if os.environ.get("FSDP_OVERLAY") and not _is_protected():
        print(
            "rehearse: the library that keeps what this script writes away from the disk could not be loaded, so it was not "
            "started; --allow-writes rehearses it without.",
            file=sys.stderr,
            flush=True,
        )
        os._exit(3)
    if not stub.loaded():
        _start_again(settings)
    _remove_preload(settings.stub)
    from fsdp_rehearsal import install

    install.install(settings, _is_owner())


def _is_protected() -> bool:
    """Whether overlay/ is loaded and has its folder."""
    function = getattr(ctypes.CDLL(None), "fsdp_overlay_is_active", None)
    return function is not None and function() == 1


def _start_again(settings: settings_of.Settings) -> None:
    preloaded = [p for p in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":") if p]
    if settings.stub in preloaded:
        print(f"rehearse: the dynamic linker could not load {settings.stub}.", file=sys.stderr, flush=True)
        os._exit(3)
    if not sys.executable:
        raise RuntimeError("this Python does not know its own executable")
    set_rank(settings)
    compilers.prepare(os.environ, settings.stub)
    os.environ["LD_PRELOAD"] = ":".join([settings.stub] + preloaded)
    os.execve(sys.executable, [sys.executable] + sys.orig_argv[1:], os.environ)


def _remove_preload(path: str) -> None:
    others = [p for p in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":") if p and p != path]
    if others:
        os.environ["LD_PRELOAD"] = ":".join(others)
    else:
        os.environ.pop("LD_PRELOAD", None)


def _is_owner() -> bool:
    """Whether the record is about this process: the first Python of the command, and what it turns itself into by exec."""
    owner = os.environ.setdefault(_OWNER, str(os.getpid()))
    return owner == str(os.getpid())


def set_rank(settings: settings_of.Settings) -> None:
    """The variables that torchrun would have set, if the command said how many ranks there are and nobody set them yet."""
    if settings.world_size is None or "RANK" in os.environ:
        return
    environment_of_rank(settings.rank, settings.world_size, settings.local_world_size or settings.world_size)


def environment_of_rank(rank: int, world_size: int, local_world_size: int) -> None:
    """Sets what torchrun sets for rank `rank`, and the number of devices of the stub."""
    local = rank % local_world_size
    node = rank // local_world_size
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_RANK=str(local),
        LOCAL_WORLD_SIZE=str(local_world_size),
        GROUP_RANK=str(node),
        GROUP_WORLD_SIZE=str(max(1, world_size // local_world_size)),
        NODE_RANK=str(node),
        ROLE_RANK=str(rank),
        ROLE_WORLD_SIZE=str(world_size),
        ROLE_NAME="default",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=os.environ.get("MASTER_PORT", "29500"),
        TORCHELASTIC_RUN_ID="rehearsal",
        TORCHELASTIC_RESTART_COUNT="0",
        TORCHELASTIC_MAX_RESTARTS="0",
        STUB_GPU_COUNT=str(local_world_size),
    )
