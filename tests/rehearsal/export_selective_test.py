"""`export PLAN --to fsdp2` of plans that checkpoint blocks selectively: models of transformers run with what is exported, under
the real FSDP2 and PyTorch's own policy, and hold what the plan predicts.

    export_selective_test.py STUB FSDP_PLAN      run by a Python that has torch and transformers; exit 77 without transformers
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import unittest
from typing import Any

from program_in_a_folder import ProgramInAFolder

GPUS = ("--gpus", "4", "--gpu", "H100 SXM")
PLANNED = ("--batch", "2", "--seq", "256", "--strategy", "FULL_SHARD", "--wrap", "blocks", "--force", "--quiet")
CONFIGURATION = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "vocab_size": 4000, "torch_dtype": "bfloat16"}  # fmt: skip
CONFIGURATIONS = {
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},  # Some of its linear layers have biases.
    "mixtral": {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4},
}
# The loop keeps no labels of its own, 2 x 256 numbers of 8 bytes; the rest is the rounding of single tensors.
BESIDE = 4096

SCRIPT = '''
import sys
import torch
import torch.distributed as dist
import transformers
from exported import apply_plan

dist.init_process_group("nccl")
torch.cuda.set_device(0)
config = transformers.AutoConfig.from_pretrained(sys.argv[1])
model = apply_plan(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).cuda())
optimizer = torch.optim.AdamW(model.parameters())
ids = torch.randint(1000, (2, 256), device="cuda")
mask = torch.ones(2, 256, dtype=torch.long)
for _ in range(12):
    model(input_ids=ids, labels=ids, attention_mask=mask.cuda()).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
'''


class Selective(ProgramInAFolder):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        (cls.folder / "train.py").write_text(SCRIPT, encoding="utf-8")
        for name, own in CONFIGURATIONS.items():
            (cls.folder / name).mkdir()
            (cls.folder / name / "config.json").write_text(json.dumps({**CONFIGURATION, **own}), encoding="utf-8")

    def peaks(self, model: str, checkpointing: str, *words: str, **kept: Any) -> list[tuple[int, int]]:
        """For a steady step, live and allocated: what is predicted, and what is measured with the exported code."""
        self.run_program(model, *GPUS, *PLANNED, "-o", "plan.json", "--activation-checkpointing", checkpointing, *words)
        plan = self.folder / "plan.json"
        written = json.loads(plan.read_text(encoding="utf-8"))
        written["activation_checkpointing"].update(kept)
        plan.write_text(json.dumps(written), encoding="utf-8")
        (self.folder / "exported.py").write_text(self.run_program("export", "plan.json", "--to", "fsdp2"), encoding="utf-8")
        predicted = json.loads(self.run_program("simulate", "plan.json", "--rank", "0", "--json"))
        measured = json.loads(self.run_program("rehearse", *GPUS, "--json", "--", sys.executable, "train.py", model))
        return [tuple(each["memory"]["phases"]["steady_step"][key] for each in (predicted, measured))
                for key in ("live_peak_bytes", "allocated_peak_bytes")]

    def test_some_blocks_save_attention_and_every_second_linear_layer(self) -> None:
        for predicted, measured in self.peaks("qwen2", "selective:3"):
            self.assertLessEqual(abs(measured - predicted), BESIDE, f"{measured} are measured, {predicted} predicted")

    def test_blocks_save_all_linear_layers_and_no_attention(self) -> None:
        for predicted, measured in self.peaks("qwen2", "selective", selective_keep=["linear"], every_second_linear=False):
            self.assertLessEqual(abs(measured - predicted), BESIDE, f"{measured} are measured, {predicted} predicted")

    def test_frozen_parameters_get_no_gradient(self) -> None:
        frozen = ("--freeze", "model.layers.0.*", "model.layers.1.mlp.*", "model.norm.weight")
        for predicted, measured in self.peaks("qwen2", "selective:3", *frozen):
            self.assertLessEqual(abs(measured - predicted), BESIDE, f"{measured} are measured, {predicted} predicted")

    def test_the_products_of_experts_are_no_linear_layers(self) -> None:
        """How tokens reach experts is the data's; that is in both of these, and what is kept only in one."""
        whole = self.peaks("mixtral", "full")
        for (predicted, measured), (of_whole, measured_of_whole) in zip(self.peaks("mixtral", "selective"), whole):
            self.assertGreater(predicted, of_whole)
            self.assertLessEqual(abs((measured - measured_of_whole) - (predicted - of_whole)), 512)


if __name__ == "__main__":
    if importlib.util.find_spec("transformers") is None:
        sys.exit(77)
    ProgramInAFolder.program = os.path.abspath(sys.argv.pop(2))
    del sys.argv[1]
    unittest.main(verbosity=2)
