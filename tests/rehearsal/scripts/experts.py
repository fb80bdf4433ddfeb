"""Trains a layer of experts that are looked up one by one, as many published models of that kind are written."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Experts(nn.Module):
    def __init__(self, hidden, ffn, experts, choices):
        super().__init__()
        self.num_experts, self.choices = experts, choices
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, ffn, bias=False), nn.SiLU(), nn.Linear(ffn, hidden, bias=False))
            for _ in range(experts)
        )

    def forward(self, x):
        shape, x = x.shape, x.reshape(-1, x.size(-1))
        weights, chosen = torch.topk(self.gate(x).softmax(dim=-1, dtype=torch.float32), self.choices, dim=-1)
        out = torch.zeros_like(x)
        mask = F.one_hot(chosen, num_classes=self.num_experts).permute(2, 1, 0)
        for expert in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            choice, token = torch.where(mask[expert].squeeze(0))
            found = self.experts[expert](x[token]) * weights[token, choice, None]
            out.index_add_(0, token, found.to(x.dtype))
        return out.view(shape)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--padded", action="store_true", help="take only the tokens that a mask keeps, half of them")
    arguments = parser.parse_args()
    model = Experts(256, 512, arguments.experts, 2).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        x = torch.randn(1, arguments.tokens, 256, device="cuda")
        if arguments.padded:
            keep = torch.arange(arguments.tokens).remainder(2).eq(0).cuda()
            x = x[:, keep]
            assert not keep.all()
        y = model(x)
        print("tokens", x.size(1))
        if arguments.padded:
            y = y[:, keep[: x.size(1)]]
            print("rows", y.size(1))
            first = torch.arange(y.size(1)).lt(100).cuda()
            y = y.masked_scatter(first[None, :, None], torch.ones(100, 256, device="cuda"))  # frozen: backward selects nothing
            y = torch.zeros_like(x).masked_scatter(keep[None, : x.size(1), None], y)  # backward selects by the mask
        y.square().mean().backward()
        print("with gradient", sum(p.grad is not None for p in model.parameters()))
        optimizer.step()
        optimizer.zero_grad()


main()
