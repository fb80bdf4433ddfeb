"""Plans of models with linear attention or state spaces, from `config.json`, are held to scripts of the real transformers under FSDP2, without
the packages whose kernels transformers prefers.

    hybrids_test.py STUB FSDP_PLAN [MODEL...]      run by a Python that has torch and transformers 5; exit 77 without them
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pathlib
import sys
import unittest

from program_in_a_folder import ProgramInAFolder
from transformers_plans import TransformersPlans

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "hybrid_fsdp2.py"
SIZES = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
         "vocab_size": 4000, "max_position_embeddings": 4096, "pad_token_id": 0}
LINEAR = {**SIZES, "head_dim": 64, "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 64, "linear_value_head_dim": 64}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "shared_expert_intermediate_size": 256}
MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "mrope_section": [11, 11, 10], "mrope_interleaved": True,
                             "partial_rotary_factor": 0.25}}
TOWER = {"depth": 4, "hidden_size": 320, "intermediate_size": 640, "num_heads": 4, "patch_size": 14, "out_hidden_size": 512}
IMAGE = {"image_token_id": 3990, "video_token_id": 3991, "vision_start_token_id": 3992, "vision_end_token_id": 3993}
NEMOTRON = {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", **SIZES, "head_dim": 64, "mamba_num_heads": 16, "mamba_head_dim": 64,
            "ssm_state_size": 32, "n_groups": 4, "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention", "mlp"]}
CONFIGS = {
    "nemotron_h": NEMOTRON,
    "nemotron_h_small_chunks": {**NEMOTRON, "chunk_size": 64, "n_groups": 16, "use_conv_bias": False, "use_bias": True, "mlp_bias": True},
    "qwen3_5_text": {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", **LINEAR, **MROPE},
    "qwen3_5_tied": {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", **LINEAR, **MROPE, "tie_word_embeddings": True,
                     "linear_num_key_heads": 8, "linear_value_head_dim": 128},
    "qwen3_5_moe_text": {"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", **LINEAR, **MROPE, **EXPERTS},
    "qwen3_next": {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", **LINEAR, **EXPERTS},
    "qwen3_5": {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", **IMAGE, "tie_word_embeddings": True,
                "text_config": {"model_type": "qwen3_5_text", **LINEAR, **MROPE}, "vision_config": {"model_type": "qwen3_5_vision", **TOWER}},
    "qwen3_5_moe": {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", **IMAGE,
                    "text_config": {"model_type": "qwen3_5_moe_text", **LINEAR, **MROPE, **EXPERTS},
                    "vision_config": {"model_type": "qwen3_5_moe_vision", **TOWER}},
}


@dataclasses.dataclass
class Case:
    name: str
    model: str
    gpus: int
    precision: str = "bf16"
    checkpoint: bool = False
    batch: int = 2
    seq: int = 500
    replicate: int = 1
    allocated: float = 0.001  # The largest relative difference.

    @property
    def shard(self) -> int:
        return self.gpus // self.replicate

    @property
    def bounds(self) -> tuple[float, float, float]:
        return 0.001, self.allocated, 0.03


CASES = [
    Case("qwen3_5_text_bf16", "qwen3_5_text", 4),
    Case("qwen3_5_text_mixed", "qwen3_5_text", 2, "mixed", batch=1, seq=512),
    Case("qwen3_5_text_checkpoint", "qwen3_5_text", 8, "mixed", checkpoint=True, batch=3),
    Case("qwen3_5_text_hsdp", "qwen3_5_text", 4, replicate=2, seq=321),
    Case("qwen3_5_text_one_gpu", "qwen3_5_text", 1, checkpoint=True, batch=1, seq=1000),
    Case("qwen3_5_tied_bf16", "qwen3_5_tied", 2, batch=1),
    Case("qwen3_5_tied_two_nodes", "qwen3_5_tied", 16, "mixed", seq=256),
    Case("qwen3_5_tied_hsdp", "qwen3_5_tied", 8, "mixed", checkpoint=True, replicate=2),
    Case("qwen3_5_moe_text_bf16", "qwen3_5_moe_text", 4),
    Case("qwen3_5_moe_text_checkpoint", "qwen3_5_moe_text", 2, "mixed", checkpoint=True),
    Case("qwen3_next_bf16", "qwen3_next", 4, batch=1, seq=700),
    Case("qwen3_next_mixed", "qwen3_next", 2, "mixed", seq=512),
    Case("qwen3_next_checkpoint", "qwen3_next", 16, "mixed", checkpoint=True),
    Case("qwen3_next_hsdp", "qwen3_next", 8, replicate=4, batch=1),
    Case("qwen3_next_checkpoint_bf16", "qwen3_next", 8, checkpoint=True, batch=1, seq=1024),
    Case("nemotron_h_bf16", "nemotron_h", 4),
    Case("nemotron_h_mixed", "nemotron_h", 2, "mixed", batch=1, seq=512),
    # The allocator leaves a remainder of a block unsplit: requested memory is equal.
    Case("nemotron_h_checkpoint", "nemotron_h", 8, "mixed", checkpoint=True, batch=3, allocated=0.003),
    Case("nemotron_h_hsdp", "nemotron_h", 4, replicate=2, seq=321),
    Case("nemotron_h_two_nodes", "nemotron_h", 16, "mixed", seq=1024, batch=1),
    Case("nemotron_h_one_gpu", "nemotron_h", 1, checkpoint=True, batch=1, seq=1000),
    Case("nemotron_h_small_chunks_bf16", "nemotron_h_small_chunks", 4, batch=1, seq=700),
    Case("nemotron_h_small_chunks_checkpoint", "nemotron_h_small_chunks", 2, "mixed", checkpoint=True),
    Case("nemotron_h_small_chunks_hsdp", "nemotron_h_small_chunks", 8, "mixed", replicate=4, seq=512),
    Case("qwen3_5_bf16", "qwen3_5", 4),
    Case("qwen3_5_checkpoint", "qwen3_5", 8, "mixed", checkpoint=True, batch=1),
    Case("qwen3_5_moe_mixed", "qwen3_5_moe", 2, "mixed"),
]


class PlansOfHybrids(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name, config in CONFIGS.items():
            (cls.folder / name).mkdir(exist_ok=True)
            written = {"transformers_version": "5.24.0", "dtype": "bfloat16", **config}
            (cls.folder / name / "config.json").write_text(json.dumps(written), encoding="utf-8")

    def check(self, case: Case) -> None:
        choices = {"batch": case.batch, "seq": case.seq, "replicate": case.replicate}
        self.hold(case, SCRIPT, choices, "--batch", str(case.batch), "--seq", str(case.seq), "--replicate", str(case.replicate))


for _case in [each for each in CASES if len(sys.argv) < 4 or each.model in sys.argv[3:]]:
    setattr(PlansOfHybrids, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    if importlib.util.find_spec("transformers") is None:
        sys.exit(77)
    ProgramInAFolder.program = str(pathlib.Path(sys.argv[2]).resolve())
    unittest.main(argv=[sys.argv[0]], verbosity=2)
