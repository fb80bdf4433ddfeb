"""Trains with recomputation and accumulation, evaluates with a larger batch than it trains with, and saves."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))

    def forward(self, x):
        return x + self.net(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return x


def main():
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        for _ in range(2):
            model(torch.randn(64, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        model.eval()
        with torch.no_grad():
            model(torch.randn(32768, 256, device="cuda"))
        model.train()
        torch.save(model.state_dict(), sys.argv[1])


main()
