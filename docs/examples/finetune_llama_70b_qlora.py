"""QLoRA of a Llama with 70 billion parameters, as Answer.AI's FSDP-QLoRA does it: NF4 weights in bf16 storage, LoRA by PEFT.

From random weights: a plan depends on shapes. With real ones each matrix is read from a file where `empty` stands.
"""

import argparse

import bitsandbytes as bnb
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=1)
parser.add_argument("--tokens", type=int, default=512)
args = parser.parse_args()

config = LlamaConfig(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
                     vocab_size=128256, max_position_embeddings=131072, rope_theta=500000.0, use_cache=False)
torch.set_default_dtype(torch.bfloat16)
with torch.device("meta"):
    model = LlamaForCausalLM(config)
model.model.rotary_emb = type(model.model.rotary_emb)(config).cuda()


def empty(like):
    return torch.empty(like.shape, dtype=torch.bfloat16, device="cuda")


for name, module in list(model.named_modules()):
    if isinstance(module, torch.nn.Linear) and name != "lm_head":
        linear = bnb.nn.Linear4bit(module.in_features, module.out_features, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4",
                                   quant_storage=torch.bfloat16, device="meta")
        linear.weight = bnb.nn.Params4bit(empty(module.weight), requires_grad=False, quant_type="nf4",
                                          quant_storage=torch.bfloat16, module=linear).cuda()
        model.set_submodule(name, linear)
for module in model.modules():
    for name, parameter in list(module.named_parameters(recurse=False)):
        if parameter.is_meta:
            setattr(module, name, torch.nn.Parameter(empty(parameter)))
model.is_loaded_in_4bit, model.is_quantized = True, True

model = get_peft_model(model, LoraConfig(r=64, lora_alpha=16, task_type="CAUSAL_LM", target_modules="all-linear"),
                       autocast_adapter_dtype=False)
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
for _ in range(10):
    ids = torch.randint(config.vocab_size, (args.batch_size, args.tokens), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
    optimizer.step()
    optimizer.zero_grad()
