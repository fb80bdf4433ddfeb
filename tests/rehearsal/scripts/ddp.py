"""Trains a small model with DistributedDataParallel: torchrun --nproc-per-node 8 ddp.py, or --spawn 8 without torchrun"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


def train(local_rank: int, args: argparse.Namespace) -> None:
    torch.cuda.set_device(local_rank)
    if args.spawn:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29501")
        dist.init_process_group("nccl", rank=local_rank, world_size=args.spawn)
    else:
        dist.init_process_group("nccl")
    layers = [nn.Linear(args.width, args.width) for _ in range(args.layers)]
    model = nn.Sequential(*layers, nn.Linear(args.width, 10)).to(local_rank)
    model = DistributedDataParallel(model, device_ids=[local_rank], bucket_cap_mb=args.bucket)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(args.steps):
        inputs = torch.randn(args.batch, args.width, device="cuda")
        labels = torch.randint(0, 10, (args.batch,), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, loss.item())
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--bucket", type=int, default=8, help="MiB of a bucket of gradients")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--spawn", type=int, default=0, help="start so many processes")
    args = parser.parse_args()
    if args.spawn:
        torch.multiprocessing.spawn(train, args=(args,), nprocs=args.spawn)
    else:
        train(int(os.environ["LOCAL_RANK"]), args)


if __name__ == "__main__":
    main()
