"""Trains decoders of transformers with padded rows on the stub GPU, and holds the prediction with --padding-mask to them.

    padding_mask_test.py STUB FSDP_PLAN      run by a Python that has torch and transformers; exit 77: it has no transformers
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

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[1] / "support")]
from command import answer  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH, LENGTH, STEPS = 4, 640, 3
SIZES = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 3, "num_attention_heads": 16,
         "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 8192, "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
         "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
MODELS = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rms_norm_eps": 1e-5, "hidden_act": "silu"},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rms_norm_eps": 1e-6, "hidden_act": "silu"},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "rms_norm_eps": 1e-5, "hidden_act": "silu",
                "sliding_window": 1024},
}
# Ours makes a mask for layers without a window as well, which Mistral lacks, and drops it: blocks are cut elsewhere.
ALLOCATED = {"mistral": 3e-3}


def train(folder: str, log: str, is_padded: bool) -> None:
    """In the process on the stub GPU."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    device = torch.device("cuda", 0)
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16)
    model.to(device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    # On the host, as a collator makes it: transformers reads whether rows have padding.
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    if is_padded:
        mask[1:, LENGTH // 2:] = 0
    peaks = []
    for _ in range(STEPS):
        torch.cuda.reset_peak_memory_stats()
        ids = torch.ones(BATCH, LENGTH, dtype=torch.int64)
        batch = {"input_ids": ids.to(device), "attention_mask": mask.to(device), "labels": ids.to(device)}
        loss = model(**batch, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        stats = torch.cuda.memory_stats()
        peaks.append({kind: stats[f"{kind}_bytes.all.peak"] for kind in ("requested", "allocated", "reserved")})
    pathlib.Path(log).write_text(json.dumps(peaks), encoding="utf-8")


class PaddingMasks(unittest.TestCase):
    def check(self, name: str, is_padded: bool) -> None:
        with tempfile.TemporaryDirectory() as folder_name:
            folder = pathlib.Path(folder_name)
            (folder / "config.json").write_text(json.dumps({**SIZES, **MODELS[name]}), encoding="utf-8")
            predicted = answer(PROGRAM, str(folder), "--gpu", "H100 SXM", "--gpus", "1", "--runtime", "ddp", "--precision", "bf16",
                               "--batch", str(BATCH), "--accumulate", "1", "--seq", str(LENGTH), "--activation-checkpointing", "none",
                               "--initialization", "cpu", "--padding-mask", "yes" if is_padded else "no", "--json")
            log = folder / "log.json"
            path = os.pathsep.join([str(ROOT / "python" / "hook"), *filter(None, [os.environ.get("PYTHONPATH")])])
            environment = {**os.environ, "PYTHONPATH": path, "FSDP_REHEARSAL": "1", "FSDP_REHEARSAL_STUB": str(STUB),
                           "FSDP_REHEARSAL_STEPS": "0", "FSDP_REHEARSAL_RECORD": str(folder / "record.json"), "OMP_NUM_THREADS": "1",
                           "STUB_GPU_CUDNN_WORKSPACE_BYTES": "0", "STUB_GPU_EVENTS": "done"}
            done = subprocess.run([sys.executable, __file__, str(STUB), str(PROGRAM), "--train", str(folder), str(log), str(int(is_padded))],
                                  env=environment, capture_output=True, text=True, timeout=900)
            if not log.is_file():
                raise AssertionError(f"no log, exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
            peaks = json.loads(log.read_text(encoding="utf-8"))[-1]
        phase = next(phase for phase in predicted["memory"]["phases"] if phase["phase"] == "steady_step") \
            if isinstance(predicted["memory"]["phases"], list) else predicted["memory"]["phases"]["steady_step"]
        for kind, key, bound in (("requested", "live_peak_bytes", 1e-3), ("allocated", "allocated_peak_bytes", ALLOCATED.get(name, 1e-3)),
                                 ("reserved", "reserved_peak_bytes", 0.03)):
            print(f"{name:8} padded {is_padded!s:5} {kind:10} {peaks[kind]:12} {phase[key]:12} "
                  f"{100 * (phase[key] - peaks[kind]) / peaks[kind]:+.3f} %", flush=True)
            with self.subTest(name, kind=kind, is_padded=is_padded):
                self.assertLessEqual(abs(phase[key] - peaks[kind]), bound * peaks[kind])


if __name__ == "__main__":
    STUB, PROGRAM = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    if sys.argv[3:4] == ["--train"]:
        train(sys.argv[4], sys.argv[5], sys.argv[6] == "1")
        sys.exit(0)
    if importlib.util.find_spec("transformers") is None:
        print("It needs transformers. Write: ./scripts/rehearsal_env finetuning, and have PYTHONPATH lead there.", file=sys.stderr)
        sys.exit(77)
    WANTED: list[Any] = sys.argv[3:]
    for _name in MODELS:
        for _is_padded in (False, True):
            if not WANTED or _name in WANTED:
                setattr(PaddingMasks, f"test_{_name}_{'padded' if _is_padded else 'even'}",
                        lambda self, name=_name, is_padded=_is_padded: self.check(name, is_padded))
    unittest.main(argv=sys.argv[:1], verbosity=2)
