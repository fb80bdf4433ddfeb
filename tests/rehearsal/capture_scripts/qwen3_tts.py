"""Trains the published code of Qwen3-TTS, small and random, as its finetuning/sft_12hz.py does.

qwen3_tts.py [FOLDER]    FOLDER: with an exported plan, planned.py, which is applied as it says
"""

import pathlib
import sys
import types

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "executor"))

from published_models import MODELS  # noqa: E402

BATCH, SEQUENCE, GROUPS = 4, 96, 4
published = next(model for model in MODELS if model.spec == "qwen3_tts")
model = published.make().to("cuda", torch.bfloat16)
model.train()
if len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])
    from planned import apply_plan
    from torch.distributed.fsdp import register_fsdp_forward_method

    torch.distributed.init_process_group("nccl")
    model = apply_plan(model)
    model.step = types.MethodType(published.loss, model)
    register_fsdp_forward_method(model, "step")
else:
    model.step = types.MethodType(published.loss, model)
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
    model.step(inputs).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
