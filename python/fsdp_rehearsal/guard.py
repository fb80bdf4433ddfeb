"""A failed probe must not fail the user's program: it becomes a warning in the record, once for each place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Optional

warnings: list[dict[str, Any]] = []
_seen: set[tuple] = set()


def warn(kind: str, text: str, file: Optional[str] = None, line: Optional[int] = None) -> None:
    """Adds a warning to the record, unless it is there already."""
    key = (kind, text, file, line)
    if key not in _seen:
        _seen.add(key)
        warnings.append({"kind": kind, "text": text, "file": file, "line": line})


def failed(what: str, error: BaseException) -> None:
    """Records that the probe `what` raised `error`."""
    warn("probe", f"{what} could not be looked at: {type(error).__name__}: {str(error)[:300]}")


def guarded(what: str, otherwise: Any = None) -> Callable:
    """A decorator: an exception becomes a warning, and the call returns `otherwise`."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args, **kwargs):
            try:
                return function(*args, **kwargs)
            except Exception as error:
                failed(what, error)
                return otherwise

        return call

    return decorate
