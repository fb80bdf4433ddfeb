"""Makes DDP's memory repeatable by letting NCCL's watchdog catch up.

ProcessGroupNCCL has a list of the collectives in progress, and its watchdog thread drops finished ones when it polls: every
100 ms of the host's time. Until then their tensors stay alive. On the stub a step takes milliseconds, so a tensor might or
might not be freed before the next one is made, depending on the load of the host. Waiting until that list is empty, for which
PyTorch has a function, selects the case of a real job, whose steps are longer than a poll.

If the stub delays events (STUB_GPU_EVENTS), collectives finish only when the program itself waits for the device: then the
list does not become empty, and the wait ends by a timeout.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Optional

from fsdp_rehearsal.guard import guarded, warn

_SECONDS = 1.0  # ten polls

_TEXT = (
    "DDP: waited at the end of the initialization and after each backward and step until NCCL's watchdog had dropped what was "
    "done. A real job whose steps are shorter than the watchdog's 100 ms may hold more."
)


class Watchdog:
    def __init__(self, pause: Optional[float]) -> None:
        self._pause = pause
        self._needed = False
        self._waiting: Optional[threading.Thread] = None
        self.waits = 0

    def install(self, torch) -> None:
        """Waits only in programs that make a DistributedDataParallel."""
        ddp = torch.nn.parallel.DistributedDataParallel
        real = ddp.__init__

        def __init__(module, *args, **kwargs):
            self._needed = True
            real(module, *args, **kwargs)

        ddp.__init__ = __init__

    @guarded("NCCL's watchdog")
    def wait(self) -> None:
        """Returns when no collective is in progress."""
        if not self._needed:
            return
        if self._pause is not None:
            time.sleep(self._pause)
            return
        if self.waits == 0:
            warn("ddp_pause", _TEXT)
        self.waits += 1
        if self._waiting is None or not self._waiting.is_alive():
            self._waiting = threading.Thread(target=guarded("NCCL's watchdog")(_wait_for_all), daemon=True)
            self._waiting.start()
        self._waiting.join(_SECONDS)


def _wait_for_all() -> None:
    groups = sys.modules["torch.distributed.distributed_c10d"]._world.pg_map
    for group, (backends, _) in list(groups.items()):
        if "nccl" in str(backends):
            group._wait_for_pending_works()
