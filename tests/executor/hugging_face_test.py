"""A run on text that stops twice and goes on is one run, and becomes a folder that transformers loads with equal loss.

    hugging_face_test.py FSDP_EXEC      run by a Python that has torch; without transformers it is skipped (77)
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import unittest
from typing import Any

sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from parity_cases import Case  # noqa: E402
from ranks import ROOT, InAFolder, run_executor  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
SEQ, BATCH, RANKS = 24, 4, 2
STEPS = ("20", "45", "60")
EXIT_INPUT, EXIT_SKIPPED = 2, 77
CASE = Case("text", "llama3_2_1b", RANKS, {"optimizer": {"clip_grad_norm": 1.0}}, dimensions={"batch": BATCH, "seq": SEQ})
# Of small_models.CUTS["llama3_2_1b"]; rotary frequencies and epsilon as published, at the size of a head that it has.
CONFIGURATION = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 257, "hidden_size": 64,
    "intermediate_size": 172, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "attention_bias": False, "mlp_bias": False, "hidden_act": "silu",
    "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192}}


def as_ids(data: bytes) -> bytes:
    """A byte is a token of 16 bits."""
    return b"".join(bytes([each, 0]) for each in data)


class OnText(InAFolder):
    def export(self, step: pathlib.Path, out: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.run([sys.executable, "-B", "-m", "fsdp_checkpoint", "to-hf", str(step), str(out), *options],
                              env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)

    def loaded_loss(self, folder: pathlib.Path, ids: bytes) -> float:
        import torch
        from transformers import AutoModelForCausalLM

        model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        self.assertEqual([list(info[key]) for key in ("missing_keys", "unexpected_keys", "mismatched_keys")], [[], [], []])
        rows = torch.tensor(list(ids)).view(-1, SEQ)
        model.eval()
        with torch.no_grad():
            return model(input_ids=rows, labels=rows).loss.item()

    def test_a_run_resumed_twice_is_one_run_and_is_loaded_by_transformers(self) -> None:
        data = b"".join((ROOT / "docs" / name).read_bytes() for name in ("architecture.md", "checkpoints.md"))
        held_out = data[:RANKS * BATCH * SEQ]
        (self.folder / "train.bin").write_bytes(as_ids(data[len(held_out):]))
        (self.folder / "held.bin").write_bytes(as_ids(held_out))
        plan = CASE.write(self.folder)
        train = ["--tokens", str(self.folder / "train.bin"), "--lr", "0.003", "--schedule", "cosine", "--warmup", "10",
                 "--schedule-steps", STEPS[-1], "--no-decay", "norms,biases", "--seed", "5"]
        checkpoints = self.folder / "c"
        whole = run_executor(EXECUTOR, plan, RANKS, self.folder, "whole", [*train, "--steps", STEPS[-1]])
        for steps in STEPS:
            run = run_executor(EXECUTOR, plan, RANKS, self.folder, "run",
                               [*train, "--steps", steps, "--checkpoint", str(checkpoints), "--resume", "latest"])
        self.assertEqual(run["parameters"], whole["parameters"])
        step = checkpoints / f"step-{int(STEPS[-1]):08}"
        looked = run_executor(EXECUTOR, plan, RANKS, self.folder, "looked",
                              ["--tokens", str(self.folder / "held.bin"), "--weights", str(step / "model"), "--lr", "0",
                               "--steps", "1"])
        ours = sum(steps[0]["loss"] for steps in looked["steps"]) / RANKS
        self.assertLess(ours, whole["steps"][0][0]["loss"] - 1, "it has not learned")

        config = self.folder / "published"
        config.mkdir()
        (config / "config.json").write_text(json.dumps(CONFIGURATION), encoding="utf-8")
        (config / "tokenizer.json").write_text("{}", encoding="utf-8")
        for name, options, near in (("whole", [], 2e-6), ("cut", ["--max-shard-bytes", "200000"], 2e-6),
                                    ("half", ["--dtype", "bfloat16"], 0.05)):
            with self.subTest(name):
                out = self.folder / name
                done = self.export(step, out, "--config", str(config), *options)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual((out / "model.safetensors.index.json").is_file(), name == "cut")
                self.assertTrue((out / "tokenizer.json").is_file())
                written = json.loads((out / "config.json").read_text(encoding="utf-8"))["torch_dtype"]
                self.assertEqual(written, "bfloat16" if name == "half" else "float32")
                theirs = self.loaded_loss(out, held_out)
                print(f"{name}: fsdp-exec {ours}, transformers {theirs}", file=sys.stderr)
                self.assertAlmostEqual(theirs, ours, delta=near)
        self.expect_refusals(step, config)

    def expect_refusals(self, step: pathlib.Path, config: pathlib.Path) -> None:
        changes: list[tuple[dict[str, Any], str]] = [
            ({"vocab_size": 256}, "vocab_size is 256"), ({"tie_word_embeddings": False}, "no lm_head.weight")]
        for change, said in changes:
            (config / "config.json").write_text(json.dumps({**CONFIGURATION, **change}), encoding="utf-8")
            done = self.export(step, self.folder / "refused", "--config", str(config))
            self.assertEqual(done.returncode, EXIT_INPUT)
            self.assertIn(said, done.stderr)
            self.assertFalse((self.folder / "refused").exists())


if __name__ == "__main__":
    try:
        import transformers  # noqa: F401
    except ImportError:
        print("transformers is not installed", file=sys.stderr)
        sys.exit(EXIT_SKIPPED)
    unittest.main(argv=sys.argv[:1])
