"""Compilers that a script starts at run time. Triton looks for the driver by itself, and caches compiled code."""

from __future__ import annotations

import os
from collections.abc import MutableMapping


def prepare(environ: MutableMapping[str, str], stub: str) -> None:
    """Makes Triton link against the stub, and keeps code that is compiled or tuned for a stub out of the user's own caches:
    times measured here must not choose a kernel for a real GPU."""
    environ.setdefault("TRITON_LIBCUDA_PATH", _folder_with_driver(stub))
    cache = os.path.join(environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "fsdp-plan")
    environ.setdefault("TRITON_CACHE_DIR", os.path.join(cache, "triton"))
    environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(cache, "inductor"))


def _folder_with_driver(stub: str) -> str:
    """The stub is the driver, too; next to it lies a link with the driver's name."""
    return os.path.join(os.path.dirname(stub), "driver")
