"""A whole run on text: training with held-out evaluations, stopped and resumed twice, and exported for transformers.

    text_run.py FSDP_EXEC DOCUMENT      run by a Python that has torch and transformers

writes the table of docs/tables/executor_published.md; scripts/executor_proof calls it, and hugging_face_test.py compares the table
with such a run.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[1] / "support")]
from marked_text import write_between  # noqa: E402
from parity_cases import Case  # noqa: E402
from ranks import ROOT, run_executor  # noqa: E402

SEQ, BATCH, RANKS = 24, 4, 2
ENDS = (20, 45, 60)  # Steps at which the run ends; the last is final.
EVALUATE_EVERY = 15
HELD_OUT = 8 * RANKS * BATCH * SEQ
SHOWN = (1, 15, 30, 45, 60)
CASE = Case("text", "llama3_2_1b", RANKS, {"optimizer": {"clip_grad_norm": 1.0}}, dimensions={"batch": BATCH, "seq": SEQ})
# The sizes of small_models.CUTS["llama3_2_1b"]; rotary frequencies and epsilon as published, for its own head size.
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


@dataclass
class TextRun:
    """A run that was stopped twice, and one that was not and had no evaluations."""

    parameters: dict[str, Any]
    unbroken: dict[str, Any]
    curve: list[dict[str, Any]]  # The lines of --metrics.
    checkpoint: pathlib.Path
    held_out: bytes

    @property
    def losses(self) -> dict[int, float]:
        return {line["step"]: line["loss"] for line in self.curve if "loss" in line}

    @property
    def evaluations(self) -> dict[int, float]:
        return {line["step"]: line["evaluation_loss"] for line in self.curve if "evaluation_loss" in line}


def train(executor: pathlib.Path, folder: pathlib.Path) -> TextRun:
    data = (ROOT / "LICENSE").read_bytes()
    held_out = data[:HELD_OUT]
    tokens, held, metrics, checkpoints = (folder / name for name in ("train.bin", "held.bin", "run.jsonl", "c"))
    tokens.write_bytes(as_ids(data[HELD_OUT:]))
    held.write_bytes(as_ids(held_out))
    plan = CASE.write(folder)
    how = ["--tokens", str(tokens), "--lr", "0.003", "--schedule", "cosine", "--warmup", "10", "--schedule-steps",
           str(ENDS[-1]), "--no-decay", "norms,biases", "--seed", "5"]
    unbroken = run_executor(executor, plan, RANKS, folder, "unbroken", [*how, "--steps", str(ENDS[-1])])
    for end in ENDS:
        run = run_executor(executor, plan, RANKS, folder, "run",
                           [*how, "--steps", str(end), "--checkpoint-dir", str(checkpoints), "--resume", "latest", "--metrics",
                            str(metrics), "--evaluate", str(held), "--evaluate-every", str(EVALUATE_EVERY)])
    curve = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    return TextRun(run["parameters"], unbroken, curve, checkpoints / f"step-{ENDS[-1]:08}", held_out)


def export(step: pathlib.Path, out: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run([sys.executable, "-B", "-m", "fsdp_checkpoint", "to-hf", str(step), str(out), *options],
                          env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)


def loaded_loss(folder: pathlib.Path, ids: bytes) -> float:
    """transformers' loss with the folder. Raises AssertionError if it has filled in or left out parameters."""
    import torch
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    found = [list(info[key]) for key in ("missing_keys", "unexpected_keys", "mismatched_keys")]
    assert found == [[], [], []], found
    rows = torch.tensor(list(ids)).view(-1, SEQ)
    model.eval()
    with torch.no_grad():
        return model(input_ids=rows, labels=rows).loss.item()


def table(run: TextRun, theirs: float) -> list[str]:
    lines = ["| step | loss | held-out loss | in transformers |", "|---:|---:|---:|---:|"]
    for step in SHOWN:
        held_out = f"{run.evaluations[step]:.4f}" if step in run.evaluations else ""
        lines.append(f"| {step} | {run.losses[step]:.4f} | {held_out} | {f'{theirs:.4f}' if step == SHOWN[-1] else ''} |")
    return lines


def main() -> None:
    executor, document = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run = train(executor, folder)
        (folder / "config.json").write_text(json.dumps(CONFIGURATION), encoding="utf-8")
        done = export(run.checkpoint, folder / "trained", "--config", str(folder / "config.json"))
        assert done.returncode == 0, done.stderr
        write_between(document, "text run", table(run, loaded_loss(folder / "trained", run.held_out)))


if __name__ == "__main__":
    main()
