"""Plans of architectures that are read from `config.json` are held to transformers' own classes under FSDP2.

    architectures_test.py STUB FSDP_PLAN [FAMILY...]      run by a Python that has torch and transformers 5; exit 77 without them
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

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "folder_fsdp2.py"


def family(name: str, architecture: str, **more: Any) -> dict[str, Any]:
    return {**LLAMA, "num_hidden_layers": 3, "model_type": name, "architectures": [architecture], "pad_token_id": 0, **more}


EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 256}
FAMILIES = {
    "cohere": family("cohere", "CohereForCausalLM", tie_word_embeddings=True, layer_norm_eps=1e-5, logit_scale=0.0625),
    "cohere2": family("cohere2", "Cohere2ForCausalLM", num_hidden_layers=4, tie_word_embeddings=True, sliding_window=128),
    "starcoder2": family("starcoder2", "Starcoder2ForCausalLM", hidden_act="gelu_pytorch_tanh", sliding_window=None, residual_dropout=0.1,
                         embedding_dropout=0.1),
    "phi": family("phi", "PhiForCausalLM", hidden_act="gelu_new", num_key_value_heads=8, resid_pdrop=0.1, partial_rotary_factor=0.5),
    "arcee": family("arcee", "ArceeForCausalLM", hidden_act="relu2"),
    "ministral": family("ministral", "MinistralForCausalLM", head_dim=64, sliding_window=128),
    "ministral3": family("ministral3", "Ministral3ForCausalLM", head_dim=64),
    "qwen2_moe": family("qwen2_moe", "Qwen2MoeForCausalLM", num_experts=8, shared_expert_intermediate_size=512, **EXPERTS),
    "ernie4_5": family("ernie4_5", "Ernie4_5ForCausalLM", head_dim=64),
    "hunyuan_v1_dense": family("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", head_dim=64),
    "nemotron": family("nemotron", "NemotronForCausalLM", hidden_act="relu2", head_dim=64),
    "stablelm": family("stablelm", "StableLmForCausalLM", use_qkv_bias=True),
    "minimax_m2": family("minimax_m2", "MiniMaxM2ForCausalLM", head_dim=64, num_local_experts=8, num_experts_per_tok=2, rotary_dim=32,
                         intermediate_size=256),
    "glm4_moe": family("glm4_moe", "Glm4MoeForCausalLM", head_dim=64, n_routed_experts=8, n_group=1, topk_group=1,
                       first_k_dense_replace=1, partial_rotary_factor=0.5, **EXPERTS),
}


@dataclasses.dataclass
class Case:
    name: str
    model: str
    gpus: int
    precision: str
    checkpoint: bool
    seq: int = 512
    batch: int = 2

    @property
    def bounds(self) -> tuple[float, float, float]:
        return 0.001, 0.001, 0.03


class PlansOfArchitectures(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name, config in FAMILIES.items():
            (cls.folder / name).mkdir(exist_ok=True)
            (cls.folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def check(self, case: Case) -> None:
        self.hold(case, SCRIPT, {"batch": case.batch, "seq": case.seq}, "--batch", str(case.batch), "--seq", str(case.seq))


for _name in FAMILIES:
    for _case in (Case(f"{_name}_bf16", _name, 4, "bf16", False), Case(f"{_name}_mixed", _name, 2, "mixed", True)):
        setattr(PlansOfArchitectures, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    if importlib.util.find_spec("transformers") is None:
        sys.exit(77)
    ProgramInAFolder.program = str(pathlib.Path(sys.argv[2]).resolve())
    wanted = [f"PlansOfArchitectures.test_{name}_{kind}" for name in sys.argv[3:] for kind in ("bf16", "mixed")]
    unittest.main(argv=[sys.argv[0], *wanted], verbosity=2)
