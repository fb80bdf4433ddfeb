"""Parameters that are in no file start like those of the published code: the same deviations, shapes of the distribution,
constants, rows of zeros and sinusoids, family by family.

    initial_values_test.py FSDP_EXEC FSDP_PLAN [TEST...]     run by a Python that has torch, transformers and torchvision

The published code makes random models, `fsdp-plan models --expanded` states the initial distribution of every parameter, and
fsdp-exec draws it. Values agree if they are within the noise of that many numbers.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import sys
import tempfile
import unittest
from collections.abc import Callable
from typing import Any

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
EXECUTOR, PROGRAM = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path[:0] = [str(ROOT / "tests" / "executor"), str(ROOT / "tests" / "command"), str(ROOT / "tests" / "support")]
os.environ["HF_HUB_OFFLINE"] = "1"

try:
    import torch
    import torchvision
    import transformers
except ImportError:
    print("skipped: transformers and torchvision are not installed; ./scripts/bootstrap --with rehearsal installs them")
    sys.exit(77)

sys.argv[1] = str(PROGRAM)  # The next import reads it.
from command import answer  # noqa: E402
from hf_models_test import FAMILIES, families, save  # noqa: E402
from published_models import MODELS  # noqa: E402
from ranks import floats_of, run_executor  # noqa: E402

SIGMAS = 6.0  # A correct value exceeds this once in 500 million times.
NORMAL, UNIFORM = 3.0, 1.8  # Fourth moment over the square of the second.


def noise(count: int) -> float:
    """The relative noise of a standard deviation of that many numbers."""
    return SIGMAS / math.sqrt(2.0 * max(count - 1, 1))


class Compared(unittest.TestCase):
    def agree(self, name: str, initial: dict[str, Any], values: torch.Tensor) -> None:
        values = values.detach().double()
        if "zero_row" in initial:
            self.assertEqual(values[initial["zero_row"]].abs().max().item(), 0.0, name)
            values = torch.cat([values[:initial["zero_row"]], values[initial["zero_row"] + 1:]])
        values = values.flatten()
        distribution = initial["distribution"]
        if distribution == "constant":
            self.assertEqual({initial["value"]}, set(values.tolist()), name)
            return
        if distribution == "sinusoid":
            self.assertEqual(values[0].item(), 0.0, name)  # The sine of the first position.
            self.assertAlmostEqual(values.square().mean().item(), 0.5, delta=1e-6, msg=name)
            return
        count = values.numel()
        self.assertAlmostEqual(values.std(correction=0).item() / initial["std"], 1.0, delta=noise(count), msg=name)
        self.assertLess(abs(values.mean().item()), SIGMAS * initial["std"] / math.sqrt(count), name)
        if count > 2000:
            moment = (values.pow(4).mean() / values.square().mean().square()).item()
            self.assertEqual("normal" if moment > (NORMAL + UNIFORM) / 2 else "uniform", distribution, name)

    def agree_all(self, said: dict[str, Any], made: torch.nn.Module, *, some: bool = False, below: str = "") -> None:
        """`some`: the published model has fewer layers. `below`: only parameters whose names begin so."""
        real = {name: parameter for name, parameter in made.named_parameters() if name.startswith(below)}
        found = 0
        for parameter in said["parameters"]:
            if parameter["tied_to"] is not None or not parameter["name"].startswith(below) or some and parameter["name"] not in real:
                continue
            found += 1
            if parameter["name"].endswith((".A_log", ".dt_bias")):  # Are drawn, and planned as equal numbers near the mean.
                middle = real[parameter["name"]].detach().double().mean().item()
                self.assertLess(abs(parameter["initial"]["value"] - middle), 2.0, parameter["name"])
                continue
            self.agree(parameter["name"], parameter["initial"], real[parameter["name"]])
        self.assertEqual(found, len(real))


def expanded(model: object) -> dict[str, Any]:
    return answer(PROGRAM, "models", model, "--expanded")


class ValuesOfConfigurations(Compared):
    """Checks config.json's initial values, at the default and at another value."""

    def check(self, family: str, **keys: Any) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name) / "model"
            config = save(FAMILIES[family], {**FAMILIES[family].small[0], **keys}, folder)
            torch.manual_seed(1)
            said = expanded(folder)
            # Towers and what is beside the decoder have rules of their own, which are not read: they begin as published.
            decoder = "language_model." if family == "llama4" else "model.language_model."
            below = decoder if "vision_config" in FAMILIES[family].small[0] else ""
            self.agree_all(said, getattr(transformers, FAMILIES[family].model)(config), below=below)
            return said

    def test_every_family_matches(self) -> None:
        for family in families():
            with self.subTest(family):
                self.check(family)

    def test_every_family_with_another_range_matches(self) -> None:
        for family in families():
            key = {"t5": "initializer_factor", "whisper": "init_std"}.get(family, "initializer_range")
            with self.subTest(family):
                self.check(family, **{key: 0.5 if family == "t5" else 0.07})

    def test_padding_row_is_zero(self) -> None:
        said = self.check("llama", pad_token_id=7)
        self.assertEqual(said["parameters"][0]["initial"], {"distribution": "normal", "std": 0.02, "zero_row": 7})

    def test_untied_heads_match(self) -> None:
        self.check("t5", tie_word_embeddings=False, feed_forward_proj="gated-gelu")


def t5_3b() -> torch.nn.Module:
    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=999, d_model=1024, d_kv=128, d_ff=16384, num_layers=1, num_heads=32))


def whisper() -> torch.nn.Module:
    return transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        vocab_size=51866, num_mel_bins=128, d_model=48, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=80, decoder_ffn_dim=64, pad_token_id=50256))


def gpt2(layers: int) -> Callable[[], torch.nn.Module]:
    return lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=99, n_positions=24, n_embd=48, n_head=4, n_layer=layers))


def of_published(name: str) -> Callable[[], torch.nn.Module]:
    return next(each.make for each in MODELS if each.name == name)


class ValuesOfTheLibrary(Compared):
    """Compares shipped specs with models of the published classes. These may have other widths, and fewer layers if nothing
    depends on their number."""

    MADE: dict[str, Callable[[], torch.nn.Module]] = {
        "gpt2": gpt2(12), "gpt2_medium": gpt2(24), "gpt2_large": gpt2(36), "gpt2_xl": gpt2(48), "t5_3b": t5_3b,
        "resnet18": torchvision.models.resnet18,
        "vit_b_16": lambda: torchvision.models.VisionTransformer(224, 16, 1, 12, 768, 3072),
        "vit_h_14": lambda: torchvision.models.VisionTransformer(224, 14, 1, 16, 1280, 5120),
        "vit_mnist_779m": lambda: without_color(torchvision.models.VisionTransformer(28, 7, 1, 8, 3840, 768,
                                                                                     num_classes=10)),
        "mlp": lambda: torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)),
        "bert_large": of_published("BERT"), "whisper_large_v3": whisper,
        "qwen3_tts": of_published("Qwen3-TTS"), "gemma2_9b": of_published("Gemma 2"),
        "llama3_1_8b": of_published("Llama 3.1"), "qwen3_30b_a3b": of_published("Qwen 3 MoE"),
    }

    def test_shipped_models_match_published_classes(self) -> None:
        for model, make in self.MADE.items():
            with self.subTest(model):
                torch.manual_seed(1)
                self.agree_all(expanded(model), make(), some=True)

    def test_every_spec_states_its_values(self) -> None:
        for path in sorted((ROOT / "model_specs").glob("*.json")):
            spec = json.loads(path.read_text(encoding="utf-8"))
            self.assertIn("initial_values", spec, path.name)
            self.assertTrue(spec["initial_values"]["source"], path.name)


def without_color(model: torch.nn.Module) -> torch.nn.Module:
    """For images of one channel, as in the workshop: replaces the layer by a new one, with its class's initialization."""
    model.conv_proj = torch.nn.Conv2d(1, 3840, 7, 7)
    torch.nn.init.trunc_normal_(model.conv_proj.weight, std=math.sqrt(1 / 49))
    torch.nn.init.zeros_(model.conv_proj.bias)
    return model


class ValuesOfTheExecutor(Compared):
    """Checks fsdp-exec's initial values, on two ranks."""

    def begun(self, family: str, **keys: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            save(FAMILIES[family], {**FAMILIES[family].small[0], **keys}, folder / "model")
            said = expanded(folder / "model")
            plan = folder / "plan.json"
            dimensions = {key: value for key, value in {"batch": 1, "seq": 4, "target_seq": 4}.items()
                          if key in said["dimensions"]}
            plan.write_text(json.dumps({
                "format_version": "1.0", "mesh": {"replicate": 1, "shard": 2}, "units": [{"modules": [""]}],
                "optimizer": {"kind": "sgd", "weight_decay": 0},
                "model": {"name": said["name"], "file": str(folder / "model"), "dimensions": dimensions}}), encoding="utf-8")
            results = run_executor(EXECUTOR, plan, 2, folder, "out", ["--steps", "1", "--lr", "0"])
        shapes = {p["name"]: p["shape"] for p in said["parameters"]}
        return said, {parameter: torch.tensor(floats_of(tensor)).view(shapes[parameter])
                      for parameter, tensor in results["parameters"].items()}

    def check(self, family: str, **keys: Any) -> dict[str, torch.Tensor]:
        said, tensors = self.begun(family, **keys)
        for parameter in said["parameters"]:
            if parameter["tied_to"] is None:
                self.agree(parameter["name"], parameter["initial"], tensors[parameter["name"]])
        return tensors

    def test_deviations_match(self) -> None:
        self.check("t5")

    def test_zero_rows_match(self) -> None:
        self.check("llama", pad_token_id=98)  # The last row of the last rank.

    def test_sinusoids_match(self) -> None:
        tensors = self.check("whisper")
        torch.manual_seed(1)
        with tempfile.TemporaryDirectory() as folder:
            config = save(FAMILIES["whisper"], FAMILIES["whisper"].small[0], pathlib.Path(folder))
        made = transformers.WhisperForConditionalGeneration(config)
        positions = "model.encoder.embed_positions.weight"
        self.assertTrue(torch.equal(tensors[positions], made.get_parameter(positions)))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
