"""A small language model twice: as a spec for fsdp-exec, and as torch modules with an ordinary training loop. The loop uses
nothing of this project: only torch.nn, torch.optim and files of token ids and weights."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import struct
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, SEQ = 61, 16, 12

SPEC = {
    "format_version": "1.0", "name": "Plain", "source": "torch.nn", "dtype": "float32",
    "dimensions": {"batch": 4, "seq": SEQ},
    "inputs": {"input_ids": {"shape": ["batch", "seq"], "dtype": "int64"},
               "labels": {"shape": ["batch", "seq"], "dtype": "int64"}},
    "modules": [
        {"name": "embed", "block": "token_embedding", "vocab_size": VOCABULARY, "hidden_size": WIDTH},
        {"name": "norm", "block": "layer_norm"},
        {"name": "mlp", "ops": [{"op": "linear", "module": "up", "inputs": ["hidden"], "out_features": 2 * WIDTH},
                                {"op": "relu"},
                                {"op": "linear", "module": "down", "out_features": WIDTH, "outputs": ["hidden"]}]},
        {"name": "head", "block": "lm_head", "vocab_size": VOCABULARY},
        {"name": "", "block": "cross_entropy", "shift": True}]}


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.ModuleDict({"up": nn.Linear(WIDTH, 2 * WIDTH), "down": nn.Linear(2 * WIDTH, WIDTH)})
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.embed(ids))
        hidden = self.mlp["down"](functional.relu(self.mlp["up"](hidden)))
        logits = self.head(hidden)
        labels = functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
        return functional.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1), ignore_index=-100)


@dataclasses.dataclass
class Files:
    """The files at the start of a run."""

    folder: pathlib.Path
    samples: int = 24

    def __post_init__(self) -> None:
        draw = random.Random(3)
        self.ids = [min(VOCABULARY - 1, int(draw.expovariate(0.1))) for _ in range(self.samples * SEQ)]
        self.tokens = self.folder / "tokens.bin"
        self.tokens.write_bytes(struct.pack(f"<{len(self.ids)}H", *self.ids))
        torch.manual_seed(5)
        self.model = Plain()
        self.weights = self.folder / "weights.safetensors"
        write_safetensors(self.weights, {name: tensor.detach() for name, tensor in self.model.named_parameters()})

    def options(self) -> list[str]:
        return ["--weights", str(self.weights), "--tokens", str(self.tokens)]

    def plan(self, ranks: int, batch: int, **changes: Any) -> pathlib.Path:
        spec, plan = self.folder / "plain.json", self.folder / f"plan-{ranks}-{batch}-{len(changes)}.json"
        spec.write_text(json.dumps(SPEC), encoding="utf-8")
        plan.write_text(json.dumps({
            "format_version": "1.0", "model": {"name": "Plain", "file": str(spec), "dimensions": {"batch": batch}},
            "mesh": {"replicate": 1, "shard": ranks}, "units": [{"modules": ["mlp"]}, {"modules": [""]}], **changes}),
            encoding="utf-8")
        return plan

    def batch(self, first: int, count: int) -> torch.Tensor:
        """Samples in the order of the file. Starts over after the last one."""
        rows = [(first + row) % self.samples for row in range(count)]
        return torch.tensor([self.ids[row * SEQ:(row + 1) * SEQ] for row in rows])


def write_safetensors(path: pathlib.Path, tensors: dict[str, torch.Tensor]) -> None:
    header, data = {}, b""
    for name, tensor in tensors.items():
        part = tensor.contiguous().numpy().tobytes()
        dtype = {torch.float32: "F32", torch.int64: "I64", torch.int32: "I32"}[tensor.dtype]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@dataclasses.dataclass
class Trained:
    losses: list[float]
    rates: list[float]
    parameters: dict[str, bytes]


def train(model: nn.Module, batches: Callable[[int], Any], steps: int, micro_batches: int,
          optimizer: torch.optim.Optimizer, scheduler: Any = None, clip: float | None = None) -> Trained:
    """`batches`: the ids of micro-batch i of the run, or ids and labels."""
    losses, rates = [], []
    for step in range(steps):
        total = 0.0
        for micro_batch in range(micro_batches):
            ids = batches(step * micro_batches + micro_batch)
            loss = model(*ids) if isinstance(ids, tuple) else model(ids, ids)
            (loss / micro_batches).backward()
            total += loss.item()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        optimizer.zero_grad()
        if scheduler is not None:
            scheduler.step()
        losses.append(total / micro_batches)
    return Trained(losses, rates, {name: tensor.detach().numpy().tobytes() for name, tensor in model.named_parameters()})
