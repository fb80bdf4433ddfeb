"""Fine-tunes a model with a tower for images on batches of text under FSDP2 or FSDP1.
vision_fsdp2.py FOLDER CHOICES: a JSON object with "batch", "seq", "precision" (bf16, mixed), "checkpoint", "frozen" (the tower is),
and "fsdp1"."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers import AutoConfig, AutoModelForImageTextToText

FOLDER, CHOICES = sys.argv[1], json.loads(sys.argv[2])
BLOCKS = ("DecoderLayer", "VisionBlock", "SiglipEncoderLayer", "PixtralAttentionLayer", "CLIPEncoderLayer")

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = AutoConfig.from_pretrained(FOLDER)
model = AutoModelForImageTextToText.from_config(config)
is_mixed = CHOICES["precision"] == "mixed"
model = model.to(torch.bfloat16)
if CHOICES["frozen"]:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("language_model" in name or "lm_head" in name)
    del parameter  # It would keep the whole lm_head beside its shard.
if is_mixed:  # As accelerate does: what is frozen stays as it was loaded.
    for each in model.parameters():
        if each.requires_grad:
            each.data = each.data.float()
    del each
if CHOICES["checkpoint"]:
    model.gradient_checkpointing_enable({"use_reentrant": False})
blocks = [module for module in model.modules() if type(module).__name__.endswith(BLOCKS)]
if CHOICES["fsdp1"]:
    flat = MixedPrecision(torch.bfloat16, torch.float32) if is_mixed else None
    model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({type(block) for block in blocks}), mixed_precision=flat,
                                     device_id=torch.cuda.current_device(), use_orig_params=True)
else:
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_mixed else MixedPrecisionPolicy()
    for block in blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
model.train()
optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1e-4)
for _ in range(4):
    ids = torch.randint(config.get_text_config().vocab_size - 16, (CHOICES["batch"], CHOICES["seq"]), device="cuda")
    model(input_ids=ids, labels=ids.clone(), use_cache=False).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
