"""Trains a pipeline, one stage a rank, whose stages learn their shapes from each other. The last has the logits."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

VOCABULARY, WIDTH, MICROBATCHES = 4096, 256, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.net(x)


def main():
    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    layers = [Block(), Block()]
    if rank == 0:
        layers.insert(0, nn.Embedding(VOCABULARY, WIDTH))
    if rank == size - 1:
        layers.append(nn.Linear(WIDTH, VOCABULARY, bias=False))
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def loss_of(logits, target):
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())

    schedule = Schedule1F1B(PipelineStage(model, rank, size, device), MICROBATCHES, loss_fn=loss_of)
    for _ in range(3):
        tokens = torch.randint(0, VOCABULARY, (8, 128), device=device)
        given = (tokens,) if rank == 0 else ()
        schedule.step(*given, target=tokens if rank == size - 1 else None)
        optimizer.step()
        optimizer.zero_grad()


main()
