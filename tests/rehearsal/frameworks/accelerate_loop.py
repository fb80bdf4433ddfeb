"""A training loop with accelerate; sharding and precision come from the YAML file that accelerate launch is given.

    accelerate launch --config_file fsdp2.yaml accelerate_loop.py MODEL_FOLDER
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import AutoConfig, AutoModelForCausalLM


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config_name")
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--block_size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()

    accelerator = Accelerator()
    set_seed(0)
    config = AutoConfig.from_pretrained(arguments.config_name)
    model = AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, config.vocab_size, (512, arguments.block_size))
    loader = torch.utils.data.DataLoader(tokens, batch_size=arguments.batch_size)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    model.train()
    for step, batch in enumerate(loader):
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(f"step {step} loss {loss.item():.3f}")
        if step + 1 == arguments.steps:
            break
    accelerator.end_training()


if __name__ == "__main__":
    main()
