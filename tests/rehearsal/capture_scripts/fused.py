"""Trains a small random Llama with Liger's kernels, whose loss works out its gradients in the forward. fused.py WORD...: apart,
the loss alone is Liger's, after a head of its own; tied, the head is the embedding."""

import sys

import torch
from liger_kernel.transformers import apply_liger_kernel_to_llama
from transformers import LlamaConfig, LlamaForCausalLM

WORDS = sys.argv[1:]
BATCH, SEQUENCE, VOCABULARY = 4, 256, 4000

apply_liger_kernel_to_llama(rope=True, swiglu=True, rms_norm=True, cross_entropy="apart" in WORDS,
                            fused_linear_cross_entropy="apart" not in WORDS)
config = LlamaConfig(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                     vocab_size=VOCABULARY, use_cache=False, tie_word_embeddings="tied" in WORDS)
model = LlamaForCausalLM(config).to("cuda", torch.bfloat16)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(10):
    ids = torch.randint(VOCABULARY, (BATCH, SEQUENCE), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
