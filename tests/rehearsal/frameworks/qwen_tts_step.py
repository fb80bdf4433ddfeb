"""Fine-tunes the published Qwen3-TTS model code under FSDP2, from random weights: the step of its own fine-tuning script, made
the forward of the root module, because FSDP2 gathers parameters in forwards.

    torchrun --nproc-per-node 4 qwen_tts_step.py CONFIG_FOLDER --units good|trap --precision bf16|mixed
"""

import argparse
import importlib.machinery
import json
import os
import pathlib
import sys
import types

import torch
import transformers.utils.import_utils  # looks for audio packages, so it comes before the empty ones
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

# Audio packages that the model code imports, and that training does not call.
AUDIO = ["librosa", "librosa.filters", "onnxruntime", "soundfile", "sox"]
AUDIO += ["torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"]
for name in AUDIO:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
sys.modules["librosa.filters"].mel = None

from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig  # noqa: E402
from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSForConditionalGeneration  # noqa: E402

CODE_GROUPS = 16


class Step(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        talker = self.model.talker
        speaker = self.model.speaker_encoder(batch["mels"]).detach()
        text = talker.model.text_embedding(batch["text_ids"]) * batch["text_mask"].unsqueeze(-1)
        codec = talker.model.codec_embedding(batch["codec_ids"][:, :, 0]) * batch["codec_embedding_mask"].unsqueeze(-1)
        codec[:, 6, :] = speaker
        embeddings = text + codec
        tables = talker.code_predictor.get_input_embeddings()
        for group in range(1, CODE_GROUPS):
            embeddings = embeddings + tables[group - 1](batch["codec_ids"][:, :, group]) * batch["frames"].unsqueeze(-1)
        outputs = talker(
            inputs_embeds=embeddings[:, :-1],
            attention_mask=batch["attention_mask"][:, :-1],
            labels=batch["labels"][:, 1:],
            output_hidden_states=True,
        )
        hidden = outputs.hidden_states[0][-1][batch["frames"][:, 1:]]
        _, predictor_loss = talker.forward_sub_talker_finetune(batch["codec_ids"][batch["frames"]], hidden)
        return outputs.loss + 0.3 * predictor_loss


def batch_of(clips: int, seconds: float, text_tokens: int) -> dict[str, torch.Tensor]:
    """As the data set of the fine-tuning script lays it out: 3 role tokens, the text, 8 marks, one position a frame."""
    frames = int(12.5 * seconds)
    begin = 3 + text_tokens + 7
    length = begin + frames + 1
    at_frames = torch.zeros(clips, length, dtype=torch.bool)
    at_frames[:, begin : begin + frames] = True
    labels = torch.full((clips, length), -100)
    labels[at_frames] = 0
    return {
        "mels": torch.randn(clips, int(seconds * 24000) // 256, 128),
        "text_ids": torch.zeros(clips, length, dtype=torch.long),
        "text_mask": torch.ones(clips, length, dtype=torch.bool),
        "codec_ids": torch.zeros(clips, length, CODE_GROUPS, dtype=torch.long),
        "codec_embedding_mask": torch.ones(clips, length, dtype=torch.bool),
        "frames": at_frames,
        "attention_mask": torch.ones(clips, length, dtype=torch.long),
        "labels": labels,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config_folder", type=pathlib.Path)
    parser.add_argument("--units", choices=["good", "trap"], default="good")
    parser.add_argument("--precision", choices=["bf16", "mixed"], default="bf16")
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl", device_id=device)
    # The fine-tuning script asks for flash attention by name.
    torch.backends.cuda.enable_cudnn_sdp(False)

    config = Qwen3TTSConfig(**json.loads((arguments.config_folder / "config.json").read_text()))
    with torch.device("meta"):
        model = Qwen3TTSForConditionalGeneration(config)
    step = Step(model.to(torch.bfloat16) if arguments.precision == "bf16" else model)
    policy = MixedPrecisionPolicy()
    if arguments.precision == "mixed":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    classes = set(model._no_split_modules)
    if arguments.units == "good":
        classes.add("Qwen3TTSTalkerDecoderLayer")
    units = [module for module in model.modules() if type(module).__name__ in classes]
    if arguments.units == "good":
        units += [model.talker.model.text_embedding, model.talker.model.codec_embedding]
    for unit in units:
        fully_shard(unit, mp_policy=policy)
    fully_shard(step, mp_policy=policy)
    step.to_empty(device=device)
    for parameter in step.parameters():
        torch.nn.init.normal_(parameter, std=0.02)

    step.train()
    optimizer = torch.optim.AdamW(step.parameters(), lr=2e-5, weight_decay=0.01)
    dtype = torch.bfloat16 if arguments.precision == "bf16" else torch.float32
    for number in range(arguments.steps):
        batch = {name: tensor.to(device) for name, tensor in batch_of(arguments.batch_size, 10.0, 40).items()}
        batch["mels"] = batch["mels"].to(dtype)
        loss = step(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(step.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {number} loss {loss.item():.3f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
