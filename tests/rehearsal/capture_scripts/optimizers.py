"""Trains a small random Llama with other optimizers than AdamW as it is by default. optimizers.py NAME"""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

NAME = sys.argv[1]
BATCH, SEQUENCE, VOCABULARY = 4, 256, 4000
CONFIG = LlamaConfig(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                     vocab_size=VOCABULARY, use_cache=False)


def bitsandbytes(model):
    import bitsandbytes as bnb

    return [bnb.optim.AdamW8bit(model.parameters(), lr=1e-4)]


def paged(model):
    import bitsandbytes as bnb

    return [bnb.optim.PagedAdamW8bit(model.parameters(), lr=1e-4)]


def torchao(model):
    from torchao.optim import AdamW8bit

    return [AdamW8bit(model.parameters(), lr=1e-4)]


def muon(model):
    """Its matrices by Muon, the rest by AdamW, as in Muon's own description."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    taken = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in taken]
    return [torch.optim.Muon(matrices, lr=1e-3), torch.optim.AdamW(rest, lr=1e-4)]


def muon_behind(model):
    """It steps after AdamW, without Nesterov's momentum. For matrices as wide as these DTensor makes other collectives."""
    first, second = muon(model)
    return [second, torch.optim.Muon(first.param_groups[0]["params"], lr=1e-3, nesterov=False, ns_steps=6)]


def muon_alone(model):
    return [torch.optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=1e-3)]


def amsgrad(model):
    return [torch.optim.AdamW(model.parameters(), lr=1e-4, amsgrad=True)]


def adafactor(model):
    from transformers.optimization import Adafactor

    return [Adafactor(model.parameters(), lr=1e-4, scale_parameter=False, relative_step=False)]


def adagrad(model):
    return [torch.optim.Adagrad(model.parameters(), lr=1e-4)]


def nadam(model):
    return [torch.optim.NAdam(model.parameters(), lr=1e-4)]


def two(model):
    """Embeddings by SGD, the rest by AdamW."""
    embeddings = [model.get_input_embeddings().weight]
    rest = [p for p in model.parameters() if p is not embeddings[0]]
    return [torch.optim.SGD(embeddings, lr=1e-3), torch.optim.AdamW(rest, lr=1e-4)]


MAKERS = (bitsandbytes, paged, torchao, muon, muon_behind, muon_alone, amsgrad, adafactor, adagrad, nadam, two)
if NAME == "muon_behind":
    CONFIG.update({"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 1, "num_attention_heads": 16})
model = LlamaForCausalLM(CONFIG).to("cuda", torch.float32 if NAME == "muon_behind" else torch.bfloat16)
if NAME == "muon_alone":
    for p in model.parameters():
        p.requires_grad_(p.ndim == 2)
optimizers = {maker.__name__: maker for maker in MAKERS}[NAME](model)
for _ in range(10):
    ids = torch.randint(VOCABULARY, (BATCH, SEQUENCE), device="cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
