"""Training scripts that save and load, rehearsed by the command: nothing of theirs reaches the disk. Needs a Python with torch.

    writes_test.py STUB BINARY
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent / "scripts"
BINARY = STUB = ""

TRAINER = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
config = LlamaConfig(vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4)
data = [{"input_ids": list(range(64)), "labels": list(range(64))}] * 64
arguments = TrainingArguments(
    "out", per_device_train_batch_size=2, max_steps=6, save_steps=2, eval_steps=2, eval_strategy="steps", save_total_limit=1,
    load_best_model_at_end=True, push_to_hub=True, hub_model_id="somebody/model", report_to="none")
trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=data, eval_dataset=data[:4])
trainer.train()
trainer.save_model("out/final")
LlamaForCausalLM.from_pretrained("out/final")
"""


def picture(folder):
    return {str(p): (p.lstat().st_mode, p.lstat().st_mtime_ns, p.lstat().st_ino, p.read_bytes() if p.is_file() else None)
            for p in [folder, *folder.rglob("*")]}


def has(module):
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


class Writes(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "data").mkdir()
        (self.folder / "checkpoints" / "step-old").mkdir(parents=True)
        make = ("import torch, torch.nn as nn; "
                "torch.save(nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 1)).state_dict(), 'best.pt')")
        subprocess.run([sys.executable, "-c", make], cwd=self.folder, check=True)

    def rehearse(self, *command, options=()):
        before = picture(self.folder)
        done = subprocess.run([BINARY, "rehearse", *options, "--", sys.executable, *map(str, command)], cwd=self.folder,
                              env={**os.environ, "FSDP_PLAN_STUB_GPU": STUB}, capture_output=True, text=True,
                              timeout=400, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(before, picture(self.folder), "The rehearsal changed files of the user.")
        return " ".join(done.stdout.split())

    def test_checkpoints(self):
        out = self.rehearse(SCRIPTS / "saves.py", options=["--steps", "4"])
        self.assertIn("best.pt, checkpoints/step-3/state.pt, data/cache-", out)

    @unittest.skipUnless(has("transformers") and has("accelerate"), "needs transformers and accelerate")
    def test_the_trainer_of_hugging_face(self):
        (self.folder / "train.py").write_text(TRAINER)
        out = self.rehearse("train.py", options=["--steps", "0"])
        self.assertIn("out/", out)
        self.assertIn("huggingface_hub: create_repo was called and nothing was sent.", out)


if __name__ == "__main__":
    STUB, BINARY = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main(verbosity=2)
