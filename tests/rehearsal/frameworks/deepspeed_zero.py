"""A training loop with DeepSpeed; the stage and what is offloaded come from the JSON file.

    deepspeed --num_gpus 8 deepspeed_zero.py MODEL_FOLDER --deepspeed_config zero3.json
"""

import argparse

import deepspeed
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations import HfDeepSpeedConfig


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config_name")
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--block_size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=4)
    deepspeed.add_config_arguments(parser)
    arguments = parser.parse_args()

    deepspeed.init_distributed()
    config = AutoConfig.from_pretrained(arguments.config_name)
    stage = HfDeepSpeedConfig(arguments.deepspeed_config).get_value("zero_optimization.stage", 0)
    with deepspeed.zero.Init(config_dict_or_path=arguments.deepspeed_config, enabled=stage == 3):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    engine, _, _, _ = deepspeed.initialize(args=arguments, model=model)

    generator = torch.Generator().manual_seed(0)
    for step in range(arguments.steps):
        tokens = torch.randint(0, config.vocab_size, (1, arguments.block_size), generator=generator).to(engine.device)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        if engine.global_rank == 0:
            print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
