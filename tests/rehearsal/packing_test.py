"""Plans on packed rows from a folder of Hugging Face are held to scripts of the real transformers with TRL's collator, under the
real FSDP2 and FSDP1: collectives, and requested, allocated and reserved bytes of each phase.

    packing_test.py STUB FSDP_PLAN      run by a Python that has torch, transformers, TRL and flash-attn; exit 77 without them
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import pathlib
import sys
import unittest
from typing import Any

from capture_runs import collectives_of
from lora_test import CONFIGS, KINDS
from program_in_a_folder import ProgramInAFolder

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


IMPLEMENTATIONS = {"flash_attn": "flash_attention_2", "sdpa": "sdpa"}
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


class PlansOfPackedRows(ProgramInAFolder):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name, config in CONFIGS.items():
            (cls.folder / name).mkdir()
            (cls.folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def check(self, case: Case) -> None:
        gpus = ("--gpus", str(min(case.gpus, 8)), "--nodes", str(max(1, case.gpus // 8)), "--gpu", "H100 SXM")
        # In transformers the head reads the logits inside the root's forward, and the CPU makes the model.
        self.run_program(case.model, *gpus, "--packing", str(sum(case.documents)), "--document-length", ",".join(map(str, case.documents)),
                         "--packed-attention", case.attention, "--precision", case.precision, "--wrap", "blocks", "--wrap-ends", "no",
                         "--reshard", "true", "--runtime", "fsdp1" if case.fsdp1 else "fsdp2", "--optimizer", "adamw",
                         "--optimizer-impl", "foreach", "--clip-grad-norm", "none", "--accumulate", "1", "--offload", "no",
                         "--prefetch", "0", "--backward-prefetch", "1", "--initialization", "cpu", "--flavor", "transformers",
                         "--torch", "2.11", "--activation-checkpointing", "full" if case.checkpoint else "none", "--force", "--quiet",
                         "-o", "plan.json")  # fmt: skip
        predicted = json.loads(self.run_program("simulate", "plan.json", "--rank", "0", "--json"))
        choices = {"documents": case.documents, "attention": IMPLEMENTATIONS[case.attention], "precision": case.precision,
                   "checkpoint": case.checkpoint, "fsdp1": case.fsdp1}  # fmt: skip
        words = ("--record-stream", "done") if case.fsdp1 else ()
        measured = json.loads(self.run_program("rehearse", *gpus, *words, "--json", "--", sys.executable, str(SCRIPT),
                                               str(self.folder / case.model), json.dumps(choices)))  # fmt: skip
        self.compare(case, measured, predicted)

    def compare(self, case: Case, measured: dict[str, Any], predicted: dict[str, Any]) -> None:
        rows = []
        for phase, found in measured["memory"]["phases"].items():
            said = predicted["memory"]["phases"].get(phase)
            if found is None or said is None:
                continue
            for kind, most in zip(KINDS, (0.001, case.allocated, case.reserved)):
                rows.append((phase, kind, found[kind], said[kind], most))
                print(f"{case.name:26} {phase:16} {kind:22} {found[kind]:14} {said[kind] - found[kind]:+12}", flush=True)
        self.assertEqual(collectives_of(measured), collectives_of(predicted))
        for phase, kind, found, said, most in rows:
            with self.subTest(case.name, phase=phase, kind=kind):
                self.assertLessEqual(abs(said - found), most * found)


for _case in CASES:
    setattr(PlansOfPackedRows, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    if any(importlib.util.find_spec(package) is None for package in ("transformers", "trl", "flash_attn")):
        sys.exit(77)
    if importlib.util.find_spec("flash_attn_2_cuda") is None:  # flash-attn's Python takes it for the compiled part.
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE / "stand_ins"), *filter(None, [os.environ.get("PYTHONPATH")])])
    ProgramInAFolder.program = str(pathlib.Path(sys.argv[2]).resolve())
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
