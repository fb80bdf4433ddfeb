"""Trains LoRA beside a stack of linear layers by hand. library_ops.py WORD: dense, the frozen weights are a torch.nn.Linear's; nf4, they lie in
four bits; function, an autograd function multiplies; scan, each layer ends with an op of a library that nobody knows."""

import sys

import torch

WORD = sys.argv[1]
WIDTH, LAYERS, BATCH, SEQUENCE = 1024, 4, 4, 2048


class Multiply(torch.autograd.Function):
    """Its forward says nothing of gradients, as of libraries that cast what they are handed to numbers of their own."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x.detach() @ weight.detach().t()

    @staticmethod
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        return grad @ weight, None


if WORD == "scan":
    @torch.library.custom_op("mylib::scan", mutates_args=())
    def scan(x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 1)

    scan.register_autograd(lambda ctx, grad: grad.flip(1).cumsum(1).flip(1))


def frozen():
    if WORD == "nf4":
        import bitsandbytes as bnb

        return bnb.nn.Linear4bit(WIDTH, WIDTH, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4")
    return torch.nn.Linear(WIDTH, WIDTH, bias=False).to(torch.bfloat16)


class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = frozen()
        self.base.weight.requires_grad = False
        self.a = torch.nn.Linear(WIDTH, 8, bias=False, dtype=torch.bfloat16)
        self.b = torch.nn.Linear(8, WIDTH, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        y = Multiply.apply(x, self.base.weight) if WORD == "function" else self.base(x)
        y = y + self.b(self.a(x))
        return torch.ops.mylib.scan(y) if WORD == "scan" else y


model = torch.nn.Sequential(*[Adapted() for _ in range(LAYERS)]).cuda()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for _ in range(10):
    x = torch.randn(BATCH, SEQUENCE, WIDTH, device="cuda", dtype=torch.bfloat16)
    model(x).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
