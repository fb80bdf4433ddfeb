"""Plans of LoRA from a folder of Hugging Face are held to scripts of the real transformers and PEFT under the real FSDP2:
collectives, and requested, allocated and reserved bytes of each phase.

    lora_test.py STUB FSDP_PLAN      run by a Python that has torch, transformers and PEFT; exit 77 without them
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pathlib
import sys
import unittest
from typing import Any

from program_in_a_folder import ProgramInAFolder
from transformers_plans import TransformersPlans

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "peft_fsdp2.py"
GPUS = ("--gpus", "4", "--gpu", "H100 SXM")


@dataclasses.dataclass
class Case:
    name: str
    model: str
    gpus: int
    lora: str  # As --lora reads it.
    peft: dict[str, Any]  # The same for LoraConfig.
    precision: str = "mixed"
    checkpoint: bool = False
    batch: int = 2
    seq: int = 512
    reserved: float = 0.03  # Relative difference.

    @property
    def bounds(self) -> tuple[float, float, float]:
        return 0.001, 0.001, self.reserved


MADE = """
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

config = AutoConfig.from_pretrained("llama")


def made():
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    return get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
"""
# They do what the exported files say that a script must.
LOOP = """
import torch
from accelerate import Accelerator
from made import config, made

accelerator = Accelerator()
model = made()
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
for _ in range(10):
    ids = torch.randint(config.vocab_size, (2, 512), device="cuda")
    labels = ids.clone()
    accelerator.backward(model(input_ids=ids, labels=labels).loss)
    optimizer.step()
    optimizer.zero_grad()
"""
TRAINER = """
import tempfile
import torch
from exported import training_arguments
from made import config, made
from transformers import Trainer


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        text = torch.randint(config.vocab_size, (512,))
        return {"input_ids": text, "labels": text}


arguments = training_arguments(tempfile.mkdtemp(), max_steps=20, report_to="none", save_strategy="no", disable_tqdm=True)
Trainer(made(), arguments, train_dataset=Texts()).train()
"""

ALL = {"target_modules": "all-linear", "task_type": "CAUSAL_LM"}
CASES = [
    Case("llama_mixed", "llama", 4, "r=16,alpha=32", {"r": 16, "lora_alpha": 32, **ALL}),
    Case("llama_bf16", "llama", 4, "16", {"r": 16, **ALL}, precision="bf16"),
    Case("llama_dropout_checkpoint", "llama", 8, "r=8,dropout=0.05", {"r": 8, "lora_dropout": 0.05, **ALL}, checkpoint=True),
    Case("llama_bf16_checkpoint", "llama", 2, "r=64", {"r": 64, **ALL}, precision="bf16", checkpoint=True),
    Case("llama_attention_alone", "llama", 16, "r=16,targets=q_proj+v_proj", {"r": 16, "target_modules": ["q_proj", "v_proj"]}),
    Case("qwen3_mixed", "qwen3", 2, "r=16,dropout=0.1", {"r": 16, "lora_dropout": 0.1, **ALL}),
    Case("qwen3_bf16_checkpoint", "qwen3", 4, "r=32", {"r": 32, **ALL}, precision="bf16", checkpoint=True, batch=1, seq=1024),
    Case("qwen2_biases", "qwen2", 4, "r=16,dropout=0.05", {"r": 16, "lora_dropout": 0.05, **ALL}),
    Case("modules_to_save", "llama", 4, "r=16,modules_to_save=lm_head+embed_tokens",
         {"r": 16, "modules_to_save": ["lm_head", "embed_tokens"], **ALL}),
    Case("tiny_dropout_checkpoint", "tiny", 4, "r=8,dropout=0.05", {"r": 8, "lora_dropout": 0.05, **ALL}, checkpoint=True),
    Case("full_bf16", "llama", 4, "", {}, precision="bf16"),
    Case("one_gpu", "llama", 1, "r=16", {"r": 16, **ALL}),
]


class PlansOfLora(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name, text in (("made.py", MADE), ("loop.py", LOOP), ("trainer.py", TRAINER)):
            (cls.folder / name).write_text(text, encoding="utf-8")

    def check(self, case: Case) -> None:
        choices = {"lora": case.peft, "batch": case.batch, "seq": case.seq}
        lora = ("--lora", case.lora) if case.lora else ()
        self.hold(case, SCRIPT, choices, "--batch", str(case.batch), "--seq", str(case.seq), *lora, "--runtime", "fsdp2")

    def exported(self, trainer: str, *choices: str) -> str:
        self.run_program("llama", *GPUS, "--batch", "2", "--seq", "512", "--lora", "r=16,alpha=32", "--precision", "mixed", "--wrap", "blocks",
                         "--strategy", "FULL_SHARD", "--offload", "no", "--optimizer-impl", "foreach", *choices, "--force", "--quiet",
                         "-o", "plan.json")  # fmt: skip
        text = self.run_program("export", "plan.json", "--to", trainer, "--nearest", "near.json", "--force")
        self.assertRegex(text, r'adapters: +peft.get_peft_model\(model, LoraConfig\(r=16, lora_alpha=32, target_modules="all-linear"\)\) before')
        self.assertRegex(text, "model: +trained parameters in float32, frozen ones in bfloat16;")
        return text

    def follow(self, name: str, *command: str) -> None:
        """Holds a script to the nearest plan: after the first step, whose loading is the trainer's, and all collectives but counts of tokens."""
        measured = json.loads(self.run_program("rehearse", *GPUS, "--record-stream", "done", "--json", "--", sys.executable, *command))
        predicted = json.loads(self.run_program("simulate", "near.json", "--rank", "0", "--json"))
        measured["traffic"]["collectives"] = [each for each in measured["traffic"]["collectives"] if each["dtype"] != "int64"]
        measured["memory"]["phases"] = {"steady_step": measured["memory"]["phases"]["steady_step"]}
        self.compare(Case(name, "llama", 4, "", {}), measured, predicted)

    def test_accelerate_follows_the_exported_plan(self) -> None:
        """With its own units: in a model of PEFT, the embedding and the head without the norm."""
        (self.folder / "accelerate.yaml").write_text(self.exported("accelerate", "--activation-checkpointing", "none", "--clip-grad-norm", "none"))
        self.follow("accelerate", "-m", "accelerate.commands.launch", "--config_file", "accelerate.yaml", "loop.py")

    def test_the_trainer_follows_the_exported_plan(self) -> None:
        (self.folder / "exported.py").write_text(self.exported("trainer", "--activation-checkpointing", "full", "--clip-grad-norm", "1"))
        self.follow("trainer", "-m", "torch.distributed.run", "--nproc-per-node", "4", "trainer.py")

    def test_older_accelerate_would_convert_the_base(self) -> None:
        self.exported("accelerate", "--activation-checkpointing", "none", "--clip-grad-norm", "none")
        with self.assertRaisesRegex(AssertionError, "accelerate 1.12 converts frozen parameters to float32 as well"):
            self.run_program("export", "plan.json", "--to", "accelerate", "--trainer-version", "1.12", "--nearest", "older.json", "--force")


for _case in CASES:
    setattr(PlansOfLora, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("peft") is None:
        sys.exit(77)
    ProgramInAFolder.program = str(pathlib.Path(sys.argv[2]).resolve())
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
