"""Trains a language model from random weights with the Hugging Face Trainer. How it is sharded, and in which precision,
comes from the command line or from accelerate; nothing here names it.

    torchrun --nproc-per-node 8 hf_trainer.py --config_name MODEL_FOLDER --output_dir OUT --fsdp "full_shard auto_wrap" ...
"""

from dataclasses import dataclass

import torch
from transformers import AutoConfig, AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    config_name: str
    block_size: int = 1024


class RandomText(torch.utils.data.Dataset):
    def __init__(self, vocab_size: int, block_size: int, length: int = 512):
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, vocab_size, (length, block_size), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main() -> None:
    model_arguments, training_arguments = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    config = AutoConfig.from_pretrained(model_arguments.config_name)
    model = AutoModelForCausalLM.from_config(config)
    trainer = Trainer(model=model, args=training_arguments, train_dataset=RandomText(config.vocab_size, model_arguments.block_size))
    trainer.train()


if __name__ == "__main__":
    main()
