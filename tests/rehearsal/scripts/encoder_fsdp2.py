"""Trains an encoder of a folder for classes under FSDP2.
encoder_fsdp2.py FOLDER CHOICES: a JSON object with "batch", "seq", "precision" (bf16, mixed) and "checkpoint"."""

import json
import os
import sys

import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

FOLDER, CHOICES = sys.argv[1], json.loads(sys.argv[2])

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = transformers.AutoConfig.from_pretrained(FOLDER)
model = getattr(transformers, config.architectures[0])(config)
is_mixed = CHOICES["precision"] == "mixed"
model = model.to(torch.float32 if is_mixed else torch.bfloat16)
if CHOICES["checkpoint"]:
    model.gradient_checkpointing_enable({"use_reentrant": False})
policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_mixed else MixedPrecisionPolicy()
for layer in model.base_model.encoder.layer:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(4):
    ids = torch.randint(5, config.vocab_size, (CHOICES["batch"], CHOICES["seq"]), device="cuda")
    labels = torch.randint(config.num_labels, (CHOICES["batch"],), device="cuda")
    model(input_ids=ids, labels=labels).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
