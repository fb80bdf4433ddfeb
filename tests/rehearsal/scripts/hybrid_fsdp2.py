"""Trains a model with linear attention or state spaces from a folder under FSDP2, on batches of text, each layer a unit.
hybrid_fsdp2.py FOLDER CHOICES: a JSON object with "precision" (bf16, mixed), "checkpoint", "batch", "seq" and "replicate"."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

FOLDER, CHOICES = sys.argv[1], json.loads(sys.argv[2])

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = AutoConfig.from_pretrained(FOLDER)
is_mixed = CHOICES["precision"] == "mixed"
factory = AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM
model = factory.from_config(config, attn_implementation="sdpa").to(torch.float32 if is_mixed else torch.bfloat16)
if CHOICES["checkpoint"]:
    model.gradient_checkpointing_enable({"use_reentrant": False})
policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_mixed else MixedPrecisionPolicy()
copies = CHOICES["replicate"]
mesh = init_device_mesh("cuda", (copies, dist.get_world_size() // copies), mesh_dim_names=("replicate", "shard")) if copies > 1 else None
blocks = [module for module in model.modules() if type(module).__name__.endswith(("DecoderLayer", "VisionBlock", "NemotronHBlock"))]
for block in blocks:
    fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(4):
    ids = torch.randint(config.get_text_config().vocab_size - 16, (CHOICES["batch"], CHOICES["seq"]), device="cuda")
    model(input_ids=ids, labels=ids.clone(), use_cache=False).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
