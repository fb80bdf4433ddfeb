"""A checkpoint of fsdp-exec as storage of torch.distributed.checkpoint: dcp.load reads it without a conversion, each rank the
rows that it needs. Together, the ranks read every file once for its checksum before they load a tensor."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import LoadPlan, LoadPlanner, StorageReader
from torch.distributed.checkpoint.metadata import Metadata
from torch.futures import Future

from fsdp_checkpoint.parts import Part, dcp_metadata, files_of, parts_of
from fsdp_plan_runner.stored import NotReadable


class CheckpointReader(StorageReader):
    def __init__(self, step: str | os.PathLike[str]) -> None:
        self._step = pathlib.Path(step)
        self._parts: dict[tuple[str, torch.Size], Part] = {}
        self._refused: NotReadable | None = None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._step = pathlib.Path(checkpoint_id)
        self._parts, self._refused = {}, None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        # dcp.load ignores an exception and asks again for its rank's metadata. set_up_storage_reader then reports the reason.
        if self._refused and "rank" in kwargs:
            return Metadata({})
        try:
            parts = parts_of(self._step, verified=False)
        except NotReadable as error:
            self._refused = error
            raise
        self._parts = {(part.key, part.offsets): part for part in parts}
        return dcp_metadata(parts)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self._refused:
            raise self._refused
        if not self._parts:  # Only one rank reads the metadata, for all.
            self.read_metadata()
        ranks, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
        for file in files_of(self._step)[rank::ranks]:
            file.verify()

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            part = self._parts[item.storage_index.fqn, item.storage_index.offset]
            if item.storage_offsets:
                rows = part.rows(item.storage_offsets[0], item.lengths[0])
                for dimension in range(1, len(item.lengths)):
                    rows = rows.narrow(dimension, item.storage_offsets[dimension], item.lengths[dimension])
            else:
                rows = part.whole()
            target = planner.resolve_tensor(item).detach()
            target.copy_(rows)
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return (pathlib.Path(checkpoint_id) / "checkpoint.json").is_file()
