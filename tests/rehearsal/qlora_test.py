"""Plans of adapters on a base in four bits are held to scripts of the real transformers, PEFT, bitsandbytes and accelerate under the
real FSDP2 and DDP: collectives, and requested, allocated and reserved bytes of each phase.

    qlora_test.py STUB FSDP_PLAN      run by a Python that has torch and those; exit 77 without them
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import sys
import unittest
from typing import Any

import lora_test
from program_in_a_folder import ProgramInAFolder

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "qlora_fsdp2.py"
MODELS = ("llama", "qwen3", "qwen2")
SAVED = """
import sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM

for name in sys.argv[1:]:
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name)).to(torch.bfloat16).save_pretrained(name)
"""
# It does what the exported file says that a script must.
LOOP = """
import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("llama", quantization_config=QUANTIZATION, dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
for _ in range(10):
    ids = torch.randint(4000, (4, 2048), device="cuda")
    labels = ids.clone()
    accelerator.backward(model(input_ids=ids, labels=labels).loss)
    optimizer.step()
    optimizer.zero_grad()
"""


@dataclasses.dataclass
class Case:
    name: str
    model: str
    gpus: int
    quantize: str  # As --quantize reads it.
    bits: dict[str, Any]  # The same for BitsAndBytesConfig.
    lora: str
    peft: dict[str, Any]
    precision: str = "mixed"
    checkpoint: bool = False
    runtime: str = "fsdp2"
    reserved: float = 0.03  # Relative difference.


NF4 = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_quant_storage": "bfloat16"}
DOUBLE = {**NF4, "bnb_4bit_use_double_quant": True}
ALL = {"target_modules": "all-linear", "task_type": "CAUSAL_LM"}
CASES = [
    Case("qlora_mixed", "llama", 4, "nf4", NF4, "r=16,alpha=32", {"r": 16, "lora_alpha": 32, **ALL}),
    Case("qlora_double_checkpoint", "qwen3", 2, "nf4,double", DOUBLE, "r=8,dropout=0.05", {"r": 8, "lora_dropout": 0.05, **ALL},
         checkpoint=True),
    Case("qlora_bf16_biases", "qwen2", 8, "fp4", {**NF4, "bnb_4bit_quant_type": "fp4"}, "r=16", {"r": 16, **ALL}, precision="bf16"),
    Case("qlora_ddp_bytes", "llama", 2, "nf4,double,uint8", {**DOUBLE, "bnb_4bit_quant_storage": "uint8"}, "r=16", {"r": 16, **ALL},
         precision="bf16", checkpoint=True, runtime="ddp"),
]


class PlansOfQlora(ProgramInAFolder):
    compare = lora_test.PlansOfLora.compare

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name in MODELS:
            (cls.folder / name).mkdir()
            (cls.folder / name / "config.json").write_text(json.dumps(lora_test.CONFIGS[name]), encoding="utf-8")
        (cls.folder / "saved.py").write_text(SAVED, encoding="utf-8")
        subprocess.run([sys.executable, "saved.py", *MODELS], cwd=cls.folder, check=True)

    def plan(self, case: Case, *choices: str) -> None:
        of_units = ("--wrap", "blocks", "--wrap-ends", "no", "--reshard", "true", "--prefetch", "0", "--backward-prefetch", "1")
        self.run_program(case.model, "--gpus", str(case.gpus), "--gpu", "H100 SXM", "--batch", "4", "--seq", "2048", "--lora", case.lora,
                         "--quantize", case.quantize, "--precision", case.precision, "--runtime", case.runtime, "--optimizer", "adamw",
                         "--optimizer-impl", "foreach", "--clip-grad-norm", "none", "--accumulate", "1", "--flavor", "transformers",
                         "--torch", "2.11", *((*of_units, "--offload", "no") if case.runtime == "fsdp2" else ()),
                         "--activation-checkpointing", "full" if case.checkpoint else "none", *choices, "--force", "--quiet",
                         "-o", "plan.json")  # fmt: skip

    def check(self, case: Case) -> None:
        self.plan(case)
        predicted = json.loads(self.run_program("simulate", "plan.json", "--rank", "0", "--json"))
        choices = {"quantize": case.bits, "lora": case.peft, "precision": case.precision, "runtime": case.runtime,
                   "checkpoint": case.checkpoint, "batch": 4, "seq": 2048}
        measured = json.loads(self.run_program("rehearse", "--gpus", str(case.gpus), "--gpu", "H100 SXM", "--json", "--", sys.executable,
                                               str(SCRIPT), str(self.folder / case.model), json.dumps(choices)))  # fmt: skip
        self.compare(case, measured, predicted)

    def test_accelerate_follows_the_exported_plan(self) -> None:
        case = CASES[0]
        self.plan(case, "--strategy", "FULL_SHARD")
        text = self.run_program("export", "plan.json", "--to", "accelerate", "--nearest", "near.json", "--force")
        found = text[text.index("BitsAndBytesConfig("):].replace("\n#", " ")
        call = found[:found.index("), without") ]
        call = " ".join(call[:call.rindex(")") + 1].split()) if call.endswith("))") else " ".join(call.split())
        (self.folder / "loop.py").write_text(LOOP.replace("QUANTIZATION", call), encoding="utf-8")
        (self.folder / "accelerate.yaml").write_text(text, encoding="utf-8")
        measured = json.loads(self.run_program("rehearse", *lora_test.GPUS, "--record-stream", "done", "--json", "--", sys.executable, "-m",
                                               "accelerate.commands.launch", "--config_file", "accelerate.yaml", "loop.py"))  # fmt: skip
        predicted = json.loads(self.run_program("simulate", "near.json", "--rank", "0", "--json"))
        measured["memory"]["phases"] = {"steady_step": measured["memory"]["phases"]["steady_step"]}
        self.compare(dataclasses.replace(case, name="accelerate"), measured, predicted)


for _case in CASES:
    setattr(PlansOfQlora, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    if any(importlib.util.find_spec(package) is None for package in ("transformers", "peft", "bitsandbytes", "accelerate")):
        sys.exit(77)
    ProgramInAFolder.program = str(pathlib.Path(sys.argv[2]).resolve())
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
