"""Ends the processes that the program has started, if it is stopped before its end.

Data-loading workers would notice only later that nobody reads their output. They are asked to end, so that they remove their
temporary folders; those that still run after a moment are terminated.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable

from fsdp_rehearsal.guard import guarded

_SECONDS = 3.0  # for each way of ending


@guarded("The child processes")
def end() -> None:
    """Ends the children of multiprocessing, and makes it release its semaphores and folders."""
    multiprocessing = sys.modules.get("multiprocessing")
    if "multiprocessing.util" not in sys.modules or multiprocessing is None:
        return
    if multiprocessing.active_children():
        _within_a_moment(_end_data_loaders)
    for child in multiprocessing.active_children():
        child.terminate()
    _within_a_moment(sys.modules["multiprocessing.util"]._run_finalizers)


def _end_data_loaders() -> None:
    loader = sys.modules.get("torch.utils.data.dataloader")
    kind = getattr(loader, "_MultiProcessingDataLoaderIter", None)
    for thing in gc.get_objects() if kind is not None else []:
        if type(thing) is kind:
            thing._shutdown_workers()


def _within_a_moment(action: Callable[[], None]) -> None:
    thread = threading.Thread(target=guarded("The child processes")(action), daemon=True)
    thread.start()
    thread.join(_SECONDS)
