"""A decoder, trained in the ways that its first word names; run by capture_test.py, which captures it."""

import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("mode", nargs="?", default="plain",
                    choices=["plain", "ddp", "batch_norm", "two", "short", "cpu", "raises", "shares", "autocast",
                             "fsdp1", "fsdp1_meta", "fsdp2", "states_first", "shared", "gathers", "fsdp1_half"])
parser.add_argument("--batch-size", type=int, default=2)
parser.add_argument("--dtype", default="bfloat16")
options = parser.parse_args()
WIDTH, HEADS, WORDS, LENGTH = 256, 4, 1024, 128

activation = nn.PReLU(dtype=getattr(torch, options.dtype))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.activation = activation if options.mode == "shared" else F.gelu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.attention(self.before(x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(self.activation(self.up(self.between(x))))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if options.mode == "fsdp1_meta" else block(x)
        x = self.norm(x)
        if options.mode == "gathers":  # as a contrastive loss does
            from torch.distributed._functional_collectives import all_gather_tensor_autograd

            return all_gather_tensor_autograd(self.head(x), 0, torch.distributed.group.WORLD).float().square().mean()
        return F.cross_entropy(self.head(x).float().view(-1, WORDS), ids.view(-1))


class Normed(nn.Module):
    """Its running mean is float32, whatever its weight is."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.head = nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(images))).mean((2, 3))
        return self.head(x).float().square().mean()


torch.backends.cuda.matmul.allow_tf32 = options.mode == "autocast"
# FSDP brings the model to the GPU, and FSDP1 its batches.
device = {"cpu": "cpu", "fsdp1": "cpu", "fsdp1_meta": "meta", "fsdp2": "cpu", "fsdp1_half": "cpu"}.get(options.mode, "cuda")
is_parallel = options.mode in ("ddp", "shares", "fsdp1", "fsdp1_meta", "fsdp2", "gathers", "fsdp1_half")
if is_parallel:
    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def build() -> nn.Module:
    return (Normed() if options.mode in ("batch_norm", "fsdp1_half") else Decoder()).to(device, getattr(torch, options.dtype))


models = [build() for _ in range(2 if options.mode == "two" else 1)]
if options.mode in ("fsdp1", "fsdp1_meta"):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    models = [FullyShardedDataParallel(model, device_id=torch.cuda.current_device()) for model in models]
    torch.distributed.new_group(backend="gloo").monitored_barrier()
    for model in models:
        saved = {name: torch.zeros(value.shape) for name, value in Decoder().state_dict().items()}
        model.load_state_dict(saved)
        if options.mode == "fsdp1":
            apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    device = "cpu"
elif options.mode == "fsdp1_half":
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

    half = MixedPrecision(param_dtype=torch.float16)
    models = [FullyShardedDataParallel(model, device_id=0, mixed_precision=half) for model in models]
    device = "cuda"
elif options.mode == "fsdp2":
    from torch.distributed.fsdp import fully_shard

    for model in models:
        fully_shard(model.words)
        model.words.set_unshard_in_backward(False)
        fully_shard(model)
    device = "cuda"
elif is_parallel:
    models = [nn.parallel.DistributedDataParallel(model) for model in models]
optimizer = torch.optim.AdamW([p for model in models for p in model.parameters()], lr=1e-4)

if options.mode == "fsdp1" and any(isinstance(parameter, DTensor) for parameter in models[0].parameters()):
    # Lightning Fabric loads what FSDP2 has sharded by the names that it has.
    assert {name for name, _ in models[0].named_parameters()} == set(saved), sorted(name for name, _ in models[0].named_parameters())

if options.mode == "states_first":  # a step on gradients of zero makes the states, and a backward that no step follows tries the memory
    for parameter in models[0].parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    models[0](torch.zeros(options.batch_size, LENGTH, dtype=torch.int64, device=device)).backward()
    optimizer.zero_grad()


def batch(samples: int = options.batch_size) -> torch.Tensor:
    return torch.randint(0, WORDS, (samples, LENGTH), device=device)


if options.mode == "shares":
    # 8 micro-batches of all ranks, each fetched while the one before it runs; gradients summed with the last; an evaluation first.
    model, micro_batches = models[0], 8 // torch.distributed.get_world_size()
    with torch.no_grad():
        model(batch(256))
    ids = batch()
    for _ in range(20):
        for micro in range(micro_batches):
            model.require_backward_grad_sync = micro == micro_batches - 1
            loss, ids = model(ids) / micro_batches, batch()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
for step in range(1 if options.mode == "short" else 20):
    if options.mode == "raises" and step == 1:
        raise ValueError("The data are of another length.")
    for model in models:
        if options.mode in ("batch_norm", "fsdp1_half"):
            dtype = torch.float16 if options.mode == "fsdp1_half" else torch.float32
            images = torch.randn(options.batch_size, 3, 32, 32, device=device, dtype=dtype)
            model(images).backward()
        else:
            with torch.autocast("cuda", torch.bfloat16, enabled=options.mode == "autocast"):
                loss = model(batch())
            loss.backward()
    if options.mode == "ddp":
        torch.nn.utils.clip_grad_norm_(models[0].parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
