"""Fine-tunes the published code of Qwen3-TTS as its finetuning/sft_12hz.py does, from random weights and on made-up clips.

    python finetune_qwen3_tts.py CONFIG.JSON [--batch-size 2] [--seconds 10]

It knows nothing of FSDP. As the published script, it never calls the model: it calls the speaker encoder, the embedding tables, the
talker and the code predictor one after another. CONFIG.JSON is that of the checkpoint, such as Qwen3-TTS-12Hz-1.7B-Base.
"""

import argparse
import importlib.machinery
import json
import math
import sys
import types

import torch
import transformers.utils.import_utils  # noqa: F401  It looks for audio packages, before the empty ones are there.
from accelerate import Accelerator
from torch.utils.data import DataLoader

# Audio packages that the model's code imports, and that training does not call.
for name in ("librosa", "librosa.filters", "onnxruntime", "soundfile", "sox", "torchaudio", "torchaudio.compliance",
             "torchaudio.compliance.kaldi"):  # fmt: skip
    sys.modules.setdefault(name, types.ModuleType(name)).__spec__ = importlib.machinery.ModuleSpec(name, None)
sys.modules["librosa.filters"].mel = None

from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig  # noqa: E402
from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSForConditionalGeneration  # noqa: E402


def make_model(path):
    with open(path, encoding="utf-8") as text:
        config = Qwen3TTSConfig(**json.load(text))
    with torch.device("meta"):
        model = Qwen3TTSForConditionalGeneration(config)
    return model.to(torch.bfloat16).to_empty(device="cuda")


def clip(seconds, groups):
    """As the data set of the fine-tuning lays one out: 3 role tokens, the text, 8 marks, one position a frame; and 10 s of the
    speaker.
    """
    frames, text = int(12.5 * seconds), math.ceil(4 * seconds)
    begin = 3 + text + 7
    length = begin + frames + 1
    at_frames = torch.zeros(length, dtype=torch.bool)
    at_frames[begin : begin + frames] = True
    return {
        "input_ids": torch.zeros(length, 2, dtype=torch.long),
        "codec_ids": torch.zeros(length, groups, dtype=torch.long),
        "ref_mels": torch.randn(10 * 24000 // 256, 128),
        "attention_mask": torch.ones(length, dtype=torch.long),
        "text_embedding_mask": torch.ones(length, 1, dtype=torch.bool),
        "codec_embedding_mask": torch.ones(length, 1, dtype=torch.bool),
        "codec_mask": at_frames,
        "codec_0_labels": torch.where(at_frames, 0, -100),
    }


def loss_of(model, batch):
    talker = model.talker
    ids, codes, frames = batch["input_ids"], batch["codec_ids"], batch["codec_mask"]
    speaker = model.speaker_encoder(batch["ref_mels"].to(model.device).to(model.dtype)).detach()
    text = talker.model.text_embedding(ids[:, :, 0]) * batch["text_embedding_mask"]
    codec = talker.model.codec_embedding(ids[:, :, 1]) * batch["codec_embedding_mask"]
    codec[:, 6, :] = speaker
    embedded = text + codec
    tables = talker.code_predictor.get_input_embeddings()
    for group in range(1, codes.shape[2]):
        embedded = embedded + tables[group - 1](codes[:, :, group]) * frames.unsqueeze(-1)
    outputs = talker(
        inputs_embeds=embedded[:, :-1],
        attention_mask=batch["attention_mask"][:, :-1],
        labels=batch["codec_0_labels"][:, 1:],
        output_hidden_states=True,
    )
    hidden = outputs.hidden_states[0][-1][frames[:, 1:]]
    predictor_loss = talker.forward_sub_talker_finetune(codes[frames], hidden)[1]
    return outputs.loss + 0.3 * predictor_loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--lr", type=float, default=2e-6)
    arguments = parser.parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=4, mixed_precision="bf16")
    model = make_model(arguments.config)
    clips = [clip(arguments.seconds, model.config.talker_config.num_code_groups)] * 4096
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, weight_decay=0.01)
    loader = DataLoader(clips, batch_size=arguments.batch_size)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()
    for batch in loader:
        with accelerator.accumulate(model):
            loss = loss_of(model, batch)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
