"""Auto-wrap policies, held against PyTorch's own functions.

    wrap_policies_test.py FSDP_PLAN PRINT_WRAP_POLICIES      run by a Python that has torch and transformers; no GPU

Models are built on the meta device. torch.distributed.fsdp.wrap._recursive_wrap walks them with the real policies, and a
wrapper that only notes down what it is given. The same modules and parameters go through our policies: the units must be the
same in the same order, and so must the elements that the policy by size was asked about at each module. Then the same through
the command, whose plan has these units, or which refuses those that FSDP2 cannot take.
"""

from __future__ import annotations

import functools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from typing import Any

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(sys.argv[1]).resolve()
PRINTER = pathlib.Path(sys.argv[2]).resolve()
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "support")]

try:
    import torch
    import torchvision
    import transformers
except ImportError:
    print("skipped: transformers and torchvision are not installed; ./scripts/bootstrap --with rehearsal installs them")
    sys.exit(77)

from command import Refused, answer  # noqa: E402
from fsdp_plan_runner.plan import unfold  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp.wrap import (  # noqa: E402
    ModuleWrapPolicy,
    _recursive_wrap,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)

transformers.logging.set_verbosity_error()

MACHINE = ("--gpus", "8", "--gpu", "H100 SXM", "--strategy", "FULL_SHARD", "--activation-checkpointing", "none", "--json")
SIZES = {"vocab_size": 1000, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4}


class Alike(nn.Module):
    """Two of its kind on one level differ only in what is inside."""

    def __init__(self, *children: nn.Module) -> None:
        super().__init__()
        for i, child in enumerate(children):
            self.add_module(f"part_{i}", child)


class Leaf(nn.Module):
    def __init__(self, elements: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(elements, device="meta"))


class OwnAndInside(Alike):
    def __init__(self, elements: int, *children: nn.Module) -> None:
        super().__init__(*children)
        self.scale = nn.Parameter(torch.empty(elements, device="meta"))


def transformers_model(config: str, model: str, **sizes: Any) -> nn.Module:
    with torch.device("meta"):
        return getattr(transformers, model)(getattr(transformers, config)(**sizes)).train()


def published_models() -> dict[str, nn.Module]:
    with torch.device("meta"):
        vit = torchvision.models.vit_b_16()
        resnet = torchvision.models.resnet18()
    return {
        "llama": transformers_model("LlamaConfig", "LlamaForCausalLM", **SIZES),
        "tied llama": transformers_model("LlamaConfig", "LlamaForCausalLM", **SIZES, tie_word_embeddings=True),
        "gpt2": transformers_model("GPT2Config", "GPT2LMHeadModel"),
        "t5": transformers_model("T5Config", "T5ForConditionalGeneration"),
        "bert": transformers_model("BertConfig", "BertForMaskedLM"),
        "mixtral": transformers_model("MixtralConfig", "MixtralForCausalLM", **SIZES, num_key_value_heads=2),
        "whisper": transformers_model("WhisperConfig", "WhisperForConditionalGeneration"),
        "vit": vit,
        "resnet": resnet,
        "torch's transformer": nn.Transformer(d_model=32, dim_feedforward=64, nhead=4, device="meta"),
    }


def random_module(pick: random.Random, depth: int) -> nn.Module:
    if depth == 0 or pick.random() < 0.25:
        leaf = pick.randrange(5)
        if leaf == 0:
            return nn.MultiheadAttention(4 * pick.randint(1, 3), 2, device="meta")
        if leaf == 1:
            return nn.ReLU()
        if leaf == 2:
            return nn.Linear(pick.randint(1, 9), pick.randint(1, 9), device="meta")
        return Leaf(pick.randint(1, 120))
    children = [random_module(pick, depth - 1) for _ in range(pick.randint(1, 4))]
    kind = pick.randrange(6)
    if kind == 0:
        return nn.ModuleList(children)
    if kind == 1:
        return nn.ModuleDict({f"key{i}": child for i, child in enumerate(children)})
    if kind == 2:
        return nn.Sequential(*children)
    return OwnAndInside(pick.randint(1, 60), *children) if kind == 3 else Alike(*children)


def random_tree(pick: random.Random) -> nn.Module:
    root = Alike(*[random_module(pick, pick.randint(1, 4)) for _ in range(pick.randint(1, 4))])
    leaves = [module for module in root.modules() if isinstance(module, Leaf)]
    for _ in range(pick.randint(0, 2)):
        if len(leaves) > 1:  # Tied parameters, two or three of a kind.
            one, other = pick.sample(leaves, 2)
            one.weight = other.weight
    return root


def described(root: nn.Module, policies: list[str]) -> dict[str, Any]:
    """A module as our program reads one."""
    names: dict[int, list[str]] = {}
    elements: dict[int, int] = {}
    for name, parameter in root.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
        elements[id(parameter)] = parameter.numel()
    return {"modules": [{"name": name, "class": type(module).__name__} for name, module in root.named_modules()],
            "parameters": [{"names": of, "elements": elements[key]} for key, of in names.items()], "policies": policies}


def ours(models: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run([PRINTER], input=json.dumps({"models": models}), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def walked(root: nn.Module, policy: Callable[..., bool]) -> tuple[list[str], dict[str, list[int | None]]]:
    """What PyTorch makes units, in its order, and the elements it asked the policy about at each module."""
    names = {module: name for name, module in root.named_modules()}
    units: list[str] = []
    asked: dict[str, list[int | None]] = {}

    def listening(module: nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:
        numbers = asked.setdefault(names[module], [None, None])
        numbers[0 if recurse else 1] = nonwrapped_numel
        return policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel)

    def note(module: nn.Module) -> nn.Module:
        units.append(names[module])
        return module

    _recursive_wrap(root, listening, note, ignored_modules=set(), ignored_params=set(), only_wrap_children=True)
    return list(dict.fromkeys(units)), asked  # A module with two names is wrapped under both.


def by_size(root: nn.Module, elements: int) -> tuple[list[str], dict[str, list[int | None]]]:
    return walked(root, functools.partial(size_based_auto_wrap_policy, min_num_params=elements))


def by_class(root: nn.Module, classes: set[type[nn.Module]]) -> list[str]:
    units, _ = walked(root, functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=classes))
    names = {module: name for name, module in root.named_modules()}
    chosen = ModuleWrapPolicy(classes)._run_policy(root, set(), {})
    if {names[module] for module in chosen} - {""} != set(units):
        raise AssertionError("PyTorch's two policies by class differ")
    return units


def thresholds(root: nn.Module, pick: random.Random, most: int) -> list[int]:
    """Where units begin and end: elements of modules, and one more and one less."""
    sizes = {sum(p.numel() for p in module.parameters()) for module in root.modules()} | {1}
    chosen = pick.sample(sorted(sizes), min(most, len(sizes)))
    return sorted({n for size in chosen for n in (size - 1, size, size + 1) if n > 0})


class AutoWrapPolicies(unittest.TestCase):
    maxDiff = None

    def compare_sizes(self, models: dict[str, nn.Module], most: int) -> int:
        """Returns how many units there were in all."""
        pick = random.Random(7)
        tried = {name: thresholds(root, pick, most) for name, root in models.items()}
        answers = iter(ours([described(root, [f"size:{n}" for n in tried[name]]) for name, root in models.items()]))
        found = 0
        for name, root in models.items():
            for elements in tried[name]:
                mine = next(answers)
                units, asked = by_size(root, elements)
                with self.subTest(model=name, elements=elements):
                    self.assertEqual(mine["units"], units)
                    visited = {module: [n, left] for module, n, left in mine["visited"]}
                    visited[""][1] = None  # PyTorch does not ask about the root.
                    self.assertEqual(visited, asked)
                found += len(units)
        return found

    def test_sizes_of_published_models(self) -> None:
        self.assertGreater(self.compare_sizes(published_models(), 8), 500)

    def test_sizes_of_random_trees(self) -> None:
        pick = random.Random(11)
        self.assertGreater(self.compare_sizes({f"tree {i}": random_tree(pick) for i in range(300)}, 4), 2000)

    def test_documented_example_matches(self) -> None:
        root = Alike(nn.Sequential(Leaf(100), Leaf(100)), Leaf(150), nn.ModuleList([Leaf(100) for _ in range(3)]),
                     nn.MultiheadAttention(10, 2, bias=False, device="meta"))
        self.assertEqual(by_size(root, 150)[0], ["part_0", "part_1"])
        self.assertEqual(ours([described(root, ["size:150"])])[0]["units"], ["part_0", "part_1"])

    def compare_classes(self, models: dict[str, nn.Module], most: int) -> None:
        pick = random.Random(5)
        tried: dict[str, list[list[type[nn.Module]]]] = {}
        for name, root in models.items():
            classes = sorted({type(module) for module in root.modules()} - {type(root)}, key=lambda each: each.__name__)
            # A class and one derived from it stand for different modules here, but for the one that torch.nn has.
            classes = [each for each in classes if not any(each in of.__mro__[1:] for of in classes) or each is nn.Linear]
            tried[name] = [pick.sample(classes, min(len(classes), pick.randint(1, 2))) for _ in range(most)]
            if nn.Linear in classes:
                tried[name].append([nn.Linear])
        policies = {name: [",".join(each.__name__ for each in chosen) for chosen in sets] for name, sets in tried.items()}
        answers = iter(ours([described(root, [f"class:{names}" for names in policies[name]])
                             for name, root in models.items()]))
        for name, root in models.items():
            for chosen, names in zip(tried[name], policies[name], strict=True):
                with self.subTest(model=name, classes=names):
                    self.assertEqual(next(answers)["units"], by_class(root, set(chosen)))

    def test_classes_of_published_models(self) -> None:
        self.compare_classes(published_models(), 6)

    def test_classes_of_random_trees(self) -> None:
        pick = random.Random(13)
        self.compare_classes({f"tree {i}": random_tree(pick) for i in range(100)}, 2)


def unfolded(text: str) -> list[str]:
    """The names of a row of rows."""
    first, brace, rest = text.partition("}")
    return [name for head in unfold(first + brace) for tail in unfolded(rest) for name in [head + tail]] if brace else [text]


def planned(model: str | pathlib.Path, wrap: str) -> tuple[list[str], dict[str, Any]]:
    """The units of the plan below the root, in its order, and what the answer says of the policy."""
    report = answer(PROGRAM, model, "--wrap", wrap, *MACHINE)
    units = [name for row in report["plan"]["units"] for module in row["modules"] for name in unfold(module) if name]
    return units, report["explain"]["wrap"]


class TheCommand(unittest.TestCase):
    """Models that are built from a spec or a config.json have the modules and classes of the published ones."""

    maxDiff = None

    def check(self, model: str | pathlib.Path, real: nn.Module, sizes: tuple[int, ...], classes: tuple[str, ...]) -> None:
        known = {type(module).__name__: type(module) for module in real.modules()}
        for elements in sizes:
            with self.subTest(elements=elements):
                units, said = planned(model, f"size:{elements}")
                expected, asked = by_size(real, elements)
                self.assertEqual(sorted(units), sorted(expected))
                rows = {name: row for row in said["visited"] for text in row["modules"].split(", ")
                        for name in unfolded(text)}
                for name, (all_of_it, remaining) in asked.items():
                    if not all_of_it:
                        continue
                    self.assertEqual(rows[name]["elements"], all_of_it, name)
                    if name and remaining is not None:
                        self.assertEqual(rows[name]["remaining"], remaining, name)
                    self.assertEqual(rows[name]["unit"], name in [*expected, ""], name)
                covered = {id(p) for name in expected for p in real.get_submodule(name).parameters()}
                self.assertEqual(said["root_elements"], sum(p.numel() for p in real.parameters() if id(p) not in covered))
        for name in classes:
            with self.subTest(classes=name):
                units, _ = planned(model, f"class:{name}")
                self.assertEqual(sorted(units), sorted(by_class(real, {known[each] for each in name.split(",")})))

    def test_a_folder_of_hugging_face(self) -> None:
        config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2, max_position_embeddings=128)
        config.architectures = ["LlamaForCausalLM"]
        with tempfile.TemporaryDirectory() as folder, torch.device("meta"):
            config.save_pretrained(folder)
            self.check(pathlib.Path(folder), transformers.LlamaForCausalLM(config), (1, 64, 4096, 40_000, 120_000, 10**6),
                       ("LlamaDecoderLayer", "LlamaDecoderLayer,Embedding", "LlamaMLP,LlamaAttention", "Linear"))

    def test_a_model_with_attention_of_torch(self) -> None:
        with torch.device("meta"):
            real = torchvision.models.vit_b_16()
        self.check("vit_b_16", real, (2_000_000, 7_000_000, 50_000_000), ("EncoderBlock", "EncoderBlock,MLPBlock"))

    def test_a_model_of_convolutions(self) -> None:
        with torch.device("meta"):
            real = torchvision.models.resnet18()
        self.check("resnet18", real, (100_000, 1_000_000, 3_000_000), ("BasicBlock", "Conv2d"))

    def test_tied_parameters_are_refused(self) -> None:
        real = transformers_model("GPT2Config", "GPT2LMHeadModel")
        self.assertEqual(by_size(real, 30_000_000)[0], ["transformer.wte", "transformer", "lm_head"])
        with self.assertRaises(Refused) as refused:
            planned("gpt2", "size:30M")
        lines = str(refused.exception).splitlines()
        self.assertEqual([line.split('"')[1] for line in lines], ["transformer", "transformer.wte", "lm_head"])
        self.assertIn('"lm_head.weight" is the parameter "transformer.wte.weight", which lies outside of it.', lines[2])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
