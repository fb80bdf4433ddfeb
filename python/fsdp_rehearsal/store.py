"""A rendezvous that the other ranks have always reached already.

Waiting succeeds, an unset value reads as 128 bytes of 1 (the size of an NCCL unique id), and a counter that is incremented
counts as incremented by every rank.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from types import ModuleType
from typing import Any

_kept: list[Any] = []  # the C++ side of PyTorch does not keep a Python store alive


def _lonely_store(dist: ModuleType) -> type:
    """The class, made here because it derives from one of PyTorch."""

    class LonelyStore(dist.Store):
        def __init__(self, world_size: int) -> None:
            super().__init__()
            self.values: dict[str, bytes] = {}
            self.world_size = world_size
            self.limit = timedelta(minutes=30)
            _kept.append(self)

        def set(self, key, value):
            self.values[key] = _bytes(value)

        def get(self, key):
            return self.values.get(key, b"\x01" * 128)

        def wait(self, keys, timeout=None):
            pass

        def add(self, key, amount):
            number = int(self.values.get(key, b"0")) + amount
            if amount == 1:
                number = max(number, self.world_size)
            self.values[key] = str(number).encode()
            return number

        def check(self, keys):
            return all(key in self.values for key in keys)

        def compare_set(self, key, expected, desired):
            now = self.values.get(key)
            if now is None or now == _bytes(expected):
                self.set(key, desired)
            return self.values[key]

        def delete_key(self, key):
            return self.values.pop(key, None) is not None

        def num_keys(self):
            return len(self.values)

        def multi_get(self, keys):
            return [self.get(key) for key in keys]

        def multi_set(self, keys, values):
            for key, value in zip(keys, values):
                self.set(key, value)

        def append(self, key, value):
            self.values[key] = self.values.get(key, b"") + _bytes(value)

        def has_extended_api(self):
            return True

        def clone(self):
            return self

        def set_timeout(self, timeout):
            self.limit = timeout

        @property
        def timeout(self):
            return self.limit

    return LonelyStore


def install(dist: ModuleType) -> None:
    """Replaces the stores that connect to other processes; called after torch.distributed is imported."""
    if not dist.is_available():
        return
    import torch.distributed.rendezvous  # noqa: F401  The name `rendezvous` in the package is a function.

    rendezvous = sys.modules["torch.distributed.rendezvous"]

    LonelyStore = _lonely_store(dist)

    def meeting_point(hostname, port, rank, world_size, *args, **kwargs):
        return LonelyStore(world_size)

    class FileStore(LonelyStore):
        """dist.FileStore(path, world_size)"""

        def __init__(self, file_name="", world_size=-1):
            super().__init__(world_size)

    class TCPStore(LonelyStore):
        """dist.TCPStore(host, port, world_size, ...)"""

        def __init__(self, host_name="", port=0, world_size=None, *args, **kwargs):
            super().__init__(world_size or 1)
            self.host, self.port = host_name, port

    rendezvous._create_c10d_store = meeting_point
    for module in (rendezvous, dist, dist.distributed_c10d):
        for name, stand_in in (("FileStore", FileStore), ("TCPStore", TCPStore)):
            if hasattr(module, name):
                setattr(module, name, stand_in)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
