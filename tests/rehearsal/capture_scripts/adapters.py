"""Fine-tunes a small random Llama through PEFT, as people do. adapters.py WORD...: what differs from LoRA on bf16 weights."""

import sys

import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import LlamaConfig, LlamaForCausalLM

WORDS = sys.argv[1:]
BATCH, SEQUENCE, VOCABULARY = 4, 256, 4000
CONFIG = LlamaConfig(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                     vocab_size=VOCABULARY, use_cache=False)


def in_four_bits(model, storage):
    """What from_pretrained does with a BitsAndBytesConfig: linear layers of the blocks are replaced, and quantized on the way
    to the GPU."""
    import bitsandbytes as bnb

    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            new = bnb.nn.Linear4bit(module.in_features, module.out_features, bias=False, compute_dtype=torch.bfloat16,
                                    compress_statistics="double" in WORDS, quant_type="nf4", quant_storage=storage)
            new.weight = bnb.nn.Params4bit(module.weight.data, requires_grad=False, compress_statistics="double" in WORDS,
                                           quant_type="nf4", quant_storage=storage, module=new)
            model.set_submodule(name, new)
    model.is_loaded_in_4bit, model.is_quantized = True, True
    return model.cuda()


model = LlamaForCausalLM(CONFIG).to(torch.bfloat16)
if "nf4" in WORDS:
    model = in_four_bits(model, torch.uint8 if "uint8" in WORDS else torch.bfloat16)
if "prepared" in WORDS:
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
lora = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05 if "dropout" in WORDS else 0.0, task_type="CAUSAL_LM",
                  target_modules="all-linear")
model = get_peft_model(model.cuda(), lora, autocast_adapter_dtype="bf16" not in WORDS)
if "recomputable" in WORDS:
    model.enable_input_require_grads()
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for _ in range(10):
    ids = torch.randint(VOCABULARY, (BATCH, SEQUENCE), device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled="autocast" in WORDS):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
