"""Trains a small transformer on one GPU: python plain.py"""

import argparse
import subprocess
import sys

import torch
import torch.nn as nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--workers", type=int, default=0, help="processes that load data")
    parser.add_argument("--measure", action="store_true", help="print the peak at each step's begin, and reset it after backward")
    parser.add_argument("--version", action="store_true", help="ask a Python and a compiler what they are")
    parser.add_argument("--fail-at", type=int, default=-1, help="raise an error in this step")
    args = parser.parse_args()

    if args.version:
        print(subprocess.check_output([sys.executable, "-c", "import torch; print(torch.cuda.is_available())"], text=True))
        print(subprocess.check_output(["env"], text=True))
    layer = nn.TransformerEncoderLayer(args.width, 4, 4 * args.width, batch_first=True, norm_first=True, dropout=0.0)
    with torch.device("cuda"):
        model = nn.Sequential(
            nn.Embedding(512, args.width),
            nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False),
            nn.Linear(args.width, 512),
        )
    model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.utils.data.DataLoader(
        torch.zeros(args.steps * args.batch, args.tokens, dtype=torch.long),
        batch_size=args.batch,
        num_workers=args.workers,
        multiprocessing_context="spawn" if args.workers else None,
    )
    for step, tokens in enumerate(data):
        if args.measure:
            print("peak", torch.cuda.max_memory_allocated(), torch.cuda.memory_stats()["reserved_bytes.all.peak"], flush=True)
        tokens = tokens.cuda()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        if step == args.fail_at:
            raise ValueError("a problem in the script")
        if args.measure:
            torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
