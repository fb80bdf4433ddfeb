"""`export PLAN --to torchtitan`: what it writes is held against the source of torchtitan 0.3.0, which needs a newer torch than is here
to run: every name that is imported is there, and every field that is set has such a value.

    export_torchtitan_test.py STUB FSDP_PLAN      exit 77 without torchtitan 0.3
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import pathlib
import sys
import unittest

from program_in_a_folder import ProgramInAFolder

HOME = {"training": ("config/configs.py", "TrainingConfig"), "compile": ("config/configs.py", "CompileConfig"),
        "optimizer": ("components/optimizer/optimizer.py", "OptimizersContainer", "Config"), "": ("trainer.py", "Trainer", "Config")}  # fmt: skip
GROUP = ("components/optimizer/optimizer.py", "ParamGroupConfig")
MACHINES = ("--gpu", "H100 SXM", "--gpus", "8", "--nodes", "16")
PARALLELISM = ("config/configs.py", "ParallelismConfig")


def source_of(path: str) -> ast.Module:
    """Without importing anything."""
    folder = pathlib.Path(importlib.util.find_spec("torchtitan").submodule_search_locations[0])
    return ast.parse((folder / path).read_text(encoding="utf-8"))


def fields_of(path: str, *classes: str) -> dict[str, str]:
    """Names of a dataclass with what they are annotated as."""
    body = source_of(path).body
    for name in classes:
        body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == name).body
    return {node.target.id: ast.unparse(node.annotation) for node in body if isinstance(node, ast.AnnAssign)}


class Torchtitan(ProgramInAFolder):
    def exported(self, model: str, *choices: str) -> ast.Module:
        self.run_program(model, *MACHINES, "--seq", "4096", "--for", "torchtitan", "--force", "--quiet", "-o", "plan.json", *choices)
        return ast.parse(self.run_program("export", "plan.json", "--to", "torchtitan"))  # Said exactly: no --nearest.

    def expect_value(self, fields: dict[str, str], name: str, value: ast.expr) -> None:
        self.assertIn(name, fields)
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and "Literal" in fields[name]:
            self.assertIn(repr(value.value), fields[name])

    def expect_import(self, node: ast.ImportFrom) -> None:
        path = node.module.removeprefix("torchtitan.").replace(".", "/")
        folder = pathlib.Path(importlib.util.find_spec("torchtitan").submodule_search_locations[0])
        tree = source_of(f"{path}/__init__.py" if (folder / path).is_dir() else f"{path}.py")
        known = {name for each in ast.walk(tree) for name in (
            [each.name] if isinstance(each, ast.ClassDef | ast.FunctionDef) else
            [alias.asname or alias.name for alias in each.names] if isinstance(each, ast.ImportFrom) else [])}  # fmt: skip
        self.assertLessEqual({alias.name for alias in node.names}, known, node.module)

    def expect_known(self, tree: ast.Module) -> set[str]:
        """What is set: "training.seq_len"."""
        found = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("torchtitan"):
                self.expect_import(node)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                owner, _, name = ast.unparse(node.targets[0]).rpartition(".")
                home = GROUP if owner == "group" else HOME[owner.removeprefix("config").removeprefix(".")]
                self.expect_value(fields_of(*home), name, node.value)
                found.add(f"{owner}.{name}".removeprefix("config."))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "ParallelismConfig":
                for keyword in node.keywords:
                    self.expect_value(fields_of(*PARALLELISM), keyword.arg, keyword.value)
                    found.add(f"parallelism.{keyword.arg}")
        return found

    def test_names_and_values_exist_in_the_source(self) -> None:
        for model, name, flavor in (("llama3_1_8b", "llama3", "8B"), ("qwen3_8b", "qwen3", "8B"), ("qwen3_32b", "qwen3", "32B")):
            tree = self.exported(model)
            found = self.expect_known(tree)
            self.assertIn("training.disable_cuda_graphs", found)  # Its default is another plan.
            self.assertIn("loss", found)
            self.assertIn("parallelism.fsdp_reshard_after_forward", found)
            registry = source_of(f"models/{name}/__init__.py")
            flavors = {key.value for node in ast.walk(registry) if isinstance(node, ast.Dict) for key in node.keys if isinstance(key, ast.Constant)}
            self.assertIn(flavor, flavors)

    def test_values_of_the_plan_are_set(self) -> None:
        text = ast.unparse(self.exported("llama3_1_70b", "--batch", "1", "--strategy", "FULL_SHARD", "--activation-checkpointing", "full"))
        for words in ("config.training.local_batch_size = 1\n", "config.training.global_batch_size = 128\n", "config.training.seq_len = 4096\n",
                      "config.training.disable_cuda_graphs = True\n", "config.activation_checkpoint = FullAC.Config()\n",
                      "data_parallel_replicate_degree=1, data_parallel_shard_degree=128", "model_registry('70B', attn_backend='varlen')",
                      "config = llama3_70b()\n"):  # fmt: skip
            self.assertIn(words, text)

    def test_the_loss_in_chunks_is_set(self) -> None:
        tree = self.exported("llama3_1_8b", "--loss", "torchtitan_chunked,chunks=16", "--torch", "2.13")
        self.expect_known(tree)
        self.assertIn("config.loss = ChunkedLossWrapper.Config(num_chunks=16, loss_fn=CrossEntropyLoss.Config(", ast.unparse(tree))
        self.assertLessEqual({"num_chunks", "loss_fn"}, set(fields_of("components/loss.py", "ChunkedLossWrapper", "Config")))

    def test_the_closest_plan_fits(self) -> None:
        """For the plan that is found, units inside blocks and what is saved cannot be said; all blocks selectively do not
        fit."""
        self.run_program("llama3_1_70b", *MACHINES, "--flavor", "torchtitan", "--force", "--quiet", "-o", "plan.json")
        for version, mode in (("0.3.0", "FullAC.Config()"), ("0.2.2", 'mode = "full"')):
            text = self.run_program("export", "plan.json", "--to", "torchtitan", "--trainer-version", version, "--nearest", "near.json", "--force")
            self.run_program("simulate", "near.json", "--quiet")  # Exit 0: it fits.
            self.assertIn(mode, text)
        self.assertIn("/activation_checkpointing: The closest plan does not fit; all blocks are checkpointed in full.", text)


if __name__ == "__main__":
    if importlib.util.find_spec("torchtitan") is None or not importlib.metadata.version("torchtitan").startswith("0.3."):
        sys.exit(77)
    ProgramInAFolder.program = os.path.abspath(sys.argv.pop(2))
    del sys.argv[1]
    unittest.main(verbosity=2)
