"""Runs the phases of a job beside its steps (evaluation, saving, loading) with the real FSDP2, FSDP1 and DDP on the stub GPU, and
holds the predictions of --phases to them: the peaks of PyTorch's allocator, and the bytes that rank 0 keeps on the host.

    job_phases_test.py STUB FSDP_PLAN [CASE...]      run by a Python that has torch; first and second are halves of all cases
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import unittest
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[1] / "support")]
import plan_runner_test as plans  # noqa: E402
from command import answer  # noqa: E402
from plan_cases import BF16, MIXED, Case, checkpointed, write_case  # noqa: E402
from plan_cases_fsdp1 import GPT2, plan as fsdp1  # noqa: E402

SMALL = {"batch": 1, "seq": 512}
CLIP = {"optimizer": {"clip_grad_norm": 1.0}}
SGD = {"optimizer": {"kind": "sgd", "momentum": 0.9}}


def rows(blocks: str, reshard: Any = True, layers: int = 3) -> list[dict[str, Any]]:
    return [{"modules": [blocks % (layers - 1)], "modules_per_unit": 1, "reshard_after_forward": reshard}, {"modules": [""]}]


LLAMA = "model.layers.{0..%d}"
FIRST = [
    Case("mixed", "qwen3_0_6b", 4, {**MIXED, **CLIP}, SMALL),
    # Dropout, which an evaluation leaves out; rows that do not divide; units that an evaluation leaves unsharded.
    Case("uneven_kept_fused", "gpt2", 3, {"optimizer": {"implementation": "fused"}}, SMALL, units=rows(GPT2, False), allocated=4e-3),
    Case("bf16_checkpointed", "qwen3_0_6b", 8, {**BF16, "activation_checkpointing": checkpointed("full")}, {"batch": 2, "seq": 512}),
    Case("hsdp_accumulate", "qwen3_0_6b", 2, {**MIXED, "accumulation": 2}, SMALL, replicate=4, allocated=3e-4),
    Case("sgd_of_16", "llama3_2_1b", 16, {**MIXED, **SGD}, SMALL, layers=2, allocated=3.1e-3),
    Case("smaller_world", "qwen3_0_6b", 4, {**BF16, "accumulation": 2, "sync_every_micro_batch": False}, SMALL, units=rows(LLAMA, 2)),
]
SECOND = [
    Case("offload", "qwen3_0_6b", 4, {**MIXED, "cpu_offload": True}, SMALL, layers=2),
    Case("offload_uneven", "gpt2", 3, {**MIXED, "cpu_offload": True}, {"batch": 1, "seq": 128}, blocks=GPT2),
    Case("one_gpu", "gpt2", 1, {**MIXED}, {"batch": 1, "seq": 256}, blocks=GPT2),
    Case("lora", "qwen3_0_6b", 4, BF16, SMALL, lora="r=8,alpha=16,dropout=0.1"),
    Case("ddp", "qwen3_0_6b", 1, {**BF16, **SGD, "runtime": {"name": "pytorch-ddp"}}, SMALL, replicate=2, units=[{"modules": [""]}],
         allocated=2.5e-3),
    Case("fsdp1", "gpt2", 4, fsdp1(MIXED, CLIP), {"batch": 1, "seq": 256}, blocks=GPT2),
    Case("fsdp1_tied_orig_params", "qwen3_0_6b", 4, fsdp1(MIXED, use_orig_params=True), {"batch": 1, "seq": 256}, layers=2),
    Case("also", "qwen3_0_6b", 4, MIXED, SMALL, layers=2, also=["qwen3_0_6b"]),
    Case("also_before", "qwen3_0_6b", 4, BF16, SMALL, layers=2, also=["llama3_2_1b,wrap=blocks,turn=before"]),
    Case("fsdp1_shard_grad_op", "gpt2", 2, fsdp1(MIXED), {"batch": 1, "seq": 256}, units=rows(GPT2, False)),
]
CASES = {"first": FIRST, "second": SECOND}

# The runner's phases of a run that has stepped, and of one that begins: what each is in an answer.
AFTER_STEPS = {"evaluate": "evaluation", "gather_weights": "saving_whole", "copy_parts": "saving_parts"}
AT_FIRST = {"gather_weights": "", "load_weights": "loading", "make_states": "resuming_parts", "gather_states": "",
            "load_states": "resuming_whole"}
KINDS = {"requested": "live_peak_bytes", "allocated": "allocated_peak_bytes", "reserved": "reserved_peak_bytes"}


class PhasesUnderTheRealPyTorch(unittest.TestCase):
    def check(self, case: Case) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            spec_file, plan_file = write_case(case, plans.LIBRARY, folder)
            plans.with_this_torch(plan_file)
            ranks = case.replicate * case.shard
            predicted = answer(plans.PROGRAM, "simulate", str(plan_file), "--gpu", case.gpu, "--gpus", str(ranks), "--rank", "0",
                               "--phases", "--json")
            phases = {phase["phase"]: phase for phase in predicted["job_phases"]}
            framework = case.plan.get("runtime", {}).get("name", "pytorch-fsdp2")
            # Its sharded state dict has tensors of another kind.
            later = {name: phase for name, phase in AFTER_STEPS.items() if name != "copy_parts" or framework != "pytorch-fsdp1"}
            self.compare(case, self.run_phases(case, predicted, spec_file, folder, plans.STEPS, later), phases, later)
            # With offload the runner's gather before loading leaves its segments; on one GPU it sends what a rank would read.
            if framework == "pytorch-fsdp2" and not case.plan.get("cpu_offload") and ranks > 1:
                self.compare(case, self.run_phases(case, predicted, spec_file, folder, 0, AT_FIRST), phases, AT_FIRST)

    def run_phases(self, case: Case, predicted: dict[str, Any], spec_file: pathlib.Path, folder: pathlib.Path, steps: int,
                   names: dict[str, str]) -> list[dict[str, Any]]:
        job_file = plans.write_job(case, predicted, spec_file, folder)
        job = json.loads(job_file.read_text(encoding="utf-8"))
        job.update(steps=steps, phases=list(names), phases_file=str(folder / "phases.json"))
        job_file.write_text(json.dumps(job), encoding="utf-8")
        plans.rehearse(job_file, folder / "record.json", 0, case.replicate * case.shard, steps=0)
        return json.loads((folder / "phases.json").read_text(encoding="utf-8"))

    def compare(self, case: Case, measured: list[dict[str, Any]], predicted: dict[str, Any], names: dict[str, str]) -> None:
        for row in measured:
            forecast = predicted.get(names[row["phase"]])
            if forecast is None or "live_peak_bytes" not in forecast:
                continue
            for kind, key in KINDS.items():
                bound = getattr(case, kind) * row[kind]
                print(f"{case.name:24} {forecast['phase']:15} {kind:10} {row[kind]:15} {forecast[key]:15} "
                      f"{plans.percent(row[kind], forecast[key]) if row[kind] else ''}", flush=True)
                with self.subTest(case.name, phase=forecast["phase"], kind=kind):
                    self.assertLessEqual(abs(row[kind] - forecast[key]), bound)
            if names is not AT_FIRST and row["host"] and not case.plan.get("cpu_offload"):
                self.compare_host(case, row, forecast, predicted["steady_step"])

    def compare_host(self, case: Case, row: dict[str, Any], forecast: dict[str, Any], steady: dict[str, Any]) -> None:
        """Rank 0 keeps all weights; in a sharded save each rank its part, and the first ones most. AdamW counts the steps of each
        parameter in four bytes."""
        ranks = case.replicate * case.shard if row["phase"] == "copy_parts" else 1
        kept = (forecast["host_bytes"] - steady["host_bytes"]) // ranks
        print(f"{case.name:24} {forecast['phase']:15} {'host':10} {row['host']:15} {kept:15}", flush=True)
        with self.subTest(case.name, phase=forecast["phase"], kind="host"):
            self.assertLessEqual(abs(row["host"] - kept), 4096)


for _group, _cases in CASES.items():
    for _case in _cases:
        if not plans.WANTED or _case.name in plans.WANTED or _group in plans.WANTED:
            setattr(PhasesUnderTheRealPyTorch, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
