"""Saves and loads sharded checkpoints with torch.distributed.checkpoint, of a model under FSDP2 and of one under FSDP1."""

import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard


def train(model):
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def save_and_load(state, folder):
    dcp.save({**state, "step": 7}, checkpoint_id=folder)
    loaded = {**state, "step": 0}
    dcp.load(loaded, checkpoint_id=folder)
    shards = [path.name for path in folder.glob("*.distcp")]
    size = sum(path.stat().st_size for path in folder.glob("*.distcp"))
    print(folder.name, "step", loaded["step"], "files", *sorted(shards), "elements", size // 4, flush=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    dist.init_process_group("cpu:gloo,cuda:nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

    sharded = nn.Sequential(*[nn.Linear(256, 256) for _ in range(2)]).cuda()
    for layer in sharded:
        fully_shard(layer)
    fully_shard(sharded)
    optimizer = train(sharded)
    model_state, optimizer_state = get_state_dict(sharded, optimizer)
    save_and_load({"model": model_state, "optimizer": optimizer_state}, folder / "fsdp2")
    set_state_dict(sharded, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)

    flat = FullyShardedDataParallel(nn.Linear(256, 256).cuda(), use_orig_params="orig" in sys.argv)
    optimizer = train(flat)
    FullyShardedDataParallel.set_state_dict_type(flat, StateDictType.SHARDED_STATE_DICT)
    state = {"model": flat.state_dict(), "optimizer": FullyShardedDataParallel.optim_state_dict(flat, optimizer)}
    save_and_load(state, folder / "fsdp1")
    print("done")


main()
