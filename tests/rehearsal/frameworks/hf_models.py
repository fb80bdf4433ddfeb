"""Trains any Hugging Face model from random weights, with nothing but PyTorch around it.

    python hf_models.py MODEL_FOLDER plain
    torchrun --nproc-per-node 8 hf_models.py MODEL_FOLDER ddp|fsdp2 --batch_size 4 --block_size 1024
"""

import argparse
import os

import torch
import transformers
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel


def batch_for(config: transformers.PretrainedConfig, size: int, length: int, device: torch.device) -> dict[str, torch.Tensor]:
    if config.model_type == "vit":
        pixels = torch.randn(size, config.num_channels, config.image_size, config.image_size, device=device)
        return {"pixel_values": pixels, "labels": torch.randint(0, config.num_labels, (size,), device=device)}
    tokens = torch.randint(0, config.vocab_size, (size, length), device=device)
    if config.model_type == "whisper":
        sound = torch.randn(size, config.num_mel_bins, 2 * config.max_source_positions, device=device)
        return {"input_features": sound, "labels": tokens}
    return {"input_ids": tokens, "labels": tokens}


def shard(model: torch.nn.Module, blocks: list[str]) -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for module in model.modules():
        if type(module).__name__ in blocks:
            fully_shard(module, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config_name")
    parser.add_argument("how", choices=["plain", "ddp", "fsdp2"])
    parser.add_argument("--blocks", nargs="*", default=[], help="classes that become units of FSDP2")
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--block_size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()

    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    if arguments.how != "plain":
        torch.distributed.init_process_group("nccl", device_id=device)
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(arguments.config_name)
    kind = getattr(transformers, config.architectures[0])
    if arguments.how == "fsdp2":
        with torch.device("meta"):
            model = kind(config)
        shard(model, arguments.blocks)
        model.to_empty(device=device)
        model.init_weights()
    else:
        with device:
            model = kind(config)
    if arguments.how == "ddp":
        model = DistributedDataParallel(model, device_ids=[device.index])

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(arguments.steps):
        batch = batch_for(config, arguments.batch_size, arguments.block_size, device)
        with torch.autocast("cuda", torch.bfloat16, enabled=arguments.how != "fsdp2"):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.3f}")
    if arguments.how != "plain":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
