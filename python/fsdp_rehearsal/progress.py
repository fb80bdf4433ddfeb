"""The progress of this process: one short text, and its stack.

Code that knows where a step begins reports it. The command finds out what takes time within a step: it requests the stack of
the main thread by a signal. A process without a handler ignores it.

* Python calls the handler, between two bytecodes. A handler of the operating system (`faulthandler.register`) may run in the
  middle of one: CPython 3.11 frees the frame of a generator before it unlinks it, so walking the frames would read freed
  memory. Within a long call of C no stack is written, and the previous text remains.
* The handler consists only of C functions. No Python frame is evaluated, so torch.compile has nothing to compile, no object
  lives longer, and no garbage is collected earlier.
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import os
import signal
from collections.abc import Callable

from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.whole_files import write_whole


class Progress:
    """Overwrites a file whenever the text changes. Without a file, does nothing."""

    def __init__(self, path: str, steps: int) -> None:
        self._path, self._steps = path, steps
        self._process = os.getpid()
        self._last = ""

    def step(self, number: int) -> None:
        """Step `number`, from 1, begins."""
        if self._steps == 0 or number <= self._steps:
            self.say(f"step {number} of {self._steps}" if self._steps else f"step {number}")

    @guarded("The file of the progress")
    def say(self, text: str) -> None:
        if not self._path or text == self._last or os.getpid() != self._process:
            return
        self._last = text
        write_whole(self._path, (text + "\n").encode())

    @guarded("The stack of the script")
    def tell_stack(self) -> None:
        """From now on SIGURG, which is ignored by default, adds the stack of the main thread to a file next to the other
        one."""
        if self._path:
            stack = open(f"{self._path}.stack", "ab", buffering=0)  # noqa: SIM115 - the handler keeps it
            dump = functools.partial(faulthandler.dump_traceback, stack, all_threads=False)
            signal.signal(signal.SIGURG, functools.partial(_call_without_arguments(), dump))
            signal.siginterrupt(signal.SIGURG, False)


def _call_without_arguments() -> Callable[..., object]:
    """(function, signal, frame) -> function(), without a Python frame: a C function ignores excess arguments."""
    takes = ctypes.PYFUNCTYPE(ctypes.py_object, *[ctypes.py_object] * 3)
    return takes(("PyObject_CallNoArgs", ctypes.pythonapi))
