"""Records how the program ended: an exception, out of memory, an exit; and where it is when it hangs.

If a program catches an exception and then exits, we record the exception that it is handling. SIGUSR1 prints the stacks of all
threads to stderr, for the supervisor of a program that hangs; a crash in native code does the same.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, Optional

from fsdp_rehearsal import frames
from fsdp_rehearsal.guard import guarded

_OUT_OF_MEMORY = ("OutOfMemoryError",)
_MOST_CAUSES = 20  # in the chain of an exception


class Faults:
    """Records the end of the program, and calls `finish` once, just before the process ends."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self.exception: Optional[dict[str, Any]] = None
        self.exit_status: Optional[int] = None
        self.out_of_memory_at_call = -1  # optimizer calls before the last out-of-memory error
        self._finish = finish

    def install(self) -> None:
        faulthandler.enable(file=sys.__stderr__, all_threads=True)
        faulthandler.register(signal.SIGUSR1, file=sys.__stderr__, all_threads=True, chain=False)
        self._process = os.getpid()
        atexit.register(self._at_exit)  # registered first, so it runs last
        self._watch_exits()

    def end(self, why: str) -> dict[str, Any]:
        """The record's end."""
        return {"why": why, "exception": self.exception, "exit_status": self.exit_status}

    def _at_exit(self) -> None:
        """Python stores an uncaught exception in sys.last_value, whatever the excepthook is."""
        error = getattr(sys, "last_value", None)
        if self.exception is None and error is not None:
            self.note(error)
        if os.getpid() == self._process:
            self._finish()

    def _watch_exits(self) -> None:
        leave, exit_now = sys.exit, os._exit

        def sys_exit(status: Any = None, /):
            self.exit_status = 0 if status is None else status if isinstance(status, int) else 1
            error = sys.exc_info()[1]
            if self.exit_status != 0 and error is not None:
                self.note(error)
            leave(status)

        def os_exit(status):
            if os.getpid() == self._process and self.exit_status is None:
                self.exit_status = status
                self._finish()
            exit_now(status)

        sys.exit, os._exit = sys_exit, os_exit

    @guarded("The exception")
    def note(self, error: BaseException) -> None:
        """Stores an exception and the chain of its causes."""
        if isinstance(error, SystemExit):
            return
        chain: list[BaseException] = []
        at: Optional[BaseException] = error
        while at is not None and at not in chain:
            chain.append(at)
            at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
        shown = _missing_module(error) or error
        self.exception = {
            "type": _name(type(shown)),
            "message": str(shown),
            "types": [_name(type(e)) for e in chain],
            "traceback": _traceback_of(error),
            "out_of_memory": any(_is_out_of_memory(e) for e in chain),
        }


def _missing_module(error: BaseException) -> Optional[BaseException]:
    """The error from which a lazily importing library raised its own."""
    at, seen = error.__cause__, 0
    while at is not None and not isinstance(at, ModuleNotFoundError) and seen < _MOST_CAUSES:
        at, seen = at.__cause__, seen + 1
    return at if isinstance(at, ModuleNotFoundError) else None


def _traceback_of(error: BaseException) -> str:
    """As Python prints it, without our own frames: the failure is not in our replacements."""
    whole = traceback.TracebackException.from_exception(error)
    waiting = [whole]
    while waiting:
        one = waiting.pop()
        one.stack[:] = [f for f in one.stack if not frames.is_ours(f.filename)]
        waiting += [e for e in (one.__cause__, one.__context__) if e is not None]
    return "".join(whole.format())


def _is_out_of_memory(error: BaseException) -> bool:
    names = {k.__name__ for k in type(error).__mro__}
    return not names.isdisjoint(_OUT_OF_MEMORY) or "CUDA out of memory" in str(error)


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
