"""Trains an MLP with the habits of published scripts. habits.py NAME

    between         clears gradients between loss and backward
    after_forward   before the loss
    by_model        between loss and backward, by the model's zero_grad()
    by_hand         between loss and backward, without zero_grad()
    kept            zeroes them where they lie
    data            has its data on the GPU, and hands on slices
    data_parallel   wraps its model in DataParallel, and hands on tensors of the CPU
    compiled        compiles its model
    scaler          scales its loss, under autocast of float16
    adadelta        trains with Adadelta, and a parameter of one number
    too_large       asks for more memory than there is
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

HABIT = sys.argv[1]
WORDS, WIDTH, LAYERS, BATCH, LENGTH = 1000, 256, 4, 8, 64


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x) * self.scale


def clear(place, model, optimizer):
    if HABIT == "by_hand" and place == "between":
        for parameter in model.parameters():
            parameter.grad = None
    elif HABIT == "kept" and place == "between":
        optimizer.zero_grad(set_to_none=False)
    elif HABIT == "by_model" and place == "between":
        model.zero_grad()
    elif place == (HABIT if HABIT in ("between", "after_forward") else "" if HABIT in ("by_hand", "by_model", "kept") else "behind"):
        optimizer.zero_grad()


def main():
    torch.manual_seed(0)
    model = Net().cuda()
    if HABIT == "data_parallel":
        model = nn.DataParallel(model)
    if HABIT == "compiled":
        model = torch.compile(model)
    kind = torch.optim.Adadelta if HABIT == "adadelta" else torch.optim.AdamW
    optimizer = kind(model.parameters(), lr=1e-3)
    data = torch.randint(WORDS, (20, BATCH, LENGTH))
    if HABIT == "data":
        data = torch.randint(WORDS, (1000, BATCH, LENGTH)).cuda()
    batch = 1 << 20 if HABIT == "too_large" else BATCH
    scaler = torch.amp.GradScaler("cuda", enabled=HABIT == "scaler")
    for step in range(20):
        ids = torch.zeros(batch, LENGTH, dtype=torch.int64).cuda() if HABIT == "too_large" else data[step]
        with torch.autocast("cuda", torch.float16, enabled=HABIT == "scaler"):
            logits = model(ids if HABIT == "data_parallel" else ids.cuda())
        clear("after_forward", model, optimizer)
        loss = F.cross_entropy(logits.flatten(0, 1), ids.cuda().flatten())
        clear("between", model, optimizer)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        clear("behind", model, optimizer)


if __name__ == "__main__":
    main()
