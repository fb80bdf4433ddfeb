"""Trains what is never called as one: parts of a model, or several models by one optimizer. parts.py KIND"""

import itertools
import sys

import torch
import torch.nn.functional as F
from torch import nn

KIND = sys.argv[1]
BATCH, WIDTH, WORDS, LENGTH = 8, 256, 4000, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.last = nn.Linear(WIDTH, 64)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class Words(nn.Module):
    """Is handed embedded words."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def autoencoder():
    """Two models, one optimizer, float32."""
    encoder, decoder = Encoder().cuda(), Decoder().cuda()
    optimizer = torch.optim.Adam(itertools.chain(encoder.parameters(), decoder.parameters()), lr=1e-4)
    for _ in range(10):
        x = torch.randn(BATCH, LENGTH, 64, device="cuda")
        loss = F.mse_loss(decoder(encoder(x)).float(), x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def prompted():
    """A table that is called before the model that holds it."""
    model = Words().to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(10):
        ids = torch.randint(WORDS, (BATCH, LENGTH), device="cuda")
        F.cross_entropy(model(model.table(ids)).flatten(0, 1).float(), ids.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def evaluated():
    """The blocks and the head of a model, called by the script, which looks at another batch after each step."""
    model = Words().to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def loss_of(rows):
        ids = torch.randint(WORDS, (rows, LENGTH), device="cuda")
        x = model.table(ids)
        for block in model.blocks:
            x = block(x)
        return F.cross_entropy(model.head(x).flatten(0, 1).float(), ids.flatten())

    for _ in range(10):
        model.train()
        loss_of(BATCH).backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            loss_of(BATCH // 2)


class Turned(nn.Module):
    """A block of attention whose table of positions and activation other blocks have too."""

    def __init__(self, positions, activation):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.positions, self.activation = positions, activation

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (4, -1)).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(self.positions(q), self.positions(k), v).transpose(1, 2).flatten(2))
        return x + self.activation(x)


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.rand(LENGTH, WIDTH // 4), persistent=False)

    def forward(self, x):
        return x * self.table.to(x.dtype)


class Headless(nn.Module):
    """Its head runs in the loss."""

    def __init__(self):
        super().__init__()
        positions, activation = Positions(), nn.SiLU()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Turned(positions, activation) for _ in range(4))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return x


class LossOfHead(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, x, ids):
        return F.cross_entropy(self.head(x).flatten(0, 1).float(), ids.flatten())


def headed():
    """Another model is tried on the CPU before, and kept."""
    tried = Headless()
    tried(torch.zeros(1, LENGTH, dtype=torch.int64))
    model = Headless().to("cuda", torch.bfloat16)
    loss = LossOfHead(model.head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(10):
        ids = torch.randint(WORDS, (BATCH, LENGTH), device="cuda")
        loss(model(ids), ids).backward()
        optimizer.step()
        optimizer.zero_grad()


{"autoencoder": autoencoder, "prompted": prompted, "evaluated": evaluated, "headed": headed}[KIND]()
