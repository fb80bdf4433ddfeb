"""Plans with Liger's kernels from a folder of Hugging Face are held to the real transformers: to scripts that patch a model of each
family as the Trainer does, and to the Trainer itself with use_liger_kernel=True.

    liger_test.py STUB FSDP_PLAN      run by a Python that has torch, transformers and liger-kernel; exit 77 without them
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
from transformers_plans import LLAMA, TransformersPlans

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "liger_patched.py"
GPUS = ("--gpus", "4", "--gpu", "H100 SXM")


def family(name: str, architecture: str, **more: Any) -> dict[str, Any]:
    return {**LLAMA, "num_hidden_layers": 2, "model_type": name, "architectures": [architecture], **more}


GEMMA = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "head_dim": 64, "rms_norm_eps": 1e-6,
         "tie_word_embeddings": True}
STACKED = {"transformers_version": "5.24.0"}  # Whose experts are one tensor.
FAMILIES = {
    "mistral": family("mistral", "MistralForCausalLM", head_dim=64, sliding_window=None),
    "qwen2": family("qwen2", "Qwen2ForCausalLM"),
    "qwen3": family("qwen3", "Qwen3ForCausalLM", head_dim=64, tie_word_embeddings=True),
    "smollm3": family("smollm3", "SmolLM3ForCausalLM", pad_token_id=0),
    "granite": family("granite", "GraniteForCausalLM", embedding_multiplier=1.0, logits_scaling=1.0, residual_multiplier=1.0,
                      attention_multiplier=0.125),
    "phi3": family("phi3", "Phi3ForCausalLM", pad_token_id=0),
    "gemma": family("gemma", "GemmaForCausalLM", **GEMMA),
    "gemma2": family("gemma2", "Gemma2ForCausalLM", **GEMMA, query_pre_attn_scalar=64, sliding_window=4096),
    "gemma3_text": family("gemma3_text", "Gemma3ForCausalLM", **GEMMA, query_pre_attn_scalar=64, sliding_window=4096),
    "glm4": family("glm4", "Glm4ForCausalLM", head_dim=64, pad_token_id=0, partial_rotary_factor=0.5),
    "olmo2": family("olmo2", "Olmo2ForCausalLM"),
    "olmo3": family("olmo3", "Olmo3ForCausalLM"),
    "exaone4": family("exaone4", "Exaone4ForCausalLM"),
    "qwen3_moe": family("qwen3_moe", "Qwen3MoeForCausalLM", **STACKED, head_dim=64, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256,
                        decoder_sparse_step=1, mlp_only_layers=[]),
    "mixtral": family("mixtral", "MixtralForCausalLM", **STACKED, num_local_experts=8, num_experts_per_tok=2, sliding_window=None),
    "gpt_oss": family("gpt_oss", "GptOssForCausalLM", head_dim=64, num_local_experts=8, num_experts_per_tok=2, sliding_window=128),
}
OFF = {"cross_entropy": False, "fused_linear_cross_entropy": False}


@dataclasses.dataclass
class Case:
    name: str
    model: str
    gpus: int
    liger: str = "all"
    kernels: dict[str, Any] = dataclasses.field(default_factory=dict)  # The same for the library.
    loss: bool = False
    framework: str = "fsdp2"
    precision: str = "mixed"
    checkpoint: bool = False
    batch: int = 2
    seq: int = 512
    allocated: float = 0.001  # Relative differences.
    reserved: float = 0.03

    @property
    def bounds(self) -> tuple[float, float, float]:
        return 0.001, self.allocated, self.reserved


CASES = [
    Case("llama_mixed", "llama", 4),
    Case("llama_bf16_loss", "llama", 8, loss=True, precision="bf16"),
    Case("llama_checkpoint", "tiny", 4, checkpoint=True),
    Case("llama_rope", "tiny", 2, "rope", {"rms_norm": False, "swiglu": False}, precision="bf16"),
    Case("llama_norm", "tiny", 2, "rms_norm", {"rope": False, "swiglu": False}, precision="bf16"),
    Case("llama_glu", "tiny", 2, "glu", {"rms_norm": False, "rope": False}, precision="bf16"),
    Case("llama_fsdp1", "llama", 4, framework="fsdp1", allocated=0.005),
    Case("llama_ddp", "llama", 2, framework="ddp", precision="bf16"),
    Case("llama_one_gpu", "llama", 1, precision="bf16"),
    Case("qwen3_checkpoint", "qwen3", 16, checkpoint=True, precision="bf16"),
    Case("qwen3_loss", "qwen3", 2, loss=True),
    Case("mistral", "mistral", 4, precision="bf16"),
    Case("qwen2", "qwen2", 4),
    Case("gemma", "gemma", 2, precision="bf16"),
    Case("exaone4", "exaone4", 2, precision="bf16"),
    Case("qwen3_moe", "qwen3_moe", 2, "rope,rms_norm", {"swiglu": False}, precision="bf16"),
    Case("mixtral", "mixtral", 4, "rope,rms_norm", {"swiglu": False}, precision="bf16", seq=2048),
]
TRAINER = """
import sys, tempfile
import torch
from exported import training_arguments
from transformers import AutoConfig, AutoModelForCausalLM, Trainer

config = AutoConfig.from_pretrained(sys.argv[1])


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        text = torch.randint(config.vocab_size, (512,))
        return {"input_ids": text, "labels": text}


arguments = training_arguments(tempfile.mkdtemp(), max_steps=20, report_to="none", save_strategy="no", disable_tqdm=True)
model = AutoModelForCausalLM.from_config(config).to(getattr(torch, sys.argv[2]))
Trainer(model, arguments, train_dataset=Texts()).train()
"""


class PlansOfLigersKernels(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        (cls.folder / "trainer.py").write_text(TRAINER, encoding="utf-8")
        for name, config in FAMILIES.items():
            (cls.folder / name).mkdir(exist_ok=True)
            (cls.folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def check(self, case: Case) -> None:
        choices = {"kernels": {**OFF, **({"fused_linear_cross_entropy": True} if case.loss else {}), **case.kernels}, "framework": case.framework,
                   "batch": case.batch, "seq": case.seq}
        loss = ("--loss", "liger") if case.loss else ()
        self.hold(case, SCRIPT, choices, "--batch", str(case.batch), "--seq", str(case.seq), "--liger", case.liger, *loss, "--runtime",
                  case.framework, rehearsal=("--record-stream", "done") if case.framework == "fsdp1" else ())

    def follow(self, name: str, model: str, *choices: str) -> None:
        """Holds the Trainer, which runs all kernels and the loss, to the plan that its arguments are exported from."""
        is_mixed = "mixed" in choices
        self.run_program(model, *GPUS, "--batch", "2", "--seq", "512", "--for", "trainer", "--liger", "all", "--loss", "liger", "--strategy",
                         "FULL_SHARD", "--offload", "no", "--optimizer-impl", "foreach", "--clip-grad-norm", "1", *choices, "--force",
                         "--quiet", "-o", "plan.json")  # fmt: skip
        text = self.run_program("export", "plan.json", "--to", "trainer", "--nearest", "near.json", "--force")
        self.assertIn("use_liger_kernel=True,", text)
        self.assertIn('"rope": True, "rms_norm": True, "layer_norm": False, "swiglu": True, "geglu": True}', text)
        (self.folder / "exported.py").write_text(text, encoding="utf-8")
        measured = json.loads(self.run_program("rehearse", *GPUS, "--record-stream", "done", "--json", "--", sys.executable, "-m",
                                               "torch.distributed.run", "--nproc-per-node", "4", "trainer.py", model,
                                               "float32" if is_mixed else "bfloat16"))  # fmt: skip
        predicted = json.loads(self.run_program("simulate", "near.json", "--rank", "0", "--json"))
        measured["traffic"]["collectives"] = [each for each in measured["traffic"]["collectives"] if each["dtype"] != "int64"]
        measured["memory"]["phases"] = {"steady_step": measured["memory"]["phases"]["steady_step"]}
        self.compare(Case(name, model, 4), measured, predicted)

    def test_the_trainer_runs_llama(self) -> None:
        self.follow("trainer_llama", "llama", "--precision", "mixed", "--activation-checkpointing", "none")

    def test_the_trainer_checkpoints_qwen3(self) -> None:
        self.follow("trainer_qwen3", "qwen3", "--precision", "bf16", "--activation-checkpointing", "full")

    def test_the_trainer_checkpoints_mistral(self) -> None:
        self.follow("trainer_mistral", "mistral", "--precision", "bf16", "--activation-checkpointing", "full")


for _case in CASES:
    setattr(PlansOfLigersKernels, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("liger_kernel") is None:
        sys.exit(77)
    ProgramInAFolder.program = str(pathlib.Path(sys.argv[2]).resolve())
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
