"""`export PLAN --to accelerate` and `--to trainer`: what they write is handed to the real libraries. A script of transformers is
captured and planned; scripts of accelerate and of the Trainer run with what was exported, under the real FSDP2, and are held
against the prediction of the plan.

    export_trainers_test.py STUB FSDP_PLAN      run by a Python that has torch and transformers; exit 77 without transformers
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from typing import Any

from capture_runs import collectives_of
from program_in_a_folder import ProgramInAFolder

# The releases that are installed, of which the file is written for the nearest.
HAS_UNITS_OF_ENDS = importlib.util.find_spec("accelerate") is not None and \
    tuple(int(part) for part in importlib.metadata.version("accelerate").split(".")[:2]) >= (1, 14)  # fmt: skip
RELEASES = {"accelerate": "1.15.0", "trainer": "5.24.0"} if HAS_UNITS_OF_ENDS else {"accelerate": "1.12.0", "trainer": "4.57.3"}

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPUS = ("--gpus", "4", "--gpu", "H100 SXM")
PLANNED = ("--wrap", "blocks", "--force", "--quiet")
MICRO_BATCH = 2 * 4 * 256 * 8  # bytes: token numbers and labels of 4 samples

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 688,
          "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4000, "torch_dtype": "bfloat16",
          "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "tie_word_embeddings": False}

MODEL = '''
import os
import torch
import transformers


def made():
    config = transformers.LlamaConfig(
        hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=4000)
    return transformers.LlamaForCausalLM(config).to(torch.bfloat16)


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        text = torch.randint(4000, (256,))
        return {"input_ids": text, "labels": text}
'''

PLAIN = '''
import torch
from model import Texts, made

model = made().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in torch.utils.data.DataLoader(Texts(), batch_size=4):
    batch = {name: value.cuda() for name, value in batch.items()}
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    del batch
'''

# Does what the file that is exported says the script must.
LOOP = '''
import sys
import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from model import Texts, made

micro_batches = int(sys.argv[1])
accelerator = Accelerator(gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=micro_batches))
model = made()
if "checkpointed" in sys.argv:
    model.gradient_checkpointing_enable({"use_reentrant": False})
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(Texts(), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch).loss)
        if "clipped" in sys.argv and accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        optimizer.zero_grad()
'''

# FSDP1 makes flat parameters when the model is prepared, and the optimizer is made of those.
FLAT_LOOP = LOOP.replace("optimizer = torch.optim.AdamW(model.parameters())\n", "").replace(
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    "model = accelerator.prepare(model)\n"
    "optimizer, loader = accelerator.prepare(torch.optim.AdamW(model.parameters()), loader)")

TRAINER = '''
import tempfile
from exported import training_arguments
from model import Texts, made
from transformers import Trainer

arguments = training_arguments(
    tempfile.mkdtemp(), max_steps=20, report_to="none", save_strategy="no", disable_tqdm=True)
Trainer(made(), arguments, train_dataset=Texts()).train()
'''

SCRIPTS = {"model.py": MODEL, "plain.py": PLAIN, "loop.py": LOOP, "flat_loop.py": FLAT_LOOP, "trainer.py": TRAINER}


class Trainers(ProgramInAFolder):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name, text in SCRIPTS.items():
            (cls.folder / name).write_text(text, encoding="utf-8")
        cls.run_program("capture", "-o", "model.json", "--no-check", *GPUS[2:], "--", sys.executable, "plain.py")

    def exported(self, trainer: str, *choices: str) -> str:
        """Plans, and exports the nearest plan, which near.json then has."""
        self.run_program("model.json", *GPUS, *PLANNED, "-o", "plan.json", *choices)
        return self.run_program("export", "plan.json", "--to", trainer, "--trainer-version", RELEASES[trainer],
                                "--nearest", "near.json", "--force")  # fmt: skip

    def expect_as_predicted(self, command: tuple[str, ...], beside: int = 0, ends: tuple[str, ...] = (), within: int = 4096) -> None:
        """Units, collectives and bytes. `beside`: bytes that the trainer's loop keeps, and a captured loop does not. `within`: of
        small tensors of the loop."""
        measured = json.loads(self.run_program("rehearse", *GPUS, "--record-stream", "done", "--json", "--", sys.executable, *command))
        predicted = json.loads(self.run_program("simulate", "near.json", "--rank", "0", "--json"))
        self.assertEqual(self.units_of(measured), {*(ends or self.ends()), *(f"model.layers.{i}" for i in range(4))})
        self.assertEqual(collectives_of(measured), collectives_of(predicted))
        for key in ("live_peak_bytes", "allocated_peak_bytes"):
            found, said = (each["memory"]["phases"]["steady_step"][key] for each in (measured, predicted))
            self.assertLessEqual(abs(found - said - beside), within, f"{key}: {found} are measured, {said} predicted")

    @classmethod
    def ends(cls) -> tuple[str, ...]:
        """What is a unit beside the blocks: of accelerate since 1.14 all that else is left to the root."""
        near = json.loads((cls.folder / "near.json").read_text(encoding="utf-8"))
        is_flat = near["runtime"]["name"] == "pytorch-fsdp1"
        return ("model.embed_tokens", "model.norm") if HAS_UNITS_OF_ENDS and not is_flat else ("",)

    @staticmethod
    def units_of(measured: dict[str, Any]) -> set[str]:
        (wrapper,) = measured["rehearsal"]["applied"]["wrappers"]
        return {unit["name"] for unit in wrapper["units"]}

    def launched(self, text: str, *words: str, ends: tuple[str, ...] = (), script: str = "loop.py") -> None:
        (self.folder / "accelerate.yaml").write_text(text, encoding="utf-8")
        launcher = ("-m", "accelerate.commands.launch", "--config_file", "accelerate.yaml")
        self.expect_as_predicted((*launcher, script, *words), ends=ends)

    def trained(self, text: str, beside: int = 0, within: int = 4096) -> None:
        (self.folder / "exported.py").write_text(text, encoding="utf-8")
        self.expect_as_predicted(("-m", "torch.distributed.run", "--nproc-per-node", "4", "trainer.py"), beside, within=within)

    def test_accelerate_shards_and_mixes_precision(self) -> None:
        text = self.exported("accelerate", "--strategy", "FULL_SHARD", "--precision", "mixed", "--clip-grad-norm", "1",
                             "--activation-checkpointing", "none", "--wrap-ends", "yes", "--initialization", "meta")
        self.assertIn("  fsdp_cpu_ram_efficient_loading: true\n", text)
        classes = "LlamaDecoderLayer" if HAS_UNITS_OF_ENDS else "Embedding,LlamaDecoderLayer"
        self.assertIn(f"  fsdp_transformer_layer_cls_to_wrap: {classes}\n", text)
        self.assertIn("mixed_precision: bf16\n", text)
        # In the older one the root keeps the head, which has the class of every projection.
        self.launched(text, "1", "clipped", ends=() if HAS_UNITS_OF_ENDS else ("", "model.embed_tokens"))

    def test_accelerate_shards_hybrid_and_recomputes_blocks(self) -> None:
        text = self.exported("accelerate", "--shard", "2", "--replicate", "2", "--reshard", "true",
                             "--activation-checkpointing", "full")
        self.assertIn("  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 2\n", text)
        self.launched(text, "1", "checkpointed")

    def test_accelerate_offloads_stays_gathered_and_accumulates(self) -> None:
        text = self.exported("accelerate", "--shard", "4", "--reshard", "false", "--offload", "yes", "--accumulate", "2",
                             "--gradient-sync", "last", "--activation-checkpointing", "none")
        self.assertIn("fsdp_reshard_after_forward: false\n", text)
        self.launched(text, "2")

    def test_accelerate_wraps_flat_parameters_and_recomputes_blocks(self) -> None:
        text = self.exported("accelerate", "--runtime", "fsdp1", "--strategy", "FULL_SHARD", "--clip-grad-norm", "1",
                             "--activation-checkpointing", "full", "--wrap-ends", "no")
        self.assertIn("  fsdp_version: 1\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n", text)
        self.assertIn("  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_backward_prefetch: ", text)
        self.assertNotIn("closest plan", text)
        self.launched(text, "1", "checkpointed", "clipped", script="flat_loop.py")

    def test_accelerate_leaves_flat_parameters_gathered_and_accumulates(self) -> None:
        text = self.exported("accelerate", "--runtime", "fsdp1", "--strategy", "SHARD_GRAD_OP", "--accumulate", "2",
                             "--gradient-sync", "last", "--activation-checkpointing", "none", "--wrap-ends", "no")
        self.assertIn("  fsdp_sharding_strategy: SHARD_GRAD_OP\n", text)
        self.launched(text, "2", script="flat_loop.py")

    def test_the_trainer_shards_recomputes_clips_and_accumulates(self) -> None:
        text = self.exported("trainer", "--strategy", "FULL_SHARD", "--activation-checkpointing", "full", "--clip-grad-norm", "1",
                             "--accumulate", "2", "--gradient-sync", "last", "--initialization", "meta")
        self.assertIn('"cpu_ram_efficient_loading": True', text)
        self.assertIn("_checkpointing=True", text)
        self.trained(text, beside=MICRO_BATCH)  # It loads all micro-batches of a step at once.

    @unittest.skipUnless(HAS_UNITS_OF_ENDS, "this Trainer keeps inputs on the device")
    def test_the_trainer_keeps_inputs_of_blocks_on_the_host(self) -> None:
        """A capture has not recorded that, so the plan is of the model's config.json."""
        code = "from model import made; made().config.save_pretrained('tiny')"
        subprocess.run([sys.executable, "-c", code], cwd=self.folder, capture_output=True, check=True)
        self.run_program("tiny", *GPUS, *PLANNED, "--batch", "4", "--seq", "256", "--strategy", "FULL_SHARD", "--precision", "mixed",
                         "--activation-checkpointing", "full", "--checkpoint-offload", "yes", "-o", "plan.json")
        text = self.run_program("export", "plan.json", "--to", "trainer", "--nearest", "near.json", "--force")
        self.assertIn('"offload": True', text)
        self.assertNotIn("/activation_checkpointing", text)
        self.trained(text, within=8192)  # No capture knows the scalars of this loop.

    @unittest.skipUnless(HAS_UNITS_OF_ENDS, "this Trainer reduces in the last micro-batch alone")
    def test_the_trainer_reduces_every_micro_batch(self) -> None:
        text = self.exported("trainer", "--strategy", "FULL_SHARD", "--activation-checkpointing", "none", "--clip-grad-norm", "1",
                             "--accumulate", "2", "--gradient-sync", "every", "--precision", "mixed")
        self.assertIn('"sync_each_batch": True', text)
        self.assertNotIn("/sync_every_micro_batch", text)
        self.trained(text, beside=MICRO_BATCH)

    def test_the_trainer_shards_hybrid_and_mixes_precision(self) -> None:
        text = self.exported("trainer", "--shard", "2", "--replicate", "2", "--reshard", "true", "--precision", "mixed",
                             "--optimizer-impl", "fused", "--activation-checkpointing", "none")
        self.assertIn('optim="adamw_torch_fused"', text)
        self.trained(text)

    @unittest.skipIf(importlib.util.find_spec("torchao") is None, "torchao is not there")
    def test_the_trainer_trains_with_8_bit_states(self) -> None:
        text = self.exported("trainer", "--strategy", "FULL_SHARD", "--precision", "mixed", "--optimizer", "adamw_torch_8bit",
                             "--activation-checkpointing", "none")
        self.assertIn('optim="adamw_torch_8bit"', text)
        # 4 MiB and two pages more than predicted, as in any script with torchao, and not in plan_runner_test.py.
        self.trained(text, beside=(4 << 20) + 4096)

    @unittest.skipUnless(HAS_UNITS_OF_ENDS and importlib.util.find_spec("liger_kernel") is not None, "liger-kernel is not there")
    def test_the_trainer_runs_ligers_loss(self) -> None:
        """accelerate's unit of norm and head, of which Liger runs the norm alone."""
        folder = self.folder / "of_hugging_face"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        self.run_program(str(folder), *GPUS, *PLANNED, "-o", "plan.json", "--for", "trainer", "--loss", "liger", "--batch", "4", "--seq",
                         "256", "--precision", "bf16", "--activation-checkpointing", "none")  # fmt: skip
        text = self.run_program("export", "plan.json", "--to", "trainer", "--trainer-version", RELEASES["trainer"],
                                "--nearest", "near.json", "--force")  # fmt: skip
        self.assertIn("        use_liger_kernel=True,\n", text)
        self.trained(text)


@unittest.skipIf(importlib.util.find_spec("qwen_tts") is None, "qwen_tts is not there")
class ClassNames(unittest.TestCase):
    """Classes that are named for wrapping are those of the published code."""

    OF_OTHERS = {"BasicBlock", "EncoderBlock", "Linear"}  # torchvision's and PyTorch's

    def test_blocks_of_shipped_models_have_classes_of_transformers(self) -> None:
        published = set(self.OF_OTHERS)
        for package in ("transformers", "qwen_tts"):
            for folder in importlib.util.find_spec(package).submodule_search_locations:
                for path in pathlib.Path(folder).rglob("modeling_*.py"):
                    published.update(re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        named = 0
        with tempfile.TemporaryDirectory() as folder:
            for spec in sorted((ROOT / "model_specs").glob("*.json")):
                classes = self.classes_of(spec, pathlib.Path(folder))
                self.assertEqual(classes - published, set(), spec.name)
                named += bool(classes)
        self.assertGreater(named, 30)

    @staticmethod
    def classes_of(spec: pathlib.Path, folder: pathlib.Path) -> set[str]:
        plan = folder / "plan.json"
        words = ["--gpus", "8", "--gpu", "H100 SXM", "--nodes", "16", "--strategy", "FULL_SHARD", "--wrap", "blocks",
                 "--wrap-ends", "no", "--activation-checkpointing", "none", "--offload", "no"]  # fmt: skip
        subprocess.run([ProgramInAFolder.program, spec, *words, "--quiet", "--force", "-o", plan], capture_output=True, check=False)
        done = subprocess.run([ProgramInAFolder.program, "export", plan, "--to", "accelerate", "--trainer-version", "1.12.0", "--nearest", folder / "near.json",
                               "--force"], capture_output=True, text=True, check=False)  # fmt: skip
        if "accelerate 1.12 converts frozen parameters" in done.stderr:
            return set()
        if done.returncode != 0:
            raise AssertionError(f"{spec.name}: {done.stderr}")
        found = re.search(r"cls_to_wrap: (.*)", done.stdout)
        return set(found[1].split(",")) if found else set()


@unittest.skipUnless(HAS_UNITS_OF_ENDS, "accelerate makes no units of the ends")
class EndsOfPublishedModels(unittest.TestCase):
    """What a plan takes for embedding, norm and head is what accelerate finds in the published classes."""

    SPECS = {"llama3_1_8b": "Llama", "llama3_2_1b": "Llama", "mistral_7b_v0_1": "Mistral", "qwen2_5_7b": "Qwen2", "qwen3_8b": "Qwen3",
             "qwen3_30b_a3b": "Qwen3Moe", "gemma2_9b": "Gemma2", "mixtral_8x7b": "Mixtral", "gpt2": "GPT2", "t5_3b": "T5",
             "whisper_large_v3": "Whisper"}  # fmt: skip
    CLASSES = {"GPT2": "GPT2LMHeadModel", "T5": "T5ForConditionalGeneration", "Whisper": "WhisperForConditionalGeneration"}

    def test_ends_of_shipped_models_match_accelerate(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for spec, family in self.SPECS.items():
                with self.subTest(spec):
                    self.assertEqual(self.ends_of_plan(ROOT / f"model_specs/{spec}.json", pathlib.Path(folder)), self.ends_of_class(family))

    def ends_of_class(self, family: str) -> set[str]:
        import torch
        import transformers
        from accelerate.utils.fsdp_utils import _find_final_norm

        config = getattr(transformers, f"{family}Config")(**({} if family in ("T5", "Whisper") else {"num_hidden_layers": 1}))
        with torch.device("meta"):
            model = getattr(transformers, self.CLASSES.get(family, f"{family}ForCausalLM"))(config)
        names = {id(module): name for name, module in model.named_modules()}
        found = (model.get_input_embeddings(), model.get_output_embeddings(), _find_final_norm(model))
        return {names[id(module)] for module in found if module is not None}

    @staticmethod
    def ends_of_plan(spec: pathlib.Path, folder: pathlib.Path) -> set[str]:
        plan, near = folder / "plan.json", folder / "near.json"
        words = ["--gpus", "8", "--gpu", "H100 SXM", "--nodes", "16", "--strategy", "FULL_SHARD", "--wrap", "root",
                 "--activation-checkpointing", "none", "--offload", "no", "--quiet", "--force", "-o", plan]  # fmt: skip
        subprocess.run([ProgramInAFolder.program, spec, *words], capture_output=True, check=False)
        subprocess.run([ProgramInAFolder.program, "export", plan, "--to", "accelerate", "--nearest", near, "--force"],
                       capture_output=True, check=True)
        units = json.loads(near.read_text(encoding="utf-8"))["units"]
        return {module for unit in units for module in unit["modules"]} - {""}


if __name__ == "__main__":
    if importlib.util.find_spec("transformers") is None:
        sys.exit(77)
    ProgramInAFolder.program = os.path.abspath(sys.argv.pop(2))
    del sys.argv[1]
    unittest.main(verbosity=2)
