"""Fine-tunes the model of a folder through PEFT under FSDP2, as people do without a trainer. peft_fsdp2.py FOLDER CHOICES: a JSON
object with the arguments of LoraConfig ("lora"), "precision" (bf16, mixed), "checkpoint", "batch" and "seq"."""

import json
import os
import sys

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

FOLDER, CHOICES = sys.argv[1], json.loads(sys.argv[2])

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = AutoConfig.from_pretrained(FOLDER)
model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
is_mixed = CHOICES["precision"] == "mixed"
if CHOICES.get("lora"):
    model = get_peft_model(model, LoraConfig(**CHOICES["lora"]), autocast_adapter_dtype=is_mixed)
if is_mixed:  # PEFT leaves copies of whole modules as they are, and accelerate converts what is trained.
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.float32)
    del parameter  # It would keep one of them whole.
if CHOICES["checkpoint"]:
    model.gradient_checkpointing_enable({"use_reentrant": False})
policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_mixed else MixedPrecisionPolicy()
for layer in (model.base_model.model if CHOICES.get("lora") else model).model.layers:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for _ in range(10):
    ids = torch.randint(config.vocab_size, (CHOICES["batch"], CHOICES["seq"]), device="cuda")
    labels = ids.clone()
    model(input_ids=ids, labels=labels).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
