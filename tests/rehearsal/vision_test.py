"""Plans of models with a tower for images and of encoders, from a folder of Hugging Face, are held to scripts of the real transformers
under the real FSDP2: collectives, and requested, allocated and reserved bytes of each phase.

    vision_test.py STUB FSDP_PLAN PART      run by a Python that has torch and transformers; exit 77 without them
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

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "vision_fsdp2.py"
ENCODER = SCRIPT.with_name("encoder_fsdp2.py")

TEXT = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
        "vocab_size": 4000, "max_position_embeddings": 4096, "pad_token_id": 0}
MROPE = {"rope_type": "default", "mrope_section": [8, 12, 12]}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
QWEN = {"depth": 4, "hidden_size": 320, "intermediate_size": 640, "num_heads": 4, "patch_size": 14, "out_hidden_size": 512}
PIXEL = {"hidden_size": 320, "intermediate_size": 640, "num_hidden_layers": 4, "num_attention_heads": 4, "image_size": 56, "patch_size": 14}
ROBERTA = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 4000,
           "max_position_embeddings": 514}
IMAGE = {"image_token_id": 3990, "video_token_id": 3991, "vision_start_token_id": 3992, "vision_end_token_id": 3993}
CONFIGS = {
    "qwen2_5_vl": {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", **IMAGE,
                   "text_config": {"model_type": "qwen2_5_vl_text", **TEXT, "rope_scaling": MROPE},
                   "vision_config": {"model_type": "qwen2_5_vl_vision", **QWEN, "fullatt_block_indexes": [1, 3]}},
    "qwen2_vl": {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", **IMAGE,
                 "text_config": {"model_type": "qwen2_vl_text", **TEXT, "rope_scaling": MROPE, "tie_word_embeddings": True},
                 "vision_config": {"model_type": "qwen2_vl_vision", "depth": 4, "embed_dim": 320, "num_heads": 4, "hidden_size": 512}},
    "qwen3_vl": {"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", **IMAGE, "tie_word_embeddings": True,
                 "text_config": {"model_type": "qwen3_vl_text", **TEXT, "head_dim": 64, "rope_scaling": MROPE},
                 "vision_config": {"model_type": "qwen3_vl_vision", **QWEN, "deepstack_visual_indexes": [0, 2]}},
    "qwen3_vl_moe": {"architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe", **IMAGE,
                     "tie_word_embeddings": False,
                     "text_config": {"model_type": "qwen3_vl_moe_text", **TEXT, **EXPERTS, "head_dim": 64, "rope_scaling": MROPE},
                     "vision_config": {"model_type": "qwen3_vl_moe_vision", **QWEN, "deepstack_visual_indexes": [0, 2]}},
    "gemma3": {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "image_token_index": 3990,
               "mm_tokens_per_image": 4,
               "text_config": {"model_type": "gemma3_text", **TEXT, "head_dim": 64, "sliding_window": 256},
               "vision_config": {"model_type": "siglip_vision_model", **PIXEL, "vision_use_head": False}},
    "mistral3": {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "image_token_index": 3990,
                 "tie_word_embeddings": False,
                 "text_config": {"model_type": "mistral", **TEXT, "head_dim": 64, "sliding_window": None},
                 "vision_config": {"model_type": "pixtral", **PIXEL}},
    "roberta": {"architectures": ["RobertaForSequenceClassification"], "model_type": "roberta", **ROBERTA},
    "xlm_roberta": {"architectures": ["XLMRobertaForSequenceClassification"], "model_type": "xlm-roberta", **ROBERTA,
                    "type_vocab_size": 1, "id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}},
    "ministral3": {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "image_token_index": 3990,
                   "tie_word_embeddings": False, "text_config": {"model_type": "ministral3", **TEXT, "head_dim": 64},
                   "vision_config": {"model_type": "pixtral", **PIXEL}},
}


PARTS = {"ministral3": "mistral3", "qwen2_vl": "other_qwen", "qwen3_vl_moe": "other_qwen", "roberta": "encoders", "xlm_roberta": "encoders"}


@dataclasses.dataclass
class Case:
    name: str
    model: str
    gpus: int
    precision: str = "mixed"
    checkpoint: bool = False
    frozen: bool = False
    batch: int = 1
    seq: int = 512
    fsdp1: bool = False
    allocated: float = 0.001  # Relative differences.
    reserved: float = 0.03

    @property
    def bounds(self) -> tuple[float, float, float]:
        return 0.001, self.allocated, self.reserved

    @property
    def part(self) -> str:
        return PARTS.get(self.model, self.model)


CASES = [
    Case("qwen2_5_vl_mixed", "qwen2_5_vl", 4),
    Case("qwen2_5_vl_bf16_frozen", "qwen2_5_vl", 2, "bf16", frozen=True, batch=2),
    Case("qwen2_5_vl_checkpoint", "qwen2_5_vl", 16, checkpoint=True, batch=2, seq=1024),
    Case("qwen2_5_vl_one_gpu", "qwen2_5_vl", 1, "bf16", checkpoint=True, frozen=True),
    Case("qwen2_5_vl_fsdp1", "qwen2_5_vl", 4, "bf16", fsdp1=True, allocated=0.005),
    Case("qwen3_vl_mixed", "qwen3_vl", 2),
    Case("qwen3_vl_bf16_checkpoint", "qwen3_vl", 16, "bf16", checkpoint=True, batch=2),
    Case("qwen3_vl_frozen", "qwen3_vl", 4, frozen=True, batch=2),
    Case("qwen3_vl_one_gpu", "qwen3_vl", 1, "bf16", checkpoint=True),
    Case("gemma3_mixed", "gemma3", 4),
    Case("gemma3_bf16_checkpoint", "gemma3", 16, "bf16", checkpoint=True, batch=2),
    Case("gemma3_frozen", "gemma3", 2, frozen=True),
    Case("gemma3_one_gpu", "gemma3", 1, "bf16", checkpoint=True, frozen=True),
    Case("mistral3_mixed", "mistral3", 4, batch=2),
    Case("mistral3_bf16_frozen", "mistral3", 2, "bf16", frozen=True),
    Case("mistral3_checkpoint", "mistral3", 8, checkpoint=True, seq=1024),
    Case("mistral3_one_gpu", "mistral3", 1, "bf16", checkpoint=True),
    Case("ministral3_mixed", "ministral3", 4, batch=2),
    Case("ministral3_bf16_frozen", "ministral3", 2, "bf16", frozen=True),
    Case("ministral3_checkpoint", "ministral3", 16, checkpoint=True, seq=1024),
    Case("ministral3_one_gpu", "ministral3", 1, "bf16", checkpoint=True),
    Case("roberta_mixed", "roberta", 4, batch=4),
    Case("roberta_bf16_checkpoint", "roberta", 8, "bf16", checkpoint=True, batch=8),
    Case("roberta_checkpoint", "roberta", 16, checkpoint=True, batch=2, seq=256),
    Case("roberta_one_gpu", "roberta", 1, "bf16", batch=2),
    Case("xlm_roberta_mixed", "xlm_roberta", 2, batch=8),
    Case("xlm_roberta_bf16", "xlm_roberta", 16, "bf16", batch=4, seq=256),
    Case("xlm_roberta_checkpoint", "xlm_roberta", 4, checkpoint=True, batch=4),
    Case("xlm_roberta_one_gpu", "xlm_roberta", 1, "bf16", checkpoint=True, batch=4),
    Case("qwen3_vl_moe_mixed", "qwen3_vl_moe", 4),
    Case("qwen3_vl_moe_bf16_frozen", "qwen3_vl_moe", 2, "bf16", frozen=True, batch=2),
    Case("qwen3_vl_moe_checkpoint", "qwen3_vl_moe", 8, checkpoint=True),
    Case("qwen3_vl_moe_one_gpu", "qwen3_vl_moe", 1, "bf16", checkpoint=True),
    Case("qwen2_vl_mixed", "qwen2_vl", 4),
    Case("qwen2_vl_bf16_frozen", "qwen2_vl", 2, "bf16", frozen=True, batch=2),
    Case("qwen2_vl_checkpoint", "qwen2_vl", 8, checkpoint=True),
    Case("qwen2_vl_one_gpu", "qwen2_vl", 1, "bf16", checkpoint=True),
]


class PlansOfVisionModels(TransformersPlans):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name, config in CONFIGS.items():
            (cls.folder / name).mkdir(exist_ok=True)
            written = {"transformers_version": "5.24.0", "dtype": "bfloat16", **config}
            (cls.folder / name / "config.json").write_text(json.dumps(written), encoding="utf-8")

    def check(self, case: Case) -> None:
        choices = {"batch": case.batch, "seq": case.seq, "frozen": case.frozen, "fsdp1": case.fsdp1}
        frozen = [word for name in ("visual", "vision_tower", "multi_modal_projector") if case.frozen and self.has(case.model, name)
                  for word in ("--freeze", f"model.{name}.*")]
        self.hold(case, ENCODER if "roberta" in case.model else SCRIPT, choices, "--batch", str(case.batch), "--set", f"seq={case.seq}", *frozen,
                  "--runtime", "fsdp1" if case.fsdp1 else "fsdp2", rehearsal=("--record-stream", "done") if case.fsdp1 else ())

    def has(self, model: str, module: str) -> bool:
        said = json.loads(self.run_program("models", model, "--expanded"))
        return any(each["name"] == f"model.{module}" for each in said["modules"])


for _case in [each for each in CASES if len(sys.argv) < 4 or each.part == sys.argv[3]]:
    setattr(PlansOfVisionModels, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    if importlib.util.find_spec("transformers") is None:
        sys.exit(77)
    ProgramInAFolder.program = str(pathlib.Path(sys.argv[2]).resolve())
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
