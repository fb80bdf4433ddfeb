"""Fine-tunes a model of a folder with weights, quantized by bitsandbytes on the way to the GPU, through PEFT. qlora_fsdp2.py FOLDER
CHOICES: a JSON object with the arguments of BitsAndBytesConfig ("quantize") and of LoraConfig ("lora"), "precision" (bf16, mixed),
"runtime" (fsdp2, ddp), "checkpoint", "batch" and "seq"."""

import json
import os
import sys

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

FOLDER, CHOICES = sys.argv[1], json.loads(sys.argv[2])

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16, **CHOICES["quantize"])
model = AutoModelForCausalLM.from_pretrained(FOLDER, quantization_config=quantization, dtype=torch.bfloat16)
is_mixed = CHOICES["precision"] == "mixed"
model = get_peft_model(model, LoraConfig(**CHOICES["lora"]), autocast_adapter_dtype=is_mixed)
if CHOICES["checkpoint"]:
    model.gradient_checkpointing_enable({"use_reentrant": False})
if CHOICES["runtime"] == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model)
else:
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_mixed else MixedPrecisionPolicy()
    for layer in model.base_model.model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for _ in range(10):
    ids = torch.randint(model.config.vocab_size if CHOICES["runtime"] != "ddp" else model.module.config.vocab_size,
                        (CHOICES["batch"], CHOICES["seq"]), device="cuda")
    labels = ids.clone()
    model(input_ids=ids, labels=labels).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
