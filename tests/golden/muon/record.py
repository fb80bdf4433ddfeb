"""Records what torch.optim.Muon allocates, frees and sends for one matrix of a mesh, for tests/simulator/newton_schulz_test.cpp.

    fsdp-plan rehearse --allow-writes --gpu "H100 SXM" --gpus 4 -- \
        python -m torch.distributed.run --nproc-per-node 4 record.py FILE MESH DTYPE ROWSxCOLUMNS...

adds to FILE, for each matrix of that many rows and columns, a line of what it is

    rows columns bytes-of-an-element dimensions outer inner per-node

and one of its events: "a16777216" is an allocation, "f0" the free of the first one. After them are its collectives: "r512", "g512",
"s512" and "t512" are an all-reduce, all-gather, reduce-scatter and all-to-all that gives the rank that many bytes.
MESH is 4 or 2x2, or none for a matrix that nobody shards. Written with PyTorch 2.11.0.
"""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

LETTERS = {"all_reduce": "r", "all_gather_into_tensor": "g", "reduce_scatter_tensor": "s", "shard_dim_alltoall": "t"}


class Sent(TorchDispatchMode):
    """What is sent, in order."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(t is not torch.Tensor for t in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        letter = LETTERS.get(func.overloadpacket.__name__)
        if letter:
            self.found.append(f"{letter}{result.numel() * result.element_size()}")
        return result


def events_of(device, first):
    numbers, events = {}, []
    for entry in torch.cuda.memory._snapshot()["device_traces"][device][first:]:
        if entry["action"] == "alloc":
            numbers[entry["addr"]] = sum(e[0] == "a" for e in events)
            events.append(f"a{entry['size']}")
        elif entry["action"] == "free_requested":
            events.append(f"f{numbers[entry['addr']]}")
    return events


def main():
    path, mesh, dtype, *matrices = sys.argv[1:]
    sizes = [int(size) for size in mesh.split("x")] if mesh != "none" else [1]
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    placed = init_device_mesh("cuda", tuple(sizes), mesh_dim_names=("replicate", "shard")[-len(sizes):])
    lines = []
    for matrix in matrices:
        rows, columns = (int(size) for size in matrix.split("x"))
        model = nn.Linear(columns, rows, bias=False, device="cuda", dtype=getattr(torch, dtype))
        if mesh != "none":
            fully_shard(model, mesh=placed)
        optimizer = torch.optim.Muon(model.parameters(), lr=1e-3)
        for turn in range(3):
            model.weight.grad = torch.zeros_like(model.weight)
            first = len(torch.cuda.memory._snapshot()["device_traces"][device])
            with Sent() if turn == 1 else contextlib.nullcontext() as sent:
                optimizer.step()
            if turn == 1:
                collectives = sent.found
        events = events_of(device, first)
        item = model.weight.element_size()
        inner = sizes[1] if len(sizes) > 1 else 1
        lines.append(f"{rows} {columns} {item} {len(sizes)} {sizes[0]} {inner} {torch.cuda.device_count()}")
        lines.append(" ".join(events + collectives))
    if dist.get_rank() == 0:
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


main()
