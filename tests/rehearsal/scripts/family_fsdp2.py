"""Trains the class that a folder names under FSDP2, each layer a unit.
family_fsdp2.py FOLDER CHOICES: a JSON object with "precision" (bf16, mixed), "checkpoint", "batch", "seq" and "shard": the ranks of a
shard group."""

import json
import os
import sys

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

FOLDER, CHOICES = sys.argv[1], json.loads(sys.argv[2])
BATCH, SEQ = CHOICES["batch"], CHOICES["seq"]

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
world = dist.get_world_size()
names = {} if CHOICES["shard"] == world else {"mesh_dim_names": ("replicate", "shard")}
mesh = init_device_mesh("cuda", (world // CHOICES["shard"], CHOICES["shard"]) if names else (world,), **names)

config = transformers.AutoConfig.from_pretrained(FOLDER)
is_mixed = CHOICES["precision"] == "mixed"
torch.set_default_dtype(torch.float32 if is_mixed else torch.bfloat16)
model = getattr(transformers, config.architectures[0])(config)
torch.set_default_dtype(torch.float32)
if CHOICES["checkpoint"]:
    model.gradient_checkpointing_enable({"use_reentrant": False})
# transformers 5.24.0 reads an attribute that no output of Llama 4's decoder has, after its last kernel.
transformers.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None
policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_mixed else MixedPrecisionPolicy()
for layer in [module for module in model.modules() if isinstance(module, transformers.modeling_layers.GradientCheckpointingLayer)]:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def batch_of_text() -> dict[str, torch.Tensor]:
    ids = torch.randint(config.get_text_config().vocab_size - 16, (BATCH, SEQ), device="cuda")
    return {"input_ids": ids, "labels": ids.clone(), "use_cache": False}


for _ in range(6):
    model(**batch_of_text()).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
