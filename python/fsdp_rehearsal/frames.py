"""Finds the user's own line in a Python stack, to name the purpose of an allocation."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from itertools import chain
from typing import Any, Optional

_OURS = [os.path.dirname(os.path.abspath(__file__)) + os.sep]  # folders
_STANDARD = tuple(
    os.path.realpath(p) + os.sep for p in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")} if p
)
_kinds: dict[str, int] = {}

USER, LIBRARY, FRAMEWORK, HIDDEN = range(4)


def kind_of(file: str) -> int:
    """USER code; a LIBRARY in site-packages; the FRAMEWORK (torch); or HIDDEN: the standard library, ours, no file at all."""
    known = _kinds.get(file)
    if known is None:
        known = _kinds[file] = _classify(file)
    return known


def _classify(file: str) -> int:
    if file.startswith("<") or file.startswith(tuple(_OURS)) or not file:
        return HIDDEN
    if _is_generated(file) or "/torch/" in file and ("/site-packages/" in file or "/dist-packages/" in file):
        return FRAMEWORK
    if "/site-packages/" in file or "/dist-packages/" in file:
        return LIBRARY
    if os.path.realpath(file).startswith(_STANDARD):
        return HIDDEN
    return USER


def _is_generated(file: str) -> bool:
    """Whether torch.compile wrote the file."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
    return bool(cache) and os.path.abspath(file).startswith(os.path.join(os.path.abspath(cache), ""))


def hide(file: str) -> None:
    """Treats the package of a file as ours, too."""
    _OURS.append(os.path.dirname(os.path.abspath(file)) + os.sep)


def is_ours(file: str) -> bool:
    """Whether the file is one of this package."""
    return file.startswith(tuple(_OURS))


def without_plumbing(frames: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A stack without uninformative frames: ours, the standard library, and those between a module and its forward."""
    return [f for f in frames if kind_of(f["file"]) != HIDDEN and not f["file"].endswith("/torch/nn/modules/module.py")]


def hide_ours(snapshot: dict[str, Any]) -> None:
    """Removes our own frames from the stacks of an allocator snapshot, in place, so that a viewer shows only the script."""
    done: dict[int, list[dict[str, Any]]] = {}
    blocks = (block for segment in snapshot.get("segments", []) for block in segment["blocks"])
    for entry in chain(chain.from_iterable(snapshot.get("device_traces", [])), snapshot.get("segments", []), blocks):
        stack = entry.get("frames")
        if stack:
            # Entries share their stacks, which live as long as the snapshot does.
            if id(stack) not in done:
                done[id(stack)] = stack
                stack[:] = [f for f in stack if not f["filename"].startswith(tuple(_OURS))]


def named(frames: Iterable[dict[str, Any]]) -> Optional[dict[str, Any]]:
    """The frame to name an allocation by; the stack has the innermost frame first: the user's innermost, else a library's,
    else the framework's."""
    best, rank = None, HIDDEN
    for frame in frames:
        kind = kind_of(frame["file"])
        if kind < rank:
            best, rank = frame, kind
            if kind == USER:
                break
    return best


def user_frame(depth: int = 1) -> Optional[dict[str, Any]]:
    """The frame to name the running Python code by."""
    frame: Any = sys._getframe(depth)
    frames = []
    while frame is not None:
        frames.append({"file": frame.f_code.co_filename, "line": frame.f_lineno, "function": frame.f_code.co_name})
        frame = frame.f_back
    return named(frames)


def short(file: str) -> str:
    """A file's path as an error message would show it: below site-packages, or relative to the script's working folder."""
    if _is_generated(file):
        return "inductor/" + os.path.basename(file)
    for marker in ("/site-packages/", "/dist-packages/"):
        if marker in file:
            return file.split(marker, 1)[1]
    try:
        below = os.path.relpath(file)
    except (OSError, ValueError):
        return file
    return file if below.startswith("..") else below
