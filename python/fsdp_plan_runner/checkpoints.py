"""Checkpoints of a model that FSDP2 has sharded, with torch.distributed.checkpoint: its own format, and that of fsdp-exec.

Runs no code from a checkpoint, unlike PyTorch's own reader and planner.
"""

from __future__ import annotations

import pathlib

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from fsdp_checkpoint import CheckpointReader
from fsdp_checkpoint.dcp_files import SafePlanner, SafeReader
from fsdp_plan_runner.stored import NotReadable


def load(root: torch.nn.Module, optimizer: torch.optim.Optimizer, path: str) -> None:
    """Raises NotReadable with the faults of the checkpoint."""
    model, states = get_state_dict(root, optimizer)
    state = {"model": model, "optim": states}
    own = CheckpointReader.validate_checkpoint_id(path)
    reader = CheckpointReader(path) if own else SafeReader(pathlib.Path(path))
    # This program decides the settings of the optimizer.
    try:
        dcp.load(state, storage_reader=reader, planner=SafePlanner(allow_partial_load=True))
    except CheckpointException as error:
        # Failures of one or more ranks, in the order of the ranks.
        for failure, _ in error.failures.values():
            if isinstance(failure, NotReadable):
                raise failure from None
        raise
    set_state_dict(root, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])


def save(root: torch.nn.Module, optimizer: torch.optim.Optimizer, path: str) -> None:
    model, states = get_state_dict(root, optimizer)
    dcp.save({"model": model, "optim": states}, checkpoint_id=path)
