"""Plans on packed rows from a folder of Hugging Face are held to scripts of the real transformers with TRL's collator, under the
real FSDP2 and FSDP1: collectives, and requested, allocated and reserved bytes of each phase.

    packing_test.py STUB FSDP_PLAN [CLASS]      run by a Python that has torch, transformers, TRL and flash-attn; exit 77 without them
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import pathlib
import sys
import unittest

from program_in_a_folder import ProgramInAFolder
from transformers_plans import TransformersPlans

HERE = pathlib.Path(__file__).parent
SCRIPT = HERE / "scripts" / "packed_fsdp2.py"


@dataclasses.dataclass
class Case:
    name: str
    model: str
    gpus: int
    documents: tuple[int, ...]
    attention: str = "flash_attn"  # As --packed-attention reads it.
    precision: str = "mixed"
    checkpoint: bool = False
    fsdp1: bool = False
    allocated: float = 0.001  # Relative differences.
    reserved: float = 0.03

    @property
    def bounds(self) -> tuple[float, float, float]:
        return 0.001, self.allocated, self.reserved


IMPLEMENTATIONS = {"flash_attn": "flash_attention_2", "sdpa": "sdpa", "flex": "flex_attention"}
CASES = [
    Case("llama_mixed", "llama", 4, (300, 212, 512)),
    Case("llama_bf16_checkpoint", "llama", 8, (64,) * 32, precision="bf16", checkpoint=True),
    Case("qwen3_bf16", "qwen3", 2, (700, 324), precision="bf16"),
    Case("qwen3_mixed_checkpoint", "qwen3", 16, (512,) * 4, checkpoint=True),
    Case("llama_one_gpu", "llama", 1, (256,) * 4, precision="bf16"),
    Case("llama_fsdp1", "llama", 4, (300, 212, 512), fsdp1=True, allocated=0.005),  # Blocks are cut otherwise; what is requested is equal.
    Case("qwen3_fsdp1_bf16", "qwen3", 2, (256,) * 4, precision="bf16", fsdp1=True, allocated=0.005),
    Case("llama_sdpa", "llama", 4, (300, 212, 512), "sdpa"),
    Case("llama_sdpa_checkpoint", "llama", 8, (512,) * 4, "sdpa", precision="bf16", checkpoint=True),
    Case("qwen3_sdpa", "qwen3", 2, (700, 324), "sdpa", precision="bf16"),
    Case("tiny_many", "tiny", 4, (32,) * 64, precision="bf16"),
]


FLEX_CASES = [
    Case("llama_flex", "llama", 4, (300, 212, 512), "flex"),
    Case("qwen3_flex_checkpoint", "qwen3", 2, (700, 324), "flex", precision="bf16", checkpoint=True),
    Case("tiny_flex", "tiny", 8, (2048,), "flex", precision="bf16"),
]


class PackedRows(TransformersPlans):
    def check(self, case: Case) -> None:
        choices = {"documents": case.documents, "attention": IMPLEMENTATIONS[case.attention], "fsdp1": case.fsdp1}
        self.hold(case, SCRIPT, choices, "--packing", str(sum(case.documents)), "--document-length", ",".join(map(str, case.documents)),
                  "--packed-attention", case.attention, *(("--batch", "1") if case.attention == "flex" else ()), "--runtime", "fsdp1" if case.fsdp1 else "fsdp2",
                  rehearsal=("--record-stream", "done") if case.fsdp1 else ())


class PlansOfPackedRows(PackedRows):
    """Kernels that exist, and a mask."""


class PlansOfFlexAttention(PackedRows):
    """Inductor compiles attention and the making of its mask, which takes the longest."""


for _class, _cases in ((PlansOfPackedRows, CASES), (PlansOfFlexAttention, FLEX_CASES)):
    for _case in _cases:
        setattr(_class, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    if any(importlib.util.find_spec(package) is None for package in ("transformers", "trl", "flash_attn")):
        sys.exit(77)
    if importlib.util.find_spec("flash_attn_2_cuda") is None:  # flash-attn's Python takes it for the compiled part.
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE / "stand_ins"), *filter(None, [os.environ.get("PYTHONPATH")])])
    ProgramInAFolder.program = str(pathlib.Path(sys.argv[2]).resolve())
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
