"""The first code that runs in a Python process: preloads the stub GPU, then installs everything else.

A library can only be preloaded when a process starts, so a Python without the stub restarts itself, once, with the same
arguments. Then LD_PRELOAD gets the user's value back: a compiler or another program that the script starts does not change,
and a Python among its children runs this code, too.
"""

from __future__ import annotations

import ctypes
import os
import sys

from fsdp_rehearsal import compilers
from fsdp_rehearsal import settings as settings_of
from fsdp_rehearsal import stub
from fsdp_rehearsal.rank_environment import set_rank

_OWNER = "FSDP_REHEARSAL_OWNER"


def start() -> None:
    """Turns this process into a rehearsed one. Returns only in a process that has the stub."""
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
    """Whether the record is for this process: the first Python of the command, and any process that it becomes by exec."""
    owner = os.environ.setdefault(_OWNER, str(os.getpid()))
    return owner == str(os.getpid())
