"""Fine-tunes the model of a folder on packed rows under FSDP2 or FSDP1, with TRL's collator and transformers' attention.
packed_fsdp2.py FOLDER CHOICES: a JSON object with "documents" (lengths), "attention" (attn_implementation), "precision" (bf16, mixed),
"checkpoint" and "fsdp1"."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers import AutoConfig, AutoModelForCausalLM
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

FOLDER, CHOICES = sys.argv[1], json.loads(sys.argv[2])

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = AutoConfig.from_pretrained(FOLDER)
model = AutoModelForCausalLM.from_config(config, attn_implementation=CHOICES["attention"])
is_mixed = CHOICES["precision"] == "mixed"
model = model.to(torch.float32 if is_mixed else torch.bfloat16)
if CHOICES["checkpoint"]:
    model.gradient_checkpointing_enable({"use_reentrant": False})
if CHOICES.get("fsdp1"):
    flat = MixedPrecision(torch.bfloat16, torch.float32) if is_mixed else None
    model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({type(model.model.layers[0])}), mixed_precision=flat,
                                     device_id=torch.cuda.current_device(), use_orig_params=True)
else:
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_mixed else MixedPrecisionPolicy()
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
collator = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
for _ in range(10):
    row = torch.randint(config.vocab_size, (sum(CHOICES["documents"]),)).tolist()
    batch = collator([{"input_ids": row, "labels": row, "seq_lengths": CHOICES["documents"]}])
    batch = {name: value.to("cuda") if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
    model(**batch, use_cache=False).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
