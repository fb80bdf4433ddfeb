"""Trains torchtitan 0.3's own decoder as its Trainer does: its model, attention, checkpointing, units, loss and clipping.
titan_decoder.py CHOICES: a JSON object with "model" (llama3 or qwen3), "flavor", "layers", "batch", "documents" (lengths of a row's),
"checkpoint" (none, full or selective), "attention" (flex), "chunked" (whether the loss is in chunks) and "graphs" (CUDA graphs).

The Trainer itself imports packages that read data and log, which say nothing of memory. FlexAttention is compiled with one
configuration of its kernels in place of all that torchtitan tries."""

import dataclasses
import gc
import importlib
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.attention.flex_attention import AuxRequest, flex_attention
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.distributed.cudagraph import wrap_with_cuda_graph
from torchtitan.distributed.fsdp import apply_fsdp_to_decoder
from torchtitan.distributed.utils import clip_grad_norm_
from torchtitan.models.common.attention import FlexAttention

CHOICES = json.loads(sys.argv[1])
STEPS = 10

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
FlexAttention._compiled_flex_attn = torch.compile(
    flex_attention, options={"wrap_inductor_compiled_regions": True, "triton.cudagraphs": False})
configs = getattr(importlib.import_module(f"torchtitan.models.{CHOICES['model']}"), f"{CHOICES['model']}_configs")
config = configs[CHOICES["flavor"]](attn_backend=CHOICES["attention"])
tokens = sum(CHOICES["documents"])
config.layers = config.layers[:CHOICES["layers"]]
for layer in config.layers:
    layer.attention.rope = dataclasses.replace(layer.attention.rope, max_seq_len=tokens)
with torch.device("meta"):
    model = config.build()
policy = {"full": FullAC, "selective": SelectiveAC, "none": None}[CHOICES["checkpoint"]]
if policy is not None:
    policy.Config().build().apply(model)
mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
apply_fsdp_to_decoder(model, mesh, param_dtype=torch.bfloat16, reduce_dtype=torch.float32, pp_enabled=False)
positions_of_row = torch.cat([torch.arange(length) for length in CHOICES["documents"]])


def compile_attention():
    """The first call of compiled code leaves its arguments in a circle of objects, which the Trainer collects every 50 steps."""
    attention = model.layers["0"].attention if CHOICES["checkpoint"] == "none" else model.layers["0"]._checkpoint_wrapped_module.attention
    shape = (CHOICES["batch"], tokens, -1, attention.head_dim)
    heads = [torch.randn(CHOICES["batch"], tokens, number * attention.head_dim, dtype=torch.bfloat16, device="cuda", requires_grad=True)
             .view(shape) for number in (attention.n_heads, attention.n_kv_heads, attention.n_kv_heads)]
    masks = model.get_attention_masks(positions=positions_of_row.repeat(CHOICES["batch"], 1).to("cuda"))
    out, _ = FlexAttention.compiled_flex_attn(
        *(head.transpose(1, 2) for head in heads), score_mod=None, block_mask=masks, scale=attention.scaling,
        enable_gqa=attention.enable_gqa, return_aux=AuxRequest(lse=False), kernel_options={})
    out.transpose(1, 2).flatten(2).sum().backward()


compile_attention()
gc.collect()
torch.cuda.empty_cache()
model.to_empty(device="cuda")
model.train()
inner = CrossEntropyLoss.Config(global_vocab_size=config.vocab_size)
loss_fn = (ChunkedLossWrapper.Config(loss_fn=inner) if CHOICES["chunked"] else inner).build(compile_config=None)
if CHOICES["chunked"]:
    loss_fn.set_lm_head(model.lm_head)
    model._skip_lm_head = True
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def forward_backward(inputs, labels, valid, extra):
    pred = model(inputs, **extra)
    loss, _ = loss_fn(pred, labels, valid)
    del pred
    loss.backward()
    return loss


run = wrap_with_cuda_graph(forward_backward) if CHOICES["graphs"] else forward_backward
for _ in range(STEPS):
    optimizer.zero_grad(set_to_none=not CHOICES["graphs"])
    inputs = torch.randint(config.vocab_size, (CHOICES["batch"], tokens)).to("cuda")
    positions = positions_of_row.repeat(CHOICES["batch"], 1).to("cuda")
    labels = torch.randint(config.vocab_size, (CHOICES["batch"], tokens)).to("cuda")
    valid = torch.tensor(labels.numel(), device="cuda")
    masks = model.get_attention_masks(positions=positions)
    loss = run(inputs, labels, valid, {"positions": positions, "attention_masks": masks})
    clip_grad_norm_(list(model.parameters()), 1.0, foreach=True)
    optimizer.step()
