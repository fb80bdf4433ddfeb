"""Llama of transformers under FSDP2, as a script that people write: the peer of vs_pytorch_fsdp2, started by it.

    fsdp2_llama.py STEPS LAYERS RESULTS      one rank, with torchrun's variables; rank 0 writes the times of each step
"""

from __future__ import annotations

import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, SEQ, VOCABULARY = 2, 256, 8192


def main() -> None:
    steps, layers, results = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=512, intermediate_size=1376, num_hidden_layers=layers, num_attention_heads=8,
        num_key_value_heads=8, tie_word_embeddings=False, use_cache=False))
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(dist.get_rank())
    measured = []
    for _ in range(steps):
        ids = torch.randint(VOCABULARY, (BATCH, SEQ))
        wall, cpu = time.perf_counter(), time.process_time()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        measured.append({"wall_seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu})
    if dist.get_rank() == 0:
        results.write_text(json.dumps(measured), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
