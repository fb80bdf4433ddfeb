"""accelerate's `mixed_precision: bf16`, in a loop of one's own and under transformers' Trainer, with FSDP1 and FSDP2: scripts of the
real libraries run with what `export` writes for a plan, or with arguments that say the same, and are held to its prediction.

    accelerate_precision_test.py STUB FSDP_PLAN [CASE...]      run by a Python that has torch, transformers and accelerate; exit 77
                                                               without them. loop, trainer and more are cases of one
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import sys
import unittest
from typing import Any

from capture_runs import collectives_of
from program_in_a_folder import ProgramInAFolder

# The remainder of a block that the allocator does not split, up to 1 MiB, is less than a thousandth of these.
SIZES = {"vocab_size": 16000, "torch_dtype": "bfloat16"}
LLAMA = {**SIZES, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2752,
         "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8, "max_position_embeddings": 4096,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False}
QWEN3 = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 64, "rms_norm_eps": 1e-6}
GPT2 = {**SIZES, "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 1024, "n_layer": 4, "n_head": 16,
        "n_positions": 1024, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "tie_word_embeddings": True}
CONFIGS = {"llama": LLAMA, "qwen3": QWEN3, "gpt2": GPT2}
BATCH, LENGTH = 2, 1024
KINDS = ("live_peak_bytes", "allocated_peak_bytes", "reserved_peak_bytes")
# Under FSDP1 a block is cut elsewhere: 1 MiB, the most that the allocator does not split.
BOUNDS = (0.001, 0.005, 0.03)

MADE = f"""
import json
import sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM

config = AutoConfig.from_pretrained(sys.argv[1])
choices = json.loads(sys.argv[2])


def made():
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    if "lora" in choices:
        from peft import LoraConfig, get_peft_model
        model = get_peft_model(model, LoraConfig(**choices["lora"]))
    return model


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 65536

    def __getitem__(self, index):
        text = torch.randint(config.vocab_size, ({LENGTH},))
        return {{"input_ids": text, "labels": text}}
"""
# They do what the exported files say that a script must. FSDP1's flat parameters exist before the optimizer.
LOOP = f"""
import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from made import Texts, choices, made

accelerator = Accelerator(gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=choices["accumulate"]))
model = made()
if choices["checkpoint"]:
    model.gradient_checkpointing_enable({{"use_reentrant": False}})
loader = torch.utils.data.DataLoader(Texts(), batch_size={BATCH})
if choices["flat"]:
    model = accelerator.prepare(model)
    optimizer, loader = accelerator.prepare(torch.optim.AdamW(model.parameters()), loader)
else:
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        if choices["keeps"]:
            outputs = model(**batch, use_cache=False)
            accelerator.backward(outputs.loss)
            del outputs
        else:
            accelerator.backward(model(**batch, use_cache=False).loss)
        optimizer.step()
        optimizer.zero_grad()
"""
TRAINER = """
import tempfile
from exported import training_arguments
from made import Texts, made
from transformers import Trainer

arguments = training_arguments(tempfile.mkdtemp(), max_steps=20, report_to="none", save_strategy="no", disable_tqdm=True)
model = made()
model.config.use_cache = False
Trainer(model, arguments, train_dataset=Texts()).train()
"""


@dataclasses.dataclass
class Case:
    name: str
    model: str
    runtime: str
    to: str  # accelerate or trainer
    gpus: int = 4
    precision: str = "accelerate"  # As --precision reads it.
    checkpoint: bool = False
    accumulate: int = 1
    keeps: bool = False  # The loop has the outputs of the model until its backward has ended.
    lora: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: tuple[str, ...] = ()  # The plan has them.
    autocast: bool | None = None  # Whether the model runs under torch.autocast. None: under FSDP1 with this precision.
    bounds: tuple[float, float, float] = BOUNDS  # By KINDS.

    @property
    def runs_under_autocast(self) -> bool:
        return (self.runtime == "fsdp1" and self.precision == "accelerate") if self.autocast is None else self.autocast


CASES = [
    Case("loop_fsdp1_llama", "llama", "fsdp1", "accelerate"),
    Case("trainer_fsdp1_llama", "llama", "fsdp1", "trainer"),
]
# Asked for by name, or as "more".
MORE_CASES = [
    Case("loop_fsdp1_gpt2", "gpt2", "fsdp1", "accelerate", options=("--strategy", "SHARD_GRAD_OP")),
    Case("loop_fsdp1_llama_kept_outputs", "llama", "fsdp1", "accelerate", gpus=2, keeps=True),
    Case("loop_fsdp1_llama_checkpoint", "llama", "fsdp1", "accelerate", gpus=8, checkpoint=True, accumulate=2,
         options=("--gradient-sync", "last")),
    Case("loop_fsdp1_qwen3_off", "qwen3", "fsdp1", "accelerate", precision="bf16"),
    Case("loop_fsdp2_llama", "llama", "fsdp2", "accelerate"),
    Case("loop_fsdp2_gpt2", "gpt2", "fsdp2", "accelerate", gpus=16),
    Case("loop_fsdp2_lora", "qwen3", "fsdp2", "accelerate", lora={"r": 16, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}),
    Case("trainer_fsdp2_qwen3", "qwen3", "fsdp2", "trainer", gpus=2),
    Case("trainer_fsdp2_gpt2_checkpoint", "gpt2", "fsdp2", "trainer", checkpoint=True),
    Case("trainer_fsdp1_gpt2_checkpoint", "gpt2", "fsdp1", "trainer", gpus=8, checkpoint=True),
]


class PrecisionOfAccelerate(ProgramInAFolder):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name, config in CONFIGS.items():
            (cls.folder / name).mkdir()
            (cls.folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
        for name, text in (("made.py", MADE), ("loop.py", LOOP), ("trainer.py", TRAINER)):
            (cls.folder / name).write_text(text, encoding="utf-8")

    def check(self, case: Case) -> None:
        gpus = ("--gpus", str(min(case.gpus, 8)), "--nodes", str(max(1, case.gpus // 8)), "--gpu", "H100 SXM")
        lora = ("--lora", f"r={case.lora['r']}") if case.lora else ()
        clip = ("--clip-grad-norm", "1" if case.to == "trainer" else "none")
        strategy = () if "--strategy" in case.options else ("--strategy", "FULL_SHARD")
        self.run_program(case.model, *gpus, "--batch", str(BATCH), "--seq", str(LENGTH), "--runtime", case.runtime,
                         "--precision", case.precision, "--accumulate", str(case.accumulate), "--wrap", "blocks", "--wrap-ends", "no",
                         *strategy, "--offload", "no", "--optimizer", "adamw", "--optimizer-impl", "foreach", *clip, *lora,
                         "--activation-checkpointing", "full" if case.checkpoint else "none", "--torch", "2.11",
                         *case.options, "--force", "--quiet", "-o", "plan.json")  # fmt: skip
        text = self.run_program("export", "plan.json", "--to", case.to, "--nearest", "near.json", "--force")
        choices = json.dumps({"checkpoint": case.checkpoint, "accumulate": case.accumulate, "flat": case.runtime == "fsdp1",
                              "keeps": case.keeps, **({"lora": case.lora} if case.lora else {})})  # fmt: skip
        if case.to == "accelerate":
            (self.folder / "accelerate.yaml").write_text(text, encoding="utf-8")
            command = ("-m", "accelerate.commands.launch", "--config_file", "accelerate.yaml", "loop.py", case.model, choices)
        else:
            (self.folder / "exported.py").write_text(text, encoding="utf-8")
            launch = ("--nproc-per-node", str(min(case.gpus, 8)), "--nnodes", str(max(1, case.gpus // 8)))
            command = ("-m", "torch.distributed.run", *launch, "trainer.py", case.model, choices)
        if case.keeps:
            self.keep_logits()
        self.compare(case, gpus, command)

    def keep_logits(self) -> None:
        near = json.loads((self.folder / "near.json").read_text(encoding="utf-8"))
        near["runtime"].setdefault("implementations", {})["keep_logits"] = True
        (self.folder / "near.json").write_text(json.dumps(near), encoding="utf-8")

    def compare(self, case: Case, gpus: tuple[str, ...], command: tuple[str, ...]) -> None:
        """The steady step: loading is the trainer's, and so are collectives of counts of tokens."""
        measured = json.loads(self.run_program("rehearse", *gpus, "--record-stream", "done", "--json", "--", sys.executable, *command))
        predicted = json.loads(self.run_program("simulate", "near.json", "--rank", "0", "--json"))
        (wrapper,) = measured["rehearsal"]["applied"]["wrappers"]
        with self.subTest(case.name, what="autocast"):
            self.assertEqual(wrapper.get("autocast", []), ["bfloat16"] if case.runs_under_autocast else [])
        found, said = (each["memory"]["phases"]["steady_step"] for each in (measured, predicted))
        for kind in KINDS:
            print(f"{case.name:32} {kind:22} {found[kind]:14} {said[kind] - found[kind]:+12} "
                  f"{100 * (said[kind] - found[kind]) / found[kind]:+.3f} %", flush=True)
        measured["traffic"]["collectives"] = [each for each in measured["traffic"]["collectives"] if each["dtype"] != "int64"]
        with self.subTest(case.name, what="collectives"):
            self.assertEqual(collectives_of(measured), collectives_of(predicted))
        for kind, most in zip(KINDS, case.bounds):
            with self.subTest(case.name, kind=kind):
                self.assertLessEqual(abs(said[kind] - found[kind]), most * found[kind])


if __name__ == "__main__":
    if any(importlib.util.find_spec(package) is None for package in ("transformers", "accelerate")):
        sys.exit(77)
    if tuple(int(part) for part in importlib.metadata.version("accelerate").split(".")[:2]) < (1, 14):
        sys.exit(77)
    ProgramInAFolder.program = os.path.abspath(sys.argv[2])
    WANTED = sys.argv[3:]
    for _case in [*CASES, *MORE_CASES]:
        group = _case.name.split("_")[0] if _case in CASES else "more"
        if not WANTED or _case.name in WANTED or group in WANTED:
            setattr(PrecisionOfAccelerate, f"test_{_case.name}", lambda self, case=_case: self.check(case))
    unittest.main(argv=sys.argv[:1], verbosity=2)
