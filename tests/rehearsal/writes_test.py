"""Training scripts that save and load, rehearsed by the command: nothing of theirs reaches the disk. Needs a Python with torch.

    writes_test.py STUB BINARY
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

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


# Trackers as their documentation says: each sends when it is asked to, whatever its environment variables say.
TRACKERS = {
    "wandb": """
import os, socket
def send():
    socket.create_connection(("127.0.0.1", int(os.environ["LISTENER"])))
def init(project=None, mode=None):
    if (mode or os.environ.get("WANDB_MODE")) != "disabled": send()
def login(key=None): send()
def log(values): pass
""",
    "mlflow": """
import os
from wandb import send
_uri = os.environ.get("MLFLOW_TRACKING_URI", "")
def set_tracking_uri(uri):
    global _uri
    _uri = uri
def log_metric(key, value):
    if "://" in _uri and not _uri.startswith("file:"): send()
    elif os.environ.get("MLFLOW_ALLOW_FILE_STORE") != "true": raise Exception("The filesystem tracking backend is in maintenance mode")
""",
    "comet_ml": """
from wandb import send
class OfflineExperiment:
    def __init__(self, offline_directory=None, project_name=None): pass
    def log_metric(self, name, value): pass
class Experiment(OfflineExperiment):
    def __init__(self, api_key=None, project_name=None): send()
""",
}

TRACKED = """
import comet_ml, mlflow, torch, wandb
wandb.login(key="0" * 40)
wandb.init(project="p", mode="online")
mlflow.set_tracking_uri("http://tracker.example:5000")
experiment = comet_ml.Experiment(api_key="key", project_name="p")
net = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(net.parameters())
for step in range(3):
    loss = net(torch.randn(8, 256, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    wandb.log({"loss": loss.item()})
    mlflow.log_metric("loss", loss.item())
    experiment.log_metric("loss", loss.item())
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

    def test_checkpoints_do_not_reach_the_disk(self):
        out = self.rehearse(SCRIPTS / "saves.py", options=["--steps", "4"])
        self.assertIn("best.pt, checkpoints/step-3/state.pt, data/cache-", out)

    def test_trackers_get_nothing(self):
        for name, text in TRACKERS.items():
            (self.folder / f"{name}.py").write_text(text)
        (self.folder / "train.py").write_text(TRACKED)
        with socket.create_server(("127.0.0.1", 0)) as listener, mock.patch.dict(os.environ, LISTENER=str(listener.getsockname()[1])):
            out = self.rehearse("train.py")
            listener.settimeout(0)
            with self.assertRaises(BlockingIOError, msg="Something was sent."):
                listener.accept()
        for call in ("wandb: init", "mlflow: set_tracking_uri('http://tracker.example:5000')", "comet_ml: Experiment"):
            self.assertIn(f"{call} was called and nothing was sent.", out)

    @unittest.skipUnless(has("transformers") and has("accelerate"), "needs transformers and accelerate")
    def test_hugging_face_trainer_does_not_reach_the_disk(self):
        (self.folder / "train.py").write_text(TRAINER)
        out = self.rehearse("train.py", options=["--steps", "0"])
        self.assertIn("out/", out)
        self.assertIn("huggingface_hub: create_repo was called and nothing was sent.", out)


if __name__ == "__main__":
    STUB, BINARY = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main(verbosity=2)
