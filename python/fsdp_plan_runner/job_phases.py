"""The phases of a job beside its steps, after the last one: an evaluation, the gathering of all weights on rank 0, the copy of
each rank's part to the host, and loading. Each with the peaks of PyTorch's allocator and the bytes that it leaves on the host.

Loading is that of `set_model_state_dict(broadcast_from_rank0=True)` and `set_optimizer_state_dict`: rank 0 has all values.
"""

from __future__ import annotations

import gc
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor

from fsdp_plan_runner.micro_batch import Batch, run_forward
from fsdp_plan_runner.modules import PlannedModule

if TYPE_CHECKING:
    from fsdp_plan_runner.other_models import OtherModel


class JobPhases:
    """Runs phases by name, in the order of a job, and remembers the peaks of each."""

    def __init__(self, root: PlannedModule, optimizer: torch.optim.Optimizer, make_batch: Callable[[], Batch],
                 others: Sequence[OtherModel] = ()) -> None:
        self._root, self._optimizer, self._make_batch, self._others = root, optimizer, make_batch, others
        self._called = root.wrapper[0] if root.wrapper else root
        self._weights: dict[str, Any] = {}  # Those of rank 0, for loading.
        self._states: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []

    def run(self, names: list[str]) -> None:
        for name in names:
            gc.collect()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            kept = getattr(self, f"_{name}")()
            stats = torch.cuda.memory_stats()
            self.rows.append({"phase": name, "host": host_bytes(kept),
                              **{kind: stats[f"{kind}_bytes.all.peak"] for kind in ("requested", "allocated", "reserved")}})

    def write(self, path: str) -> None:
        pathlib.Path(path).write_text(json.dumps(self.rows), encoding="utf-8")

    def _evaluate(self) -> None:
        """As a Trainer: the batch of the last step still exists."""
        self._called.eval()
        self._root.context.training = False
        with torch.no_grad():
            batch = self._make_batch()
            batch.load()
            beside = [other.log_probabilities(batch) for other in self._others if other.is_before]
            result = run_forward(self._root, batch.values)
            beside += [other.log_probabilities(batch) for other in self._others if not other.is_before]
        del result, batch, beside
        self._root.context.training = True
        self._called.train()

    def _gather_weights(self) -> dict[str, Any]:
        self._weights = get_model_state_dict(self._called, options=_whole())
        return self._weights

    def _make_states(self) -> None:
        """For an optimizer that has none: a step with zeros as gradients."""
        get_optimizer_state_dict(self._called, self._optimizer)

    def _gather_states(self) -> dict[str, Any]:
        self._states = get_optimizer_state_dict(self._called, self._optimizer, options=_whole())
        return self._states

    def _copy_parts(self) -> list[Any]:
        """What an asynchronous save of torch.distributed.checkpoint stages."""
        return [get_model_state_dict(self._called, options=StateDictOptions(cpu_offload=True)),
                get_optimizer_state_dict(self._called, self._optimizer, options=StateDictOptions(cpu_offload=True))]

    def _load_weights(self) -> dict[str, Any]:
        set_model_state_dict(self._called, self._weights, options=_from_rank_0())
        return self._weights

    def _load_states(self) -> dict[str, Any]:
        """Into an optimizer that has none yet."""
        self._optimizer.state.clear()
        set_optimizer_state_dict(self._called, self._optimizer, self._states, options=_from_rank_0())
        return self._states


def _whole() -> StateDictOptions:
    return StateDictOptions(full_state_dict=True, cpu_offload=True)


def _from_rank_0() -> StateDictOptions:
    return StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


def host_bytes(kept: Any) -> int:
    """The bytes of all tensors on the host, each storage once."""
    storages: dict[int, int] = {}

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for each in value.values():
                add(each)
        elif isinstance(value, (list, tuple)):
            for each in value:
                add(each)
        elif isinstance(value, torch.Tensor):
            tensor = value.to_local() if isinstance(value, DTensor) else value
            if tensor.device.type == "cpu":
                storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()

    add(kept)
    return sum(storages.values())
