"""Trains a model that is written here, as people write them. by_hand.py NAME"""

import math
import sys

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

NAME = sys.argv[1]
BATCH = 8


class Block(nn.Module):
    """A Transformer's, pre-norm."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, x, is_causal):
        b, s, h = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=is_causal).transpose(1, 2).reshape(b, s, h))

    def forward(self, x):
        x = x + self.attend(self.norm1(x), True)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    vocabulary, sequence = 4000, 256

    def __init__(self, width=256, layers=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(self.vocabulary, width), nn.Embedding(self.sequence, width)
        self.layers = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, self.vocabulary, bias=False)

    def batch(self):
        return (torch.randint(self.vocabulary, (BATCH, self.sequence), device="cuda"),)

    def hidden(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def forward(self, ids):
        return F.cross_entropy(self.head(self.hidden(ids)).flatten(0, 1).float(), ids.flatten())


class Recomputed(Decoder):
    """Each layer runs again in the backward."""

    def hidden(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        return self.norm(x)


class Chunked(Decoder):
    """The logits of a quarter of the positions at a time."""

    def forward(self, ids):
        total = 0
        for x, labels in zip(self.hidden(ids).chunk(4, dim=1), ids.chunk(4, dim=1)):
            total = total + F.cross_entropy(self.head(x).flatten(0, 1).float(), labels.flatten(), reduction="sum")
        return total / ids.numel()


class TwoLosses(Decoder):
    """A second head that tells the token after the next."""

    def __init__(self):
        super().__init__()
        self.second = nn.Linear(256, self.vocabulary, bias=False)

    def forward(self, ids):
        x = self.hidden(ids)
        first = F.cross_entropy(self.head(x[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
        second = F.cross_entropy(self.second(x[:, :-2]).flatten(0, 1).float(), ids[:, 2:].flatten())
        return first + 0.3 * second


class LossOnHost(Decoder):
    """Its loss is moved to the CPU, from where the backward begins."""

    def forward(self, ids):
        return super().forward(ids).cpu()


class Squared(torch.autograd.Function):
    """relu(x) ** 2, which keeps relu(x) alone."""

    @staticmethod
    def forward(ctx, x):
        y = F.relu(x)
        ctx.save_for_backward(y)
        return y * y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return 2 * y * gradient


class OwnFunction(Decoder):
    def __init__(self):
        super().__init__()
        for layer in self.layers:
            layer.mlp[1] = SquaredReLU()


class FusedLoss(torch.autograd.Function):
    """Head and cross entropy in parts of the tokens, as Liger has it: no logits are kept, since the gradients are worked out at once."""

    @staticmethod
    def forward(ctx, hidden, weight, targets):
        loss, of_hidden, of_weight = 0.0, torch.empty_like(hidden), torch.zeros_like(weight)
        for part, target, gradient in zip(hidden.split(256), targets.split(256), of_hidden.split(256)):
            probabilities = torch.softmax(part @ weight.t(), dim=-1, dtype=torch.float32)
            loss = loss - probabilities.gather(1, target[:, None]).log().sum()
            of_logits = (probabilities - F.one_hot(target, weight.shape[0])).div_(len(targets)).to(hidden.dtype)
            gradient.copy_(of_logits @ weight)
            of_weight += of_logits.t() @ part
        ctx.save_for_backward(of_hidden.detach(), of_weight.detach())
        return loss / len(targets)

    @staticmethod
    def backward(ctx, gradient):
        return *ctx.saved_tensors, None


class FusedHead(Decoder):
    def forward(self, ids):
        hidden = self.hidden(ids)
        return FusedLoss.apply(hidden[:, :-1].flatten(0, 1), self.head.weight, ids[:, 1:].flatten())


class SquaredReLU(nn.Module):
    def forward(self, x):
        return Squared.apply(x)


class ConditionedBlock(Block):
    """A block of a DiT: the norms have no weights, and shifts, scales and gates come from the condition."""

    def __init__(self, width, heads):
        super().__init__(width, heads)
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, condition):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition).unsqueeze(1).chunk(6, dim=-1)
        x = x + gate1 * self.attend(self.norm1(x) * (1 + scale1) + shift1, False)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    def __init__(self, width=256, layers=4, classes=100):
        super().__init__()
        self.patches = nn.Conv2d(4, width, 2, stride=2)
        self.places = nn.Parameter(torch.zeros(1, 256, width))
        self.times = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.labels = nn.Embedding(classes, width)
        self.blocks = nn.ModuleList(ConditionedBlock(width, 4) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, 16)

    def batch(self):
        image = torch.randn(BATCH, 4, 32, 32, device="cuda")
        return image, torch.rand(BATCH, device="cuda"), torch.randint(100, (BATCH,), device="cuda")

    def forward(self, image, time, label):
        noise = torch.randn_like(image)
        mixed = image + time.view(-1, 1, 1, 1) * (noise - image)
        rates = torch.exp(-math.log(10000) * torch.arange(128, device=time.device) / 128)
        angles = time[:, None] * rates
        weight = self.times[0].weight.dtype
        condition = self.times(torch.cat((angles.cos(), angles.sin()), dim=-1).to(weight)) + self.labels(label)
        x = self.patches(mixed.to(weight)).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x, condition)
        x = self.out(self.norm(x)).view(-1, 16, 16, 2, 2, 4).permute(0, 5, 1, 3, 2, 4).reshape(image.shape)
        return F.mse_loss(x.float(), noise - image)


class DLRM(nn.Module):
    """Recommendation: large tables, few computations."""

    def __init__(self, rows=50000, tables=8, width=64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + (tables + 1) * tables // 2, 256), nn.ReLU(), nn.Linear(256, 1))

    def batch(self):
        return (torch.randn(2048, 13, device="cuda"), torch.randint(50000, (2048, 8), device="cuda"),
                torch.rand(2048, device="cuda").round())

    def forward(self, dense, sparse, clicked):
        x = self.bottom(dense)
        each = torch.stack([x] + [table(sparse[:, i]) for i, table in enumerate(self.tables)], dim=1)
        products = torch.bmm(each, each.transpose(1, 2))
        rows, columns = torch.tril_indices(9, 9, offset=-1, device=x.device)
        return F.binary_cross_entropy_with_logits(self.top(torch.cat((x, products[:, rows, columns]), dim=1))[:, 0].float(), clicked)


class Residual(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.first, self.norm = nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(4, out)
        self.second = nn.Conv2d(out, out, 3, padding=1)

    def forward(self, x):
        return F.silu(self.second(F.silu(self.norm(self.first(x)))))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 3, 1)
        self.down = nn.ModuleList(Residual(i, o) for i, o in ((32, 32), (32, 64), (64, 128)))
        self.up = nn.ModuleList(Residual(i, o) for i, o in ((128 + 64, 64), (64 + 32, 32)))

    def batch(self):
        return (torch.randn(BATCH, 3, 64, 64, device="cuda"),)

    def forward(self, image):
        x, skipped = self.first(image), []
        for level in self.down:
            x = level(x)
            skipped.append(x)
            x = F.avg_pool2d(x, 2) if level is not self.down[-1] else x
        skipped.pop()
        for level in self.up:
            x = level(torch.cat((F.interpolate(x, scale_factor=2), skipped.pop()), dim=1))
        return F.mse_loss(self.last(x), image)


class MLP(nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.layers = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(width, width), nn.ReLU())])
        self.head = nn.Linear(width, 10)

    def batch(self):
        return torch.randn(512, 1024, device="cuda"), torch.randint(10, (512,), device="cuda")

    def forward(self, x, labels):
        return F.cross_entropy(self.head(self.layers(x)), labels)


class Adapted(nn.Module):
    """A linear layer that stays, and a small product that is trained."""

    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base
        self.a, self.b = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + 2.0 * self.b(self.a(x))


class LoRA(Decoder):
    def __init__(self):
        super().__init__()
        self.requires_grad_(False)
        for layer in self.layers:
            layer.qkv, layer.out = Adapted(layer.qkv), Adapted(layer.out)


class Shared(Decoder):
    """One layer that runs twelve times, as ALBERT's."""

    def __init__(self):
        super().__init__(layers=1)

    def hidden(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for _ in range(12):
            x = self.layers[0](x)
        return self.norm(x)


class Encoder(nn.Module):
    """Ends where it begins, so that nothing runs between two calls of it."""

    def __init__(self, width, layers):
        super().__init__()
        self.begin, self.end = nn.Linear(width, width), nn.Linear(width, width)
        self.layers = nn.ModuleList(Block(width, 4) for _ in range(layers))

    def forward(self, x):
        x = self.begin(x)
        for layer in self.layers:
            x = layer(x)
        return self.end(x)


class Recurrent(nn.Module):
    """An encoder with blocks that refines its own output, and a linear layer that does: both run several times in a row."""

    def __init__(self, width=256):
        super().__init__()
        self.encoder, self.refine, self.head = Encoder(width, 2), nn.Linear(width, width), nn.Linear(width, width)

    def batch(self):
        return torch.randn(BATCH, 128, 256, device="cuda"), torch.randn(BATCH, 256, device="cuda")

    def forward(self, x, wanted):
        for _ in range(3):
            x = self.encoder(x)
        for _ in range(2):
            x = self.refine(x)
        return F.mse_loss(self.head(x).mean(1), wanted)


class Speech(nn.Module):
    """A CTC loss, whose lengths lie on the CPU, and a parameter without dimensions."""

    def __init__(self, width=256):
        super().__init__()
        self.begin, self.layers, self.head = nn.Linear(80, width), nn.ModuleList(Block(width, 4) for _ in range(2)), nn.Linear(width, 32)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def batch(self):
        return torch.randn(BATCH, 128, 80, device="cuda"), torch.randint(1, 32, (BATCH, 20), device="cuda")

    def forward(self, x, labels):
        x = self.begin(x)
        for layer in self.layers:
            x = layer(x)
        spoken = (self.scale * self.head(x)).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(spoken, labels, torch.full((BATCH,), 128), torch.full((BATCH,), 20))


class Sparse(nn.Module):
    """A table whose gradient is a list of rows."""

    def __init__(self):
        super().__init__()
        self.table, self.top = nn.EmbeddingBag(10000, 64, sparse=True, mode="sum"), nn.Linear(64, 1)

    def batch(self):
        return (torch.randint(10000, (256, 4), device="cuda"),)

    def forward(self, ids):
        return self.top(self.table(ids)).square().mean()


class Sloped(nn.Module):
    """Its loss is of the slope of what it computes, as that of a physical law is."""

    def __init__(self, width=256):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def batch(self):
        return (torch.rand(4096, 2, device="cuda", requires_grad=True),)

    def forward(self, x):
        return (torch.autograd.grad(self.layers(x).sum(), x, create_graph=True)[0].sum(1) - 1).square().mean()


KINDS = (Sloped, Shared, Recurrent, Speech, Sparse, Decoder, Recomputed, Chunked, TwoLosses, LossOnHost, OwnFunction, FusedHead, DiT, DLRM, UNet, MLP, LoRA)
model = {kind.__name__: kind for kind in KINDS}[NAME]().cuda()
if NAME in ("Decoder", "Chunked", "TwoLosses", "OwnFunction", "FusedHead", "LoRA"):
    model.bfloat16()
kind = torch.optim.SGD if NAME == "Sparse" else torch.optim.AdamW
optimizer = kind([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for _ in range(10):
    loss = model(*model.batch())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
