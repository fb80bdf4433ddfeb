"""The update of verl's actor, as main_ppo's workers run it: verl_actor.py PROMPT RESPONSE OVERRIDES..., with every row of full length.

Without Ray, which starts the workers and hands them their batches, and without the engine that generates.
"""

import sys

import torch
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.device import set_expandable_segments
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.utils.padding import left_right_2_no_padding

prompt, response = int(sys.argv[1]), int(sys.argv[2])
with initialize_config_module(config_module="verl.trainer.config", version_base=None):
    config = compose("ppo_trainer", overrides=sys.argv[3:])
of_actor = config.actor_rollout_ref.actor
worker = ActorRolloutRefWorker(config.actor_rollout_ref, role="actor")
worker.init_model()
set_expandable_segments(True)  # As after the weights have gone to the engine.
ranks = worker.actor.engine.get_data_parallel_size()
samples = of_actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
rows, length = samples // ranks, prompt + response
torch.manual_seed(0)


def batch() -> TensorDict:
    ids = torch.randint(3, 60, (rows, length))
    numbers = {name: torch.zeros(rows, response) for name in ("old_log_probs", "advantages", "ref_log_prob")}
    made = {"input_ids": ids, "prompts": ids[:, :prompt], "responses": ids[:, prompt:], "attention_mask": torch.ones_like(ids),
            "response_mask": torch.ones(rows, response, dtype=torch.int64),
            "position_ids": torch.arange(length).expand(rows, -1).contiguous(), **numbers}  # fmt: skip
    data = left_right_2_no_padding(TensorDict(made, batch_size=[rows]))
    tu.assign_non_tensor(
        data, temperature=config.actor_rollout_ref.rollout.temperature, calculate_entropy=of_actor.entropy_coeff != 0,
        global_batch_size=samples, mini_batch_size=samples, epochs=of_actor.ppo_epochs, seed=of_actor.data_loader_seed,
        dataloader_kwargs={"shuffle": of_actor.shuffle}, compute_loss=True)  # fmt: skip
    return data


for _ in range(3):
    worker.update_actor(batch())
