"""Trains the model of a folder under FSDP2, each layer a unit. folder_fsdp2.py FOLDER CHOICES: a JSON object with "precision" (bf16,
mixed), "checkpoint", "batch" and "seq"."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

FOLDER, CHOICES = sys.argv[1], json.loads(sys.argv[2])

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = AutoConfig.from_pretrained(FOLDER)
is_mixed = CHOICES["precision"] == "mixed"
model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(torch.float32 if is_mixed else torch.bfloat16)
if CHOICES["checkpoint"]:
    model.gradient_checkpointing_enable({"use_reentrant": False})
policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_mixed else MixedPrecisionPolicy()
for layer in model.model.layers:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(10):
    ids = torch.randint(config.vocab_size, (CHOICES["batch"], CHOICES["seq"]), device="cuda")
    model(input_ids=ids, labels=ids.clone(), use_cache=False).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
