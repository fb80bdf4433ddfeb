"""ZeRO-Infinity: DeepSpeed's configuration of offload to an NVMe drive, and a replacement of its queue of reads and writes for
rehearsals.

The queue (async_io) is compiled from sources that need libaio, which takes a minute. DeepSpeed's Python uses a handle that
reads and writes files and makes page-locked tensors. Values have no meaning in a rehearsal, so the handle here stores only the
size of each file, and refuses what the real one refuses: a read beyond the end of a file. Its tensors are as large as the real
one's, but not locked: a test machine may limit locked memory.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from fsdp_plan_runner.plan import Nvme


def optimizer_configuration(nvme: Nvme, path: str) -> dict[str, Any]:
    """Keys of "offload_optimizer" besides its device."""
    return {"nvme_path": path, "buffer_count": nvme.buffer_count, "pipeline_read": nvme.pipeline_read,
            "pipeline_write": nvme.pipeline_write}


def parameter_configuration(nvme: Nvme, path: str) -> dict[str, Any]:
    """Keys of "offload_param" besides its device."""
    return {"nvme_path": path, "buffer_count": nvme.param_buffer_count, "buffer_size": nvme.param_buffer_size,
            "max_in_cpu": nvme.max_in_cpu}


def queue_configuration(nvme: Nvme) -> dict[str, Any]:
    """Section "aio"."""
    return {"block_size": nvme.block_size, "intra_op_parallelism": nvme.intra_op_parallelism}


def folder_of(nvme: Nvme) -> str:
    """The folder of the files. DeepSpeed empties its own folder in it, so a rehearsal never uses the user's."""
    if "FSDP_REHEARSAL" not in os.environ:
        return nvme.path
    return os.path.join(tempfile.gettempdir(), "fsdp-plan-nvme")


@dataclasses.dataclass
class Traffic:
    """Bytes since the process began."""

    read: int = 0
    written: int = 0


class Files:
    """The files of the drive: their sizes by path."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.traffic = Traffic()
        self.locked: dict[int, int] = {}  # Page-locked tensors: start address -> bytes.


FILES = Files()


class SizesAlone:
    """Replaces `aio_handle` in a rehearsal."""

    def __init__(self, block_size: int = 1 << 20, queue_depth: int = 128, single_submit: bool = False,
                 overlap_events: bool = False, intra_op_parallelism: int = 1) -> None:
        self._parts = intra_op_parallelism
        self._pending = 0

    def _check(self, buffer: torch.Tensor) -> None:
        if buffer.nbytes % self._parts:
            raise RuntimeError(f"{buffer.nbytes} bytes are not divisible by intra_op_parallelism, {self._parts}.")

    def async_pread(self, buffer: torch.Tensor, filename: str, file_offset: int = 0) -> int:
        self._check(buffer)
        if file_offset + buffer.nbytes > FILES.sizes.get(filename, 0):
            raise RuntimeError(f"{filename} has {FILES.sizes.get(filename, 0)} bytes, and {file_offset + buffer.nbytes} are read.")
        FILES.traffic.read += buffer.nbytes
        self._pending += 1
        return 0

    def async_pwrite(self, buffer: torch.Tensor, filename: str, file_offset: int = 0) -> int:
        self._check(buffer)
        FILES.sizes[filename] = max(FILES.sizes.get(filename, 0), file_offset + buffer.nbytes)
        FILES.traffic.written += buffer.nbytes
        self._pending += 1
        return 0

    def wait(self) -> int:
        if not self._pending:
            raise RuntimeError("Nothing is waited for.")
        done, self._pending = self._pending, 0
        return done

    def new_cpu_locked_tensor(self, num_elem: int, example: torch.Tensor) -> torch.Tensor:
        tensor = torch.empty(int(num_elem), dtype=example.dtype)
        FILES.locked[tensor.data_ptr()] = tensor.nbytes
        return tensor

    def free_cpu_locked_tensor(self, tensor: torch.Tensor) -> bool:
        return FILES.locked.pop(tensor.data_ptr(), None) is not None

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        begin = tensor.data_ptr()
        is_locked = any(first <= begin and begin + tensor.nbytes <= first + size for first, size in FILES.locked.items())
        return tensor.device.type == "cpu" and (is_locked or tensor.is_pinned())


class _Builder:
    """Replaces `AsyncIOBuilder`."""

    aio_handle = SizesAlone

    def load(self, verbose: bool = False) -> _Builder:
        return self


def replace_queue() -> None:
    """Makes DeepSpeed use `SizesAlone` in a rehearsal. REQUIRES: DeepSpeed is loaded."""
    if "FSDP_REHEARSAL" not in os.environ:
        return
    from deepspeed.runtime.swap_tensor import partitioned_optimizer_swapper, partitioned_param_swapper, pipelined_optimizer_swapper

    for module in (partitioned_param_swapper, partitioned_optimizer_swapper, pipelined_optimizer_swapper):
        module.AsyncIOBuilder = _Builder
