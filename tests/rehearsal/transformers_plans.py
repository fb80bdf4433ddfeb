"""Plans of small models of transformers that scripts train: what is predicted of each is held to a rehearsal of its script."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any, Protocol

from capture_runs import collectives_of
from program_in_a_folder import ProgramInAFolder

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4,
         "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 4000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
         "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
QWEN3 = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 64, "tie_word_embeddings": True,
         "rms_norm_eps": 1e-6}
QWEN2 = {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
GEMMA3 = {**LLAMA, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "head_dim": 64, "query_pre_attn_scalar": 64,
          "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "sliding_window": 512,
          "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]}  # fmt: skip
QWEN3_MOE = {**QWEN3, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 16, "num_experts_per_tok": 4,
             "moe_intermediate_size": 256, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True,
             "tie_word_embeddings": False, "vocab_size": 32000}  # fmt: skip
# So little of a head that a block's own peak is the step's.
TINY = {**LLAMA, "num_hidden_layers": 2, "vocab_size": 64}
# The remainder of a block that the allocator does not split, up to 1 MiB, is less than a thousandth of these.
WIDER = {"hidden_size": 1024, "intermediate_size": 2752, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000}
CONFIGS = {"tiny": TINY, "llama": LLAMA, "qwen3": QWEN3, "qwen2": QWEN2, "wide_llama": {**LLAMA, **WIDER}, "wide_qwen3": {**QWEN3, **WIDER},
           "gemma3": GEMMA3, "qwen3_moe": QWEN3_MOE}  # fmt: skip
KINDS = ("live_peak_bytes", "allocated_peak_bytes", "reserved_peak_bytes")


class Trained(Protocol):
    """What every case says. `bounds`: the largest relative differences, by KINDS."""

    name: str
    model: str
    gpus: int
    precision: str
    checkpoint: bool

    @property
    def bounds(self) -> tuple[float, float, float]: ...


def of_parameters(report: dict[str, Any]) -> dict[str, Any]:
    """Without DDP's broadcast of buffers: transformers registers the frequencies of rotary tables twice, and a plan has them once."""
    return {name: found for name, found in collectives_of(report).items() if not name.startswith("broadcast")}


class TransformersPlans(ProgramInAFolder):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name, config in CONFIGS.items():
            (cls.folder / name).mkdir()
            (cls.folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")

    @classmethod
    def write_trl_folder(cls, models: list[str]) -> None:
        """Writes weights and a tokenizer beside each configuration, and rows to train on."""
        script = pathlib.Path(__file__).resolve().parent / "scripts/trl_folder.py"
        done = subprocess.run([sys.executable, str(script), *models], cwd=cls.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stderr)

    def hold(self, case: Trained, script: pathlib.Path, choices: dict[str, Any], *options: str, rehearsal: tuple[str, ...] = ()) -> None:
        """Holds a plan to its script, which is given the model's folder and `choices`. `options`: of the plan."""
        gpus = ("--gpus", str(min(case.gpus, 8)), "--nodes", str(max(1, case.gpus // 8)), "--gpu", "H100 SXM")
        # In transformers the head reads the logits inside the root's forward, and the CPU makes the model.
        sharded = () if "ddp" in options else ("--wrap", "blocks", "--wrap-ends", "no", "--reshard", "true", "--prefetch", "0",
                                               "--backward-prefetch", "1", "--shard", str(getattr(case, "shard", 0) or case.gpus))  # fmt: skip
        self.run_program(case.model, *gpus, *options, "--precision", case.precision, *sharded, "--optimizer", "adamw",
                         "--optimizer-impl", "foreach", "--clip-grad-norm", "none", "--accumulate", "1", "--offload", "no",
                         "--initialization", "cpu", "--flavor", "transformers", "--torch", "2.11", "--activation-checkpointing", "full" if case.checkpoint else "none",
                         "--force", "--quiet", "-o", "plan.json")  # fmt: skip
        plan_file = self.folder / "plan.json"
        plan = json.loads(plan_file.read_text(encoding="utf-8"))
        plan.pop("ddp", None)  # Buckets are searched, and scripts leave them as they come.
        plan_file.write_text(json.dumps(plan), encoding="utf-8")
        predicted = json.loads(self.run_program("simulate", "plan.json", "--rank", "0", "--json"))
        choices = {"precision": case.precision, "checkpoint": case.checkpoint, **choices}
        measured = json.loads(self.run_program("rehearse", *gpus, *rehearsal, "--json", "--", sys.executable, str(script),
                                               str(self.folder / case.model), json.dumps(choices)))  # fmt: skip
        self.compare(case, measured, predicted)

    def compare(self, case: Trained, measured: dict[str, Any], predicted: dict[str, Any]) -> None:
        rows = []
        for phase, found in measured["memory"]["phases"].items():
            said = predicted["memory"]["phases"].get(phase)
            if found is None or said is None:
                continue
            for kind, most in zip(KINDS, case.bounds):
                rows.append((phase, kind, found[kind], said[kind], most))
                print(f"{case.name:26} {phase:16} {kind:22} {found[kind]:14} {said[kind] - found[kind]:+12}", flush=True)
        self.assertEqual(of_parameters(measured), of_parameters(predicted))
        for phase, kind, found, said, most in rows:
            with self.subTest(case.name, phase=phase, kind=kind):
                self.assertLessEqual(abs(said - found), most * found)
