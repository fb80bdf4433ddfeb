"""Fine-tunes the published Qwen3-TTS model code under FSDP2, from random weights: the step of its own fine-tuning script, made
the forward of the root module, because FSDP2 gathers parameters in forwards.

    torchrun --nproc-per-node 4 qwen_tts_step.py CONFIG_FOLDER [options]      what may be changed: arguments_of
"""

import argparse
import fnmatch
import functools
import importlib.machinery
import json
import math
import os
import pathlib
import sys
import types

import torch
import transformers.utils.import_utils  # noqa: F401  It looks for audio packages, before the empty ones are there.
from torch.distributed.device_mesh import init_device_mesh
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
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "mixed": torch.float32}


class Step(torch.nn.Module):
    def __init__(self, model: torch.nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype  # of the activations

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        talker = self.model.talker
        input_ids, codec_ids, frames = batch["input_ids"], batch["codec_ids"], batch["codec_mask"]
        speaker = self.model.speaker_encoder(batch["ref_mels"].to(self.dtype)).detach()
        text = talker.model.text_embedding(input_ids[:, :, 0]) * batch["text_embedding_mask"]
        codec = talker.model.codec_embedding(input_ids[:, :, 1]) * batch["codec_embedding_mask"]
        codec[:, 6, :] = speaker
        embeddings = text + codec
        tables = talker.code_predictor.get_input_embeddings()
        for group in range(1, CODE_GROUPS):
            embedding = tables[group - 1](codec_ids[:, :, group])
            embedding = embedding * frames.unsqueeze(-1)
            embeddings = embeddings + embedding
        outputs = talker(
            inputs_embeds=embeddings[:, :-1, :],
            attention_mask=batch["attention_mask"][:, :-1],
            labels=batch["codec_0_labels"][:, 1:],
            output_hidden_states=True,
        )
        hidden = outputs.hidden_states[0][-1]
        talker_hidden = hidden[frames[:, 1:]]
        talker_codes = codec_ids[frames]
        logits, predictor_loss = talker.forward_sub_talker_finetune(talker_codes, talker_hidden)
        return outputs.loss + 0.3 * predictor_loss


def batch_of(clips: int, seconds: float) -> dict[str, torch.Tensor]:
    """As the data set of the fine-tuning script lays it out: 3 role tokens, the text, 8 marks, one position a frame; and 10 s of
    the speaker.
    """
    frames, text_tokens = int(12.5 * seconds), math.ceil(4 * seconds)
    begin = 3 + text_tokens + 7
    length = begin + frames + 1
    at_frames = torch.zeros(clips, length, dtype=torch.bool)
    at_frames[:, begin : begin + frames] = True
    labels = torch.full((clips, length), -100)
    labels[at_frames] = 0
    return {
        "input_ids": torch.zeros(clips, length, 2, dtype=torch.long),
        "codec_ids": torch.zeros(clips, length, CODE_GROUPS, dtype=torch.long),
        "ref_mels": torch.randn(clips, 10 * 24000 // 256, 128),
        "attention_mask": torch.ones(clips, length, dtype=torch.long),
        "text_embedding_mask": torch.ones(clips, length, 1, dtype=torch.bool),
        "codec_embedding_mask": torch.ones(clips, length, 1, dtype=torch.bool),
        "codec_mask": at_frames,
        "codec_0_labels": labels,
    }


def units_of(model: torch.nn.Module, choice: str) -> list[torch.nn.Module]:
    """`trap`: what _no_split_modules names, which are the layers of the code predictor; `blocks`: all layers; `good`: these, and
    the two embeddings of the talker.
    """
    classes = set(model._no_split_modules)
    if choice != "trap":
        classes.add("Qwen3TTSTalkerDecoderLayer")
    units = [module for module in model.modules() if type(module).__name__ in classes]
    return units + [model.talker.model.text_embedding, model.talker.model.codec_embedding] * (choice == "good")


def checkpoint(model: torch.nn.Module, choice: str) -> None:
    """Inside the units. The cache of keys and values, which training keeps on, would be filled twice: gradient_checkpointing_enable
    turns it off too.
    """
    classes = {"none": (), "talker": ("Qwen3TTSTalkerDecoderLayer",),
               "all": ("Qwen3TTSTalkerDecoderLayer", "Qwen3TTSDecoderLayer")}[choice]  # fmt: skip
    for module in model.modules():
        if type(module).__name__ in classes:
            module.forward = functools.partial(torch.utils.checkpoint.checkpoint, module.forward, use_reentrant=False)


def arguments_of(command: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("config_folder", type=pathlib.Path)
    parser.add_argument("--units", choices=["good", "blocks", "trap"], default="good")
    parser.add_argument("--precision", choices=["bf16", "fp16", "fp32", "mixed"], default="bf16")
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--checkpoint", choices=["none", "talker", "all"], default="none")
    parser.add_argument("--freeze", nargs="*", default=[], help="patterns of names of parameters")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--no_sync", action="store_true", help="reduce gradients in the last micro-batch only")
    parser.add_argument("--no_reshard", action="store_true", help="keep parameters unsharded after forward")
    parser.add_argument("--replicate", type=int, default=1)
    parser.add_argument("--optimizer", choices=["foreach", "fused", "loop"], default="foreach")
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args(command)


def sharded_step(arguments: argparse.Namespace, device: torch.device) -> torch.nn.Module:
    config = Qwen3TTSConfig(**json.loads((arguments.config_folder / "config.json").read_text()))
    if arguments.checkpoint != "none":
        config.talker_config.use_cache = config.talker_config.code_predictor_config.use_cache = False
    with torch.device("meta"):
        model = Qwen3TTSForConditionalGeneration(config)
    model = model.to(DTYPES[arguments.precision])
    for name, parameter in model.named_parameters():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in arguments.freeze):
            parameter.requires_grad_(False)
            if arguments.precision == "mixed":
                parameter.data = parameter.data.to(torch.bfloat16)  # as in the checkpoint: no master weights
    checkpoint(model, arguments.checkpoint)
    options = {"reshard_after_forward": not arguments.no_reshard}
    if arguments.precision == "mixed":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if arguments.replicate > 1:
        shape = (arguments.replicate, torch.distributed.get_world_size() // arguments.replicate)
        options["mesh"] = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    step = Step(model, torch.bfloat16 if arguments.precision == "mixed" else DTYPES[arguments.precision])
    for unit in units_of(model, arguments.units):
        fully_shard(unit, **options)
    fully_shard(step, **options | {"reshard_after_forward": None})
    step.to_empty(device=device)
    for parameter in step.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    return step


def main() -> None:
    arguments = arguments_of()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl", device_id=device)
    # The fine-tuning script asks for flash attention by name.
    torch.backends.cuda.enable_cudnn_sdp(False)
    step = sharded_step(arguments, device)
    step.train()
    kind = {"foreach": {}, "fused": {"fused": True}, "loop": {"foreach": False}}[arguments.optimizer]
    optimizer = torch.optim.AdamW(step.parameters(), lr=2e-5, weight_decay=0.01, **kind)
    batch: dict[str, torch.Tensor] = {}
    for number in range(arguments.steps):
        for micro_batch in range(arguments.accumulate):
            last = micro_batch + 1 == arguments.accumulate
            step.set_requires_gradient_sync(last or not arguments.no_sync)
            for name, tensor in batch_of(arguments.batch_size, arguments.seconds).items():
                batch[name] = tensor.to(device)
            loss = step(batch)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(step.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {number} loss {loss.item():.3f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
