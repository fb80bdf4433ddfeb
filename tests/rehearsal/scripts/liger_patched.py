"""Trains the model of a folder with Liger's kernels, patched as transformers' Trainer patches it. liger_patched.py FOLDER CHOICES: a JSON
object with the arguments of apply_liger_kernel_to_* ("kernels"), "framework" (fsdp2, fsdp1, ddp), "precision" (bf16, mixed),
"checkpoint", "batch" and "seq"."""

import json
import os
import sys

import torch
import torch.distributed as dist
from liger_kernel.transformers import _apply_liger_kernel_to_instance
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoConfig, AutoModelForCausalLM

FOLDER, CHOICES = sys.argv[1], json.loads(sys.argv[2])

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = AutoConfig.from_pretrained(FOLDER)
is_mixed = CHOICES["precision"] == "mixed"
model = AutoModelForCausalLM.from_config(config, dtype=torch.float32 if is_mixed else torch.bfloat16)
_apply_liger_kernel_to_instance(model=model, **CHOICES["kernels"])
if CHOICES["checkpoint"]:
    model.gradient_checkpointing_enable({"use_reentrant": False})
model.train()
if CHOICES["framework"] == "fsdp1":
    flat = MixedPrecision(torch.bfloat16, torch.float32) if is_mixed else None
    model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({type(model.model.layers[0])}), mixed_precision=flat,
                                     device_id=torch.cuda.current_device(), use_orig_params=True)
elif CHOICES["framework"] == "ddp":
    model = DistributedDataParallel(model.cuda())
else:
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_mixed else MixedPrecisionPolicy()
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(10):
    ids = torch.randint(config.vocab_size, (CHOICES["batch"], CHOICES["seq"]), device="cuda")
    labels = ids.clone()
    model(input_ids=ids, labels=labels).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
