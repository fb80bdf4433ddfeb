"""Asks the device for what only computing would tell: checks of values, accuracy, generation, lengths, loops that wait."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

NEW_TOKENS, END = 5, 3


class StopAtLength:
    """Says which sequences are long enough or have met their end, as transformers' criteria do."""

    def __init__(self, length):
        self.length = length

    def __call__(self, ids):
        long_enough = torch.full((ids.shape[0],), ids.shape[1] >= self.length, device=ids.device, dtype=torch.bool)
        end = torch.tensor([END]).to(ids.device)
        return torch.full((ids.shape[0],), False, device=ids.device) | long_enough | torch.isin(ids[:, -1:], end).any(dim=-1)


def generate(model, ids):
    """Greedy generation with the loop of transformers: its end is read from the device."""
    stop = StopAtLength(ids.shape[1] + NEW_TOKENS)
    unfinished = torch.ones(ids.shape[0], dtype=torch.long, device=ids.device)
    finished, forwards = False, 0
    while not finished:
        forwards += 1
        ids = torch.cat([ids, (model(ids).argmax(dim=-1)[:, -1] * unfinished)[:, None]], dim=-1)
        unfinished = unfinished & ~stop(ids)
        finished = unfinished.max() == 0
    return forwards, ids.shape[1]


def accuracy(output, target):
    """Top-5, as in PyTorch's own example for ImageNet."""
    with torch.no_grad():
        _, found = output.topk(5, 1, True, True)
        correct = found.t().eq(target.view(1, -1).expand_as(found.t()))
        return correct[:5].reshape(-1).float().sum(0)


def lengths():
    counts = torch.tensor([3, 4, 5]).cuda()
    rows = torch.randn(3, 8, device="cuda")
    scores = torch.randn(50, 4, 20, device="cuda", requires_grad=True).log_softmax(2)
    targets, each = torch.randint(1, 20, (26,)).cuda(), torch.tensor([5, 6, 7, 8]).cuda()
    loss = F.ctc_loss(scores, targets, torch.full((4,), 50).cuda().int() + 0, each.int() + 0)
    loss.backward()
    return (counts + 1).tolist(), rows.repeat_interleave(counts + 1, dim=0).shape[0]


def wait_for(model, ids):
    rounds = 0
    while not (model(ids).argmax(dim=-1) == END).all():
        rounds += 1
    return rounds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wait", action="store_true", help="in the end, wait for what never comes")
    parser.add_argument("--for-ever", action="store_true", help="the same, and wait again")
    arguments = parser.parse_args()
    model = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 2048), nn.GELU(), nn.Linear(2048, 1000)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for length in (12, 16):
        ids = torch.randint(0, 1000, (4, length)).cuda()
        output = model(ids)
        loss = F.cross_entropy(output.flatten(0, 1), ids.flatten())
        assert torch.isfinite(loss), "the loss is not finite"
        assert not torch.isnan(output).any() and torch.isfinite(output).all().item()
        accuracy(output[:, -1], ids[:, -1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        print("generated", *generate(model, ids))
    print("lengths", *lengths())
    if arguments.wait:
        with torch.no_grad():
            print("rounds", wait_for(model[1], torch.zeros(1, 2, 64, device="cuda")))
    if arguments.for_ever:
        while model[0].weight.sum().item() < 1e30:
            pass


main()
