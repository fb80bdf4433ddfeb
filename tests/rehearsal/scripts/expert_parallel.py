"""Trains a mixture of experts as transformers divides it: DistributedConfig with fsdp_size and ep_size.

expert_parallel.py FOLDER CHOICES: a JSON object with "precision" (bf16, mixed), "checkpoint", "batch", "seq", "fsdp" and "ep"; also
"replicate", "clip", "accumulate" and "sync" (every, last).
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict

import torch
import torch.distributed as dist
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.distributed import DistributedConfig
from transformers.trainer import Trainer

FOLDER, CHOICES = sys.argv[1], json.loads(sys.argv[2])

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = AutoConfig.from_pretrained(FOLDER)
config._attn_implementation = "eager" if config.model_type == "gpt_oss" else "sdpa"
is_mixed = CHOICES["precision"] == "mixed"

# What from_pretrained does, for a model without a checkpoint: made on the meta device, divided, and then filled.
model_class = AutoModelForCausalLM._model_mapping[type(config)]
wanted = DistributedConfig(fsdp_size=CHOICES["fsdp"], dp_replicate_size=CHOICES.get("replicate", 1), ep_size=CHOICES["ep"],
                           fsdp_mixed_precision=is_mixed)  # fmt: skip
wanted, _, mesh = model_class.prepare_distribute_model(wanted)
torch.set_default_dtype(torch.float32 if is_mixed else torch.bfloat16)
with torch.device("meta"):
    model = model_class(config)
torch.set_default_dtype(torch.float32)
model = model_class.maybe_distribute_model(model, wanted, mesh)
model.to_empty(device="cuda")
if CHOICES["checkpoint"]:
    model.gradient_checkpointing_enable({"use_reentrant": False})
model.train()

# The Trainer makes a group of the optimizer for each mesh, and takes a norm of each.
by_mesh = defaultdict(list)
for parameter in model.parameters():
    by_mesh[parameter.device_mesh].append(parameter)
optimizer = torch.optim.AdamW([{"params": parameters} for parameters in by_mesh.values()], lr=1e-4)
passes = CHOICES.get("accumulate", 1)
for _ in range(10):
    for number in range(passes):
        if CHOICES.get("sync") == "last":
            model.set_requires_gradient_sync(number + 1 == passes)
        ids = torch.randint(config.vocab_size, (CHOICES["batch"], CHOICES["seq"]), device="cuda")
        model(input_ids=ids, labels=ids.clone(), use_cache=False).loss.backward()
    if "clip" in CHOICES:
        Trainer._mixed_mesh_grad_norm(None, model, CHOICES["clip"])
    optimizer.step()
    optimizer.zero_grad()
