"""Puts plans into a script that knows nothing of them (scripts/llama.py), and holds the predictions to what PyTorch then does.

    apply_plan_test.py STUB FSDP_PLAN      run by a Python that has torch and transformers; exit 77 without transformers
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

from said import without_progress

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = pathlib.Path(__file__).resolve().parent / "scripts" / "llama.py"
STUB, PROGRAM = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
LIMIT_SECONDS = 900
MOST_OFF = 0.01
SEGMENT = 20 << 20  # What PyTorch's allocator asks of the device at a time.

SPEC = {
    "format_version": "1.0",
    "name": "Llama-of-a-test",
    "source": "scripts/llama.py",
    "dtype": "float32",
    "dimensions": {"batch": 2, "seq": 512},
    "inputs": {name: {"shape": ["batch", "seq"], "dtype": "int64"} for name in ("input_ids", "labels")},
    "classes": {"": "LlamaForCausalLM", "model": "LlamaModel"},
    "modules": [
        {"name": "model.embed_tokens", "block": "token_embedding", "vocab_size": 4096, "hidden_size": 512},
        {"name": "model.rotary_emb", "block": "rotary_table", "head_dim": 64, "rope_theta": 10000},
        {"name": "model.layers.{0..2}", "block": "decoder_layer", "num_attention_heads": 8, "num_key_value_heads": 2,
         "intermediate_size": 2048, "norm_eps": 1e-5},
        {"name": "model.norm", "class": "LlamaRMSNorm", "block": "rms_norm", "eps": 1e-5},
        {"name": "lm_head", "block": "lm_head", "vocab_size": 4096},
        {"name": "", "block": "cross_entropy", "shift": True},
    ],
    "registration": ["model.embed_tokens", "model.layers", "model.norm", "model.rotary_emb"],
}
LAYERS = [{"modules": ["model.layers.{0..2}"], "modules_per_unit": 1}, {"modules": [""]}]


class PlansInAScript(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write(SPEC)

    def write(self, spec: dict[str, Any]) -> None:
        (self.folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")

    def plan(self, **members: Any) -> pathlib.Path:
        path = self.folder / "plan.json"
        plan = {"format_version": "1.0", "model": {"name": SPEC["name"], "file": str(self.folder / "spec.json"),
                                                   "dimensions": SPEC["dimensions"]},
                "mesh": {"replicate": 1, "shard": 4}, "units": LAYERS, "initialization": "cpu", **members}
        path.write_text(json.dumps(plan), encoding="utf-8")
        return path

    def run_program(self, *words: str | pathlib.Path) -> tuple[int, str, str]:
        environment = {**os.environ, "FSDP_PLAN_MODEL_SPECS": str(ROOT / "model_specs"), "FSDP_PLAN_STUB_GPU": str(STUB),
                       "FSDP_PLAN_PYTHON_PATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([str(word) for word in (PROGRAM, *words)], capture_output=True, text=True, cwd=self.folder,
                              env=environment, timeout=LIMIT_SECONDS, check=False)
        return done.returncode, done.stdout, without_progress(done.stderr)

    def rehearse(self, plan: pathlib.Path, *script: str, options: tuple[str, ...] = (),
                 launcher: tuple[str, ...] = ()) -> tuple[int, str, str]:
        return self.run_program("rehearse", "--apply", plan, "--gpu", "H100 SXM", "--gpus", "4", "--json",
                                *options, "--", sys.executable, *launcher, SCRIPT, *script)

    def check(self, plan: pathlib.Path, *script: str, launcher: tuple[str, ...] = (), rank: int = 0, segments: int = 0) -> dict[str, Any]:
        """Rehearses, compares with the prediction; returns the report. So many segments more or less may be reserved."""
        code, out, said = self.rehearse(plan, *script, launcher=launcher, options=("--rank", str(rank)))
        self.assertEqual((code, said), (0, ""))
        measured = json.loads(out)
        code, out, said = self.run_program("simulate", plan, "--gpu", "H100 SXM", "--gpus", "4", "--rank", str(rank), "--json")
        self.assertEqual(code, 0, said)
        predicted = json.loads(out)

        def sent(report: dict[str, Any]) -> list[tuple[Any, ...]]:
            return [(c["kind"], c["elements"], c["dtype"], c["group_size"]) for c in report["traffic"]["collectives"]]

        self.assertEqual(sent(measured), sent(predicted))
        self.assertIn("comparison", measured)
        for phase in ("initialization", "first_step", "steady_step"):
            for kind in ("live_peak_bytes", "allocated_peak_bytes", "reserved_peak_bytes"):
                seen, said_before = (r["memory"]["phases"][phase][kind] for r in (measured, predicted))
                print(f"{self.id().rpartition('.')[2]:44} {phase:15} {kind:20} {seen:12} {said_before:12} "
                      f"{100 * (said_before - seen) / seen:+.3f} %", flush=True)
                more = segments * SEGMENT if kind.startswith("reserved") else 0
                with self.subTest(phase=phase, kind=kind):
                    self.assertLessEqual(abs(said_before - seen), max(MOST_OFF * seen, more))
        notes = [w["text"] for w in measured["rehearsal"]["warnings"] if w["kind"] == "plan_applied"]
        self.assertEqual(len(notes), 1)
        self.assertIn("4 units of ", notes[0])
        return measured

    def test_units_by_layer(self) -> None:
        self.check(self.plan(optimizer={"clip_grad_norm": 1.0}), "groups", rank=3)

    def test_recomputation_and_named_parameters(self) -> None:
        checkpointing = {"modules": [{"module": "model.layers.{0..2}", "mode": "full"}]}
        self.check(self.plan(activation_checkpointing=checkpointing), "named")

    def test_selective_checkpointing_of_ops(self) -> None:
        modules = [{"module": "model.layers.{0..1}", "mode": "selective"}]
        for saved in ({}, {"every_second_linear": False}, {"selective_keep": ["attention"]}):
            with self.subTest(saved=saved):
                # Where blocks run again, the script holds its positions of 4 KiB, which no plan names. That decides which
                # cached block is split, and a small model is 20 segments.
                self.check(self.plan(activation_checkpointing={"modules": modules, **saved}), segments=1)
        code, out, said = self.rehearse(self.plan(activation_checkpointing={"modules": modules, "selective_keep": ["silu"]}))
        self.assertEqual((code, out), (2, ""))
        self.assertIn('The outputs of "silu" are kept, which a script does not tell', said)

    def test_replicated_shards(self) -> None:
        self.check(self.plan(mesh={"replicate": 2, "shard": 2}))

    def test_mixed_precision_and_prefetch_over_the_scripts_own_units(self) -> None:
        precision = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
        self.check(self.plan(mixed_precision=precision, parameter_dtype="float32", forward_prefetch=1, backward_prefetch=2),
                   "fully_shard")

    def test_instead_of_ddp_under_torchrun(self) -> None:
        launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "4")
        measured = self.check(self.plan(initialization="device"), "ddp", launcher=launcher)
        texts = [w["text"] for w in measured["rehearsal"]["warnings"] if w["kind"] == "plan_in_place"]
        self.assertEqual(texts, ["The plan takes the place of the script's DistributedDataParallel."])

    def test_names_missing_from_the_script_are_reported(self) -> None:
        longer = json.loads(json.dumps(SPEC).replace("{0..2}", "{0..3}"))
        self.write(longer)
        units = [{"modules": ["model.layers.{0..3}"], "modules_per_unit": 1}, {"modules": [""]}]
        code, out, said = self.rehearse(self.plan(units=units))
        self.assertEqual((code, out), (2, ""))
        self.assertIn("plan.json: The script's LlamaForCausalLM has no module \"model.layers.3\". Did you mean \"model.layers.", said)

    def test_script_without_an_optimizer_of_its_model_is_reported(self) -> None:
        code, out, said = self.rehearse(self.plan(), "no_optimizer")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("The plan was not applied", said)

    def test_engine_that_owns_the_training_is_refused(self) -> None:
        code, out, said = self.rehearse(self.plan(), "engine")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("accelerate with its FSDP plugin", said)

    def test_unsupported_requests_are_refused(self) -> None:
        code, _, said = self.run_program("rehearse", "--apply", self.plan(), "--gpu", "T4", "--gpus", "8", "--", sys.executable, SCRIPT)
        self.assertEqual(code, 2)
        self.assertIn("The mesh has 4 ranks, the machines have 8 GPUs.", said)
        code, _, said = self.run_program("rehearse", "--apply", self.plan(), self.plan(), "--gpu", "T4", "--gpus", "4")
        self.assertEqual(code, 2)
        self.assertIn("--apply: The plan itself is rehearsed already.", said)


if __name__ == "__main__":
    if importlib.util.find_spec("transformers") is None:
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
