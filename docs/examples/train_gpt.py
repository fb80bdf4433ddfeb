"""A GPT-2 with 12 layers as people train it: parameters in float32, autocast in bfloat16, DistributedDataParallel. Random tokens.

torchrun --nproc-per-node 8 train_gpt.py --batch-size 4
"""

import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4, help="of one GPU")
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--steps", type=int, default=100)
options = parser.parse_args()
WIDTH, HEADS, WORDS, LENGTH = 1600, 25, 50304, 1024


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for t in self.attn(self.ln_1(x)).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(options.layers))
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return F.cross_entropy(self.lm_head(self.ln_f(x)).view(-1, WORDS), targets.view(-1))


torch.distributed.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
with torch.device("cuda"):
    model = nn.parallel.DistributedDataParallel(GPT())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(options.steps):
    tokens, targets = (torch.randint(WORDS, (options.batch_size, LENGTH), device="cuda") for _ in range(2))
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(tokens, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
