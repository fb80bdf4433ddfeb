"""A Lightning module under one of Lightning's two FSDP strategies.

    torchrun --nproc-per-node 8 lightning_fsdp.py fsdp1|fsdp2
"""

import sys

import lightning
import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 32000, 1024, 16, 12, 512


class LanguageModel(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = None

    def configure_model(self) -> None:
        if self.model is not None:
            return
        layers = (nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True) for _ in range(LAYERS))
        self.model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *layers, nn.Linear(WIDTH, VOCABULARY))
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            mesh = self.device_mesh["data_parallel"]
            for layer in self.model[1:-1]:
                fully_shard(layer, mesh=mesh, mp_policy=policy)
            fully_shard(self.model, mesh=mesh, mp_policy=policy)

    def training_step(self, tokens: torch.Tensor, index: int) -> torch.Tensor:
        logits = self.model(tokens)
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def main() -> None:
    lightning.seed_everything(0)
    if sys.argv[1] == "fsdp1":
        options = {"strategy": FSDPStrategy(auto_wrap_policy={nn.TransformerEncoderLayer}), "precision": "bf16-mixed"}
    else:
        options = {"strategy": ModelParallelStrategy(data_parallel_size=8, tensor_parallel_size=1)}
    trainer = lightning.Trainer(accelerator="gpu", devices=8, max_steps=4, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, **options)
    tokens = torch.randint(0, VOCABULARY, (512, LENGTH))
    trainer.fit(LanguageModel(), torch.utils.data.DataLoader(tokens, batch_size=8))


if __name__ == "__main__":
    main()
