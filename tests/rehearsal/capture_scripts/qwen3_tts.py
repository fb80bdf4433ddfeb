"""Trains the published code of Qwen3-TTS, small and random, as its finetuning/sft_12hz.py does."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "executor"))

from published_models import MODELS  # noqa: E402

BATCH, SEQUENCE, GROUPS = 4, 96, 4
published = next(model for model in MODELS if model.spec == "qwen3_tts")
model = published.make().to("cuda", torch.bfloat16)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-6, weight_decay=0.01)
for _ in range(10):
    ids = torch.randint(32, (BATCH, SEQUENCE, 2), device="cuda")
    ones = torch.ones(BATCH, SEQUENCE, 1, dtype=torch.bfloat16, device="cuda")
    inputs = {
        "input_ids": ids,
        "codec_ids": torch.randint(32, (BATCH, SEQUENCE, GROUPS), device="cuda"),
        "ref_mels": torch.randn(BATCH, 64, 8, device="cuda"),
        "text_embedding_mask": ones,
        "codec_embedding_mask": ones,
        "codec_mask": torch.ones(BATCH, SEQUENCE, dtype=torch.bool, device="cuda"),
        "attention_mask": torch.ones(BATCH, SEQUENCE, dtype=torch.int64, device="cuda"),
        "codec_0_labels": ids[:, :, 1].contiguous(),
    }
    published.loss(model, inputs).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
