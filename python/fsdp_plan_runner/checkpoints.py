"""Checkpoints of a model that FSDP2 has sharded, with torch.distributed.checkpoint: its own, and those of fsdp-exec."""

from __future__ import annotations

import os

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from fsdp_checkpoint import CheckpointReader


def load(root: torch.nn.Module, optimizer: torch.optim.Optimizer, path: str) -> None:
    model, states = get_state_dict(root, optimizer)
    state = {"model": model, "optim": states}
    own = CheckpointReader.validate_checkpoint_id(path)
    reader = CheckpointReader(path) if own else dcp.FileSystemReader(os.fspath(path))
    # Settings of the optimizer are this program's.
    dcp.load(state, storage_reader=reader, planner=DefaultLoadPlanner(allow_partial_load=True))
    set_state_dict(root, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])


def save(root: torch.nn.Module, optimizer: torch.optim.Optimizer, path: str) -> None:
    model, states = get_state_dict(root, optimizer)
    dcp.save({"model": model, "optim": states}, checkpoint_id=path)
