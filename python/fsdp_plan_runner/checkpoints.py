"""Checkpoints of a model that FSDP2 has sharded, with torch.distributed.checkpoint: its own, and those of fsdp-exec.

Nothing that a checkpoint names is run: PyTorch's own reader and planner would.
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
    """NotReadable: what is wrong with it."""
    model, states = get_state_dict(root, optimizer)
    state = {"model": model, "optim": states}
    own = CheckpointReader.validate_checkpoint_id(path)
    reader = CheckpointReader(path) if own else SafeReader(pathlib.Path(path))
    # Settings of the optimizer are this program's.
    try:
        dcp.load(state, storage_reader=reader, planner=SafePlanner(allow_partial_load=True))
    except CheckpointException as error:
        # Failures of one rank or several, as they stand in the ranks' order.
        for failure, _ in error.failures.values():
            if isinstance(failure, NotReadable):
                raise failure from None
        raise
    set_state_dict(root, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])


def save(root: torch.nn.Module, optimizer: torch.optim.Optimizer, path: str) -> None:
    model, states = get_state_dict(root, optimizer)
    dcp.save({"model": model, "optim": states}, checkpoint_id=path)
