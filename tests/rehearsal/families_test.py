"""Plans of families that are read from `config.json` are held to transformers' own classes under FSDP2, on 1 to 16 GPUs, with copies of
shard groups, checkpoints and larger batches.

    families_test.py STUB FSDP_PLAN FAMILY...      run by a Python that has torch and transformers 5; exit 77 without them
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

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "family_fsdp2.py"

TEXT = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
        "vocab_size": 4000, "max_position_embeddings": 4096, "pad_token_id": 0}
LLAMA4 = {**TEXT, "intermediate_size": 768, "intermediate_size_mlp": 1376, "head_dim": 64, "num_local_experts": 4, "attention_chunk_size": 8192,
          "no_rope_layer_interval": 4}
PIXELS = {"hidden_size": 320, "intermediate_size": 1280, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56, "patch_size": 14,
          "vision_output_dim": 640, "projector_input_dim": 640, "projector_output_dim": 640}
FAMILIES = {
    "llama4_text": {"architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", **LLAMA4},
    "llama4_chunks": {"architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", **LLAMA4, "attention_chunk_size": 256,
                      "interleave_moe_layer_step": 2, "num_experts_per_tok": 2, "use_qk_norm": False, "tie_word_embeddings": True},
    "llama4": {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "image_token_index": 3990,
               "text_config": {"model_type": "llama4_text", **LLAMA4}, "vision_config": {"model_type": "llama4_vision_model", **PIXELS}},
}


@dataclasses.dataclass
class Case:
    name: str
    model: str
    gpus: int
    precision: str = "mixed"
    checkpoint: bool = False
    allocated: float = 0.001
    shard: int = 0  # Ranks of a shard group; 0 for all.
    batch: int = 1
    seq: int = 512

    @property
    def bounds(self) -> tuple[float, float, float]:
        return 0.001, self.allocated, 0.03


CASES = [
    Case("llama4_text_mixed", "llama4_text", 4),
    Case("llama4_text_checkpoint", "llama4_text", 16, checkpoint=True, batch=2),
    Case("llama4_text_copies", "llama4_text", 8, "bf16", shard=4, batch=2, seq=1024),
    Case("llama4_text_one_gpu", "llama4_text", 1, "bf16", checkpoint=True, batch=4, allocated=0.005),
    Case("llama4_chunks_bf16", "llama4_chunks", 2, "bf16", batch=2),
    Case("llama4_chunks_mixed", "llama4_chunks", 8, checkpoint=True, seq=1024),
    Case("llama4_chunks_copies", "llama4_chunks", 16, shard=8, batch=2),
    Case("llama4_mixed", "llama4", 4, batch=2),
    Case("llama4_bf16_checkpoint", "llama4", 2, "bf16", checkpoint=True),
    Case("llama4_copies", "llama4", 16, "bf16", shard=8, batch=2),
]


class PlansOfFamilies(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name, config in FAMILIES.items():
            (cls.folder / name).mkdir(exist_ok=True)
            written = {"transformers_version": "5.24.0", "dtype": "bfloat16", **config}
            (cls.folder / name / "config.json").write_text(json.dumps(written), encoding="utf-8")

    def check(self, case: Case) -> None:
        choices = {"batch": case.batch, "seq": case.seq, "shard": case.shard or case.gpus}
        self.hold(case, SCRIPT, choices, "--batch", str(case.batch), "--set", f"seq={case.seq}")


WANTED = [case for case in CASES if case.name in sys.argv[3:] or case.model in sys.argv[3:]]
for _case in WANTED:
    setattr(PlansOfFamilies, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    if importlib.util.find_spec("transformers") is None:
        sys.exit(77)
    ProgramInAFolder.program = str(pathlib.Path(sys.argv[2]).resolve())
    unittest.main(argv=sys.argv[:1], verbosity=2)
