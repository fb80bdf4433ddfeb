"""Plans whose experts several ranks share are held to transformers' own DistributedConfig(fsdp_size=..., ep_size=...) on the stub GPU.

    expert_parallel_test.py STUB FSDP_PLAN [FAMILY...]      run by a Python that has torch and transformers 5; exit 77 without them
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
from transformers_plans import KINDS, LLAMA, TransformersPlans

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "expert_parallel.py"
COMMON = {**LLAMA, "num_hidden_layers": 3, "head_dim": 64, "num_experts_per_tok": 2, "transformers_version": "5.24.0"}
# So little of a head that a block's own peak is the step's.
TINY = {"vocab_size": 64, "num_hidden_layers": 2}
QWEN3 = {**COMMON, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 16, "moe_intermediate_size": 256,
         "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}  # fmt: skip
MIXTRAL = {**COMMON, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "intermediate_size": 512,
           "sliding_window": None}  # fmt: skip
GPT_OSS = {**COMMON, "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "num_local_experts": 8, "intermediate_size": 512,
           "sliding_window": 128}  # fmt: skip
GLM4 = {**COMMON, "model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "n_routed_experts": 8, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1, "n_shared_experts": 1, "partial_rotary_factor": 0.5, "moe_intermediate_size": 256, "pad_token_id": 0}  # fmt: skip
MODELS = {"qwen3_moe": QWEN3, "qwen3_moe_tiny": {**QWEN3, **TINY}, "mixtral": MIXTRAL, "mixtral_tiny": {**MIXTRAL, **TINY},
          "gpt_oss": GPT_OSS, "glm4_moe": GLM4}  # fmt: skip


@dataclasses.dataclass
class Case:
    """`replicate`: copies of the model. `rank`: which one is played; ranks differ if some have no row of a shard."""

    name: str
    model: str
    gpus: int
    ep: int
    precision: str = "mixed"
    checkpoint: bool = False
    batch: int = 2
    seq: int = 512
    replicate: int = 1
    clip: float | None = None
    accumulate: int = 1
    sync: str = "every"
    rank: int = 0

    @property
    def bounds(self) -> tuple[float, float, float]:
        return 0.001, 0.001, 0.03

    def choices(self) -> dict[str, Any]:
        """What the script is given."""
        given = {"precision": self.precision, "checkpoint": self.checkpoint, "batch": self.batch, "seq": self.seq,
                 "fsdp": self.gpus // self.replicate, "replicate": self.replicate, "ep": self.ep}  # fmt: skip
        if self.accumulate > 1:
            given |= {"accumulate": self.accumulate, "sync": self.sync}
        return given if self.clip is None else {**given, "clip": self.clip}


CASES = [
    Case("qwen3_moe_pairs", "qwen3_moe", 4, 2, "bf16"),
    Case("qwen3_moe_alone", "qwen3_moe", 8, 8, "bf16"),
    Case("qwen3_moe_checkpoints", "qwen3_moe", 8, 4, checkpoint=True),
    Case("qwen3_moe_two_nodes", "qwen3_moe", 16, 8, checkpoint=True, clip=1.0),
    Case("qwen3_moe_copies", "qwen3_moe", 8, 2, replicate=2, batch=1),
    Case("qwen3_moe_reduced_each", "qwen3_moe", 4, 2, accumulate=2, batch=1),
    Case("qwen3_moe_reduced_last", "qwen3_moe", 4, 4, accumulate=2, sync="last", batch=1),
    Case("qwen3_moe_blocks", "qwen3_moe_tiny", 4, 2, "bf16", seq=1024),
    Case("qwen3_moe_blocks_again", "qwen3_moe_tiny", 4, 2, "bf16", checkpoint=True, seq=1024),
    Case("mixtral_blocks", "mixtral_tiny", 4, 2, "bf16", seq=1024),
    Case("mixtral_mixed", "mixtral", 4, 4),
    Case("mixtral_checkpoints", "mixtral", 4, 2, "bf16", checkpoint=True),
    Case("mixtral_empty_rows", "mixtral", 16, 4, "bf16", rank=12),
    Case("gpt_oss_pairs", "gpt_oss", 8, 4, "bf16"),
    Case("gpt_oss_mixed", "gpt_oss", 4, 2, checkpoint=True),
    Case("glm4_moe_alone", "glm4_moe", 4, 4),
    Case("glm4_moe_checkpoints", "glm4_moe", 4, 2, checkpoint=True),
]


def sequence_of(report: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(row["kind"], row["dtype"], row["group_size"], row["payload_bytes"]) for row in report["traffic"]["collectives"]]


class ExpertsOfSeveralRanks(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name, config in MODELS.items():
            (cls.folder / name).mkdir(exist_ok=True)
            (cls.folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def check(self, case: Case) -> None:
        gpus = ("--gpus", str(min(case.gpus, 8)), "--nodes", str(max(1, case.gpus // 8)), "--gpu", "H100 SXM")
        self.run_program(case.model, *gpus, "--batch", str(case.batch), "--seq", str(case.seq), "--precision", case.precision, "--prefetch", "0", "--backward-prefetch", "1", "--shard", str(case.gpus // case.replicate),
                         "--ep", str(case.ep), "--optimizer", "adamw", "--optimizer-impl", "foreach", "--clip-grad-norm", str(case.clip or "none"),
                         "--accumulate", str(case.accumulate), "--gradient-sync", case.sync, "--offload", "no", "--flavor", "transformers",
                         "--torch", "2.11", "--activation-checkpointing", "full" if case.checkpoint else "none", "--force", "--quiet", "-o", "plan.json")  # fmt: skip
        rank = ("--rank", str(case.rank))
        predicted = json.loads(self.run_program("simulate", "plan.json", *rank, "--json"))
        measured = json.loads(self.run_program("rehearse", *gpus, *rank, "--json", "--", sys.executable, str(SCRIPT),
                                               str(self.folder / case.model), json.dumps(case.choices())))  # fmt: skip
        self.assertEqual(sequence_of(measured), sequence_of(predicted))
        self.assertIn("all_to_all", {row[0] for row in sequence_of(measured)})
        for phase, found in measured["memory"]["phases"].items():
            if found is None or predicted["memory"]["phases"].get(phase) is None:
                continue
            said = predicted["memory"]["phases"][phase]
            for kind, most in zip(KINDS, case.bounds):
                print(f"{case.name:26} {phase:16} {kind:22} {found[kind]:14} {said[kind] - found[kind]:+12}", flush=True)
                with self.subTest(case.name, phase=phase, kind=kind):
                    self.assertLessEqual(abs(said[kind] - found[kind]), most * found[kind])


for _case in CASES:
    setattr(ExpertsOfSeveralRanks, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    if importlib.util.find_spec("transformers") is None:
        sys.exit(77)
    ProgramInAFolder.program = str(pathlib.Path(sys.argv[2]).resolve())
    wanted = [f"ExpertsOfSeveralRanks.test_{case.name}" for case in CASES if not sys.argv[3:] or case.name.startswith(tuple(sys.argv[3:]))]
    unittest.main(argv=[sys.argv[0], *wanted], verbosity=2)
