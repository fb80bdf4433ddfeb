"""Parameters and tokens from files: fsdp-exec and PyTorch's own FSDP2 begin with the same bits and end with the same ones. All
mismatches are reported before training begins.

    weights_test.py FSDP_EXEC FSDP_PLAN      run by a Python that has torch
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import random
import struct
import sys
import unittest
from typing import Any

sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from parity_cases import CLIPPED, MIXED, Case  # noqa: E402
from ranks import InAFolder, expanded, run_executor, run_reference, started  # noqa: E402

EXECUTOR, PLANNER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
STEPS = ["--seed", "7", "--steps", "3", "--lr", "0.001"]
BYTES = {"F32": 4, "BF16": 2, "I64": 8}
VOCABULARY = 131  # The small Qwen 3's.


def values(name: str, shape: list[int], dtype: str) -> bytes:
    """Numbers in [-0.05, 0.05], and around 1 for norms; different ones for each name."""
    draw = random.Random(name)
    middle = 1.0 if "norm" in name else 0.0
    data = struct.pack(f"<{math.prod(shape)}f", *(middle + draw.uniform(-0.05, 0.05) for _ in range(math.prod(shape))))
    if dtype == "F32":
        return data
    return b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))  # The upper half of a float is a bfloat16.


def write_safetensors(path: pathlib.Path, tensors: dict[str, list[int]], dtype: str) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, shape in tensors.items():
        part = values(name, shape, dtype)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class FromFiles(InAFolder):
    def plan(self, case: Case) -> pathlib.Path:
        return case.write(self.folder, case.name)

    def shapes(self, plan: pathlib.Path) -> dict[str, list[int]]:
        model = expanded(PLANNER, json.loads(plan.read_text(encoding="utf-8")))
        return {p["name"]: p["shape"] for p in model["parameters"] if not p.get("tied_to")}

    def write_sharded(self, tensors: dict[str, list[int]], dtype: str) -> pathlib.Path:
        """Two files and an index, as large models have them."""
        folder = self.folder / "weights"
        folder.mkdir()
        names = sorted(tensors)
        files = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
        for file, its in files.items():
            write_safetensors(folder / file, {name: tensors[name] for name in its}, dtype)
        index = {"metadata": {}, "weight_map": {name: file for file, its in files.items() for name in its}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
        return folder

    def both(self, case: Case, options: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        plan = self.plan(case)
        theirs = run_reference(PLANNER, plan, case.ranks, self.folder, "pytorch", 3,
                               ["--seed", "7", "--learning-rate", "0.001", *options])
        ours = run_executor(EXECUTOR, plan, case.ranks, self.folder, "executor", [*STEPS, "--reduction", "parity", *options])
        return ours, theirs

    def expect_equal(self, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
        losses = [[[step["loss"] for step in steps] for steps in run["steps"]] for run in (ours, theirs)]
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(ours["parameters"].keys(), theirs["parameters"].keys())
        self.assertEqual([name for name, tensor in ours["parameters"].items() if tensor != theirs["parameters"][name]], [])

    def test_a_sharded_checkpoint_in_another_dtype_under_a_tied_name(self) -> None:
        case = Case("tied", "qwen3_0_6b", 3, {**MIXED, **CLIPPED}, dtype="bfloat16")
        tensors = self.shapes(self.plan(case))
        tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
        weights = self.write_sharded(tensors, "BF16")
        ours, theirs = self.both(case, ["--weights", str(weights)])
        self.expect_equal(ours, theirs)
        self.assertEqual(ours["parameters"]["model.norm.weight"][0], "F32")
        without = run_executor(EXECUTOR, self.plan(case), case.ranks, self.folder, "seed", STEPS)
        self.assertNotEqual(without["parameters"], ours["parameters"])

    def test_one_file_and_copies_of_the_shards_and_tokens_of_a_file(self) -> None:
        case = Case("hsdp", "qwen3_0_6b", 2, replicate=2)
        write_safetensors(self.folder / "w.safetensors", self.shapes(self.plan(case)), "F32")
        draw = random.Random(1)
        ids = [draw.randrange(VOCABULARY) for _ in range(24 * 2 * 4 * 2 + 5)]  # For two of the three steps.
        (self.folder / "ids.bin").write_bytes(struct.pack(f"<{len(ids)}i", *ids))
        weights, tokens = ["--weights", str(self.folder / "w.safetensors")], ["--tokens", str(self.folder / "ids.bin")]
        plan = self.plan(case)
        theirs = run_reference(PLANNER, plan, 4, self.folder, "pytorch", 3,
                               ["--seed", "7", "--learning-rate", "0.001", *weights, *tokens])
        ours = run_executor(EXECUTOR, plan, 4, self.folder, "executor",
                            [*STEPS, "--reduction", "parity", *weights, *tokens, "--token-dtype", "int32"])
        self.expect_equal(ours, theirs)
        self.assertEqual(len({step["loss"] for steps in ours["steps"] for step in steps}), 12)

    def test_every_mismatch_is_reported(self) -> None:
        plan = self.plan(Case("wrong", "qwen3_0_6b", 2))
        tensors = self.shapes(plan)
        tensors["model.layers.0.mlp.gate_proj.wieght"] = tensors.pop("model.layers.0.mlp.gate_proj.weight")
        tensors["model.layers.1.mlp.up_proj.weight"] = [3, 4]
        del tensors["model.norm.weight"]
        tensors["completely.different"] = [2]
        write_safetensors(self.folder / "w.safetensors", tensors, "F32")
        with started(EXECUTOR, 2, [plan], self.folder, ["--weights", str(self.folder / "w.safetensors")]) as ranks:
            self.assertEqual([rank.wait() for rank in ranks], [2, 2])
            printed = ranks[0].printed
        for said in (r'No file has "model.layers.0.mlp.gate_proj.weight" \[80, 32\].*Did you mean.*wieght',
                     r'The model has no "model.layers.0.mlp.gate_proj.wieght".*gate_proj.weight',
                     r'"model.layers.1.mlp.up_proj.weight" has the shape \[3, 4\], and the model\'s has \[80, 32\]',
                     r'No file has "model.norm.weight"', r'The model has no "completely.different"'):
            self.assertRegex(printed, said)
        self.assertNotIn("step 1", printed)

    def test_a_rank_reads_its_own_rows_only(self) -> None:
        case = Case("rows", "qwen3_0_6b", 4)
        plan = self.plan(case)
        tensors = self.shapes(plan)
        write_safetensors(self.folder / "w.safetensors", tensors, "F32")
        with started(EXECUTOR, 4, [plan], self.folder, ["--steps", "1", "--weights", str(self.folder / "w.safetensors")]) as ranks:
            self.assertEqual([rank.wait() for rank in ranks], [0] * 4)
            printed = ranks[0].printed
        # Rank 0 has ceil(rows / 4) rows of each.
        mine = sum(-(-shape[0] // 4) * math.prod(shape[1:]) * 4 for shape in tensors.values())
        all_bytes = sum(math.prod(shape) * 4 for shape in tensors.values())
        self.assertIn(f"rank 0 has read {mine} of {all_bytes} bytes of weights", printed)

    def test_samples_come_in_the_order_of_the_file_for_any_number_of_ranks(self) -> None:
        draw = random.Random(2)
        ids = [draw.randrange(VOCABULARY) for _ in range(24 * 40)]
        raw, array = self.folder / "ids.bin", self.folder / "ids.npy"
        raw.write_bytes(struct.pack(f"<{len(ids)}H", *ids))
        text = repr({"descr": "<i8", "fortran_order": False, "shape": (len(ids),)}).encode()
        text += b" " * (-(len(text) + 11) % 64) + b"\n"
        array.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + struct.pack(f"<{len(ids)}q", *ids))
        means = []
        for name, shard, accumulation, file in (("four", 4, 1, raw), ("two", 2, 2, array), ("one", 1, 4, raw)):
            case = Case(name, "qwen3_0_6b", shard, {"accumulation": accumulation})
            # A rate of 0, so that each step has the loss of its samples.
            run = run_executor(EXECUTOR, self.plan(case), shard, self.folder, name,
                               ["--seed", "7", "--steps", "3", "--lr", "0", "--tokens", str(file)])
            means.append([math.fsum(steps[i]["loss"] for steps in run["steps"]) / shard for i in range(3)])
        for mean in means[1:]:
            for a, b in zip(mean, means[0], strict=True):
                self.assertLess(abs(a / b - 1), 1e-6, means)
        self.assertEqual(len({round(mean, 5) for mean in means[0]}), 3, "each step has other samples")

    def test_an_id_outside_the_vocabulary_is_named(self) -> None:
        (self.folder / "ids.bin").write_bytes(struct.pack("<240H", *([5] * 100 + [131] + [5] * 139)))
        with started(EXECUTOR, 1, [self.plan(Case("v", "qwen3_0_6b", 1))], self.folder,
                     ["--tokens", str(self.folder / "ids.bin")]) as ranks:
            self.assertEqual(ranks[0].wait(), 3)
            self.assertIn("ids.bin: token 100 is 131, and the vocabulary has 131", ranks[0].printed)

    def test_a_model_of_images_has_no_tokens(self) -> None:
        (self.folder / "ids.bin").write_bytes(bytes(4096))
        with started(EXECUTOR, 1, [self.plan(Case("i", "vit_b_16", 1))], self.folder,
                     ["--tokens", str(self.folder / "ids.bin")]) as ranks:
            self.assertEqual(ranks[0].wait(), 2)
            self.assertRegex(ranks[0].printed, "--tokens: .* does not take input_ids and labels")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
