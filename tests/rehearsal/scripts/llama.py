"""A small Llama of transformers, trained as people do. llama.py [WORD...]: what differs from the plainest script."""

import os
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

WORDS = sys.argv[1:]
BATCH, SEQUENCE, VOCABULARY = 2, 512, 4096

config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=512, intermediate_size=2048, num_hidden_layers=3, num_attention_heads=8,
                     num_key_value_heads=2, head_dim=64, rms_norm_eps=1e-5)
if "ddp" in WORDS or "gathers" in WORDS:
    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
if "engine" in WORDS:
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
model = LlamaForCausalLM(config).to("cuda" if "ddp" in WORDS else "cpu")
if "ddp" in WORDS:
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    assert isinstance(model.module, LlamaForCausalLM)
if "fully_shard" in WORDS:
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("nccl")
    fully_shard(model.model)  # not a unit of the plan
    model.model.set_modules_to_backward_prefetch([model.model])
    fully_shard(model)
model.train()
if "groups" in WORDS:
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": parameters, "weight_decay": 0.1}])
elif "named" in WORDS:
    optimizer = torch.optim.AdamW(model.named_parameters())
elif "no_optimizer" in WORDS:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(8, device="cuda"))])
else:
    optimizer = torch.optim.AdamW(model.parameters())
model.to("cuda")
for _ in range(4):
    ids = torch.randint(VOCABULARY, (BATCH, SEQUENCE), device="cuda")
    mask = torch.ones(BATCH, SEQUENCE, dtype=torch.int64, device="cuda")  # without, transformers 4 takes another attention where it keeps no keys and values
    loss = model(input_ids=ids, attention_mask=mask, labels=ids).loss
    loss.backward()
    if "groups" in WORDS:
        assert all(p.grad is not None for p in parameters)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    del loss  # as the plan's loop does; a logits that is held costs its bytes
