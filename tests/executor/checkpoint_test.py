"""A run that continues from a checkpoint equals one that never stopped: bit for bit with the same ranks, and from the same
initial bits with others. A checkpoint that does not match, or is damaged, is refused by name.

    checkpoint_test.py FSDP_EXEC [CASE...]

FSDP_CHECKPOINTS=all in the environment: every case.
"""

from __future__ import annotations

import math
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from checkpoints import contents_of, differing, index_of, steps_in, tensors_of  # noqa: E402
from parity_cases import CLIPPED, MIXED, Case  # noqa: E402
from ranks import InAFolder, results_of, started  # noqa: E402
from small_models import CUTS  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
ALL = os.environ.get("FSDP_CHECKPOINTS") == "all"
EXIT_INPUT = 2
LLAMA = "llama3_2_1b"
SGD = {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.1}}

# State that an interrupted run must restore: moments, counters, the place in the data, dropout's generators.
RESUMED = {
    "copies_of_bert_with_dropout": Case("b", "bert_large", 2, CLIPPED, replicate=2),
    "mixed_accumulated": Case("h", LLAMA, 2, {**MIXED, **CLIPPED, "accumulation": 2}),
    "sgd_tied_and_frozen": Case("s", "qwen3_0_6b", 3, SGD, frozen=["model.layers.0.*"]),
    **({"pure_bf16": Case("p", LLAMA, 2, dtype="bfloat16"),
        "adam_fused_dropout": Case("g", "gpt2", 3, {"optimizer": {"implementation": "fused"}}),
        "buffers": Case("r", "resnet18", 2, SGD)} if ALL else {}),
}


class Runs(InAFolder):
    def setUp(self) -> None:
        super().setUp()
        self.checkpoints = self.folder / "checkpoints"

    def plan(self, case: Case) -> pathlib.Path:
        return case.write(self.folder, case.name)

    def run_ranks(self, case: Case, *options: str, code: int = 0) -> str:
        """Returns the output of the ranks."""
        with started(EXECUTOR, case.ranks, [self.plan(case)], self.folder, list(options)) as ranks:
            codes = [rank.wait() for rank in ranks]
            printed = "".join(rank.printed for rank in ranks)
        self.assertEqual(codes, [code] * case.ranks, printed)
        return printed

    def train(self, case: Case, name: str, *options: str) -> dict[str, Any]:
        base = self.folder / name
        self.run_ranks(case, "--report", f"{base}.RANK.json", "--save-parameters", f"{base}.safetensors", *options)
        return results_of(base, case.ranks)


def losses(run: dict[str, Any]) -> list[list[float]]:
    return [[step["loss"] for step in steps] for steps in run["steps"]]


class ResumedTraining(Runs):
    def check(self, case: Case) -> None:
        options = ["--seed", "3", "--lr", "0.001"]
        whole = self.train(case, "whole", *options, "--steps", "4")
        self.run_ranks(case, *options, "--steps", "2", "--checkpoint-dir", str(self.checkpoints))
        rest = self.train(case, "rest", "--steps", "4", "--checkpoint-dir", str(self.checkpoints), "--resume", "latest")
        self.assertEqual(losses(rest), [steps[2:] for steps in losses(whole)])
        self.assertEqual(len({loss for steps in losses(whole) for loss in steps}), 4 * case.ranks)
        self.assertEqual(differing(rest["parameters"], whole["parameters"]), [])
        for step in steps_in(self.checkpoints):
            index = index_of(step)
            self.assertEqual(len(index["files"]), 2 * case.shard, "one copy of the model writes")


for each, its in RESUMED.items():
    setattr(ResumedTraining, f"test_{each}", lambda self, its=its: self.check(its))


class ReshardedTraining(Runs):
    """4 -> 2 -> 3 -> 1 ranks, other units, replicas: the next checkpoint equals the previous one."""

    def test_for_other_ranks_units_and_meshes(self) -> None:
        case = Case("four", LLAMA, 4)
        self.run_ranks(case, "--seed", "3", "--lr", "0.001", "--steps", "2", "--checkpoint-dir", str(self.folder / "four"))
        groups = [{"modules": [f"{CUTS[LLAMA].rows[0].split('.{')[0]}.{i}" for i in (0, 1)]}, {"modules": [""]}]
        chain = [Case("two", LLAMA, 2), Case("three", LLAMA, 3, units=groups),
                 Case("one", LLAMA, 1, units=[{"modules": [""]}]), Case("copies", LLAMA, 2, replicate=2)]
        first = contents_of(self.folder / "four" / "step-00000002")
        before = "four"
        for case in chain:
            said = self.run_ranks(case, "--resume", str(self.folder / before / "step-00000002"), "--steps", "2",
                                  "--checkpoint-dir", str(self.folder / case.name))
            self.assertIn("all 2 steps are done", said)
            step = self.folder / case.name / "step-00000002"
            self.assertEqual(len(list((step / "model").iterdir())), case.shard)
            self.assertEqual(index_of(step)["micro_batches"], 8)
            self.assertEqual(differing(contents_of(step), first), [])
            before = case.name
        self.assertGreater(len({name.split(".")[-1] for name in first if name.startswith("state.")}), 2)

        # Four micro-batches a step, on any number of ranks: the same data and, except for rounding, the same losses.
        four = self.train(Case("four", LLAMA, 4), "f", "--resume", str(self.folder / "four" / "step-00000002"),
                          "--steps", "4")
        one = self.train(Case("alone", LLAMA, 1, {"accumulation": 4}), "o", "--resume",
                         str(self.folder / "copies" / "step-00000002"), "--steps", "3")
        mean = math.fsum(steps[0] for steps in losses(four)) / 4
        self.assertLess(abs(losses(one)[0][0] / mean - 1), 1e-6)
        copies = self.train(Case("copies", LLAMA, 2, replicate=2), "c", "--resume",
                            str(self.folder / "three" / "step-00000002"), "--steps", "4")
        for a, b in zip(losses(copies), losses(four), strict=True):
            for x, y in zip(a, b, strict=True):
                self.assertLess(abs(x / y - 1), 1e-6, "Adam's first steps make little of rounding")


class CheckpointFolder(Runs):
    written: pathlib.Path | None = None  # Written by the first test, for all.

    def setUp(self) -> None:
        super().setUp()
        self.case, self.alone = Case("r", LLAMA, 2), Case("a", LLAMA, 1)
        if CheckpointFolder.written is None:
            CheckpointFolder.written = pathlib.Path(tempfile.mkdtemp())
            self.run_ranks(self.case, "--steps", "2", "--checkpoint-every", "1",
                           "--checkpoint-dir", str(CheckpointFolder.written))
        shutil.copytree(CheckpointFolder.written, self.checkpoints)
        self.step = self.checkpoints / "step-00000002"

    @classmethod
    def tearDownClass(cls) -> None:
        shutil.rmtree(cls.written or "", ignore_errors=True)

    def expect(self, *said: str, case: Case | None = None, options: tuple[str, ...] = (),
               resume: str = "latest") -> None:
        printed = self.run_ranks(case or self.alone, "--steps", "3", "--checkpoint-dir", str(self.checkpoints), "--resume",
                                 resume, *options, code=EXIT_INPUT)
        for text in said:
            self.assertIn(text, printed)
        self.assertNotIn("step 3: loss", printed)

    def test_damaged_files_are_refused_by_name(self) -> None:
        name = "shard-00002-model-00001-of-00001.safetensors"
        kept = self.folder / "kept"
        for part, what in (("model", "flip"), ("optimizer", "flip"), ("optimizer", "cut"), ("model", "missing")):
            path = self.step / part / name
            shutil.copy(path, kept)
            data = kept.read_bytes()
            header = 8 + int.from_bytes(data[:8], "little")
            middle = header + (len(data) - header) // 2
            with self.subTest(part=part, what=what):
                if what == "missing":
                    path.unlink()
                else:
                    path.write_bytes(data[:-1] if what == "cut" else
                                     data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1:])
                self.expect(f"{part}/{name}: The file", "Resume from another checkpoint", case=self.case)
            shutil.copy(kept, path)
        index = self.step / "checkpoint.json"
        good = index.read_text(encoding="utf-8")
        index.write_text(good.replace('"step": 2', '"step": 3'), encoding="utf-8")
        self.expect("checkpoint.json", "The index is damaged")
        index.write_text(good, encoding="utf-8")
        self.assertIn("step 3: loss", self.run_ranks(self.alone, "--steps", "3", "--resume", str(self.step)))

    def test_settings_that_contradict_the_checkpoint_are_refused(self) -> None:
        self.expect("another optimizer", case=Case("sgd", LLAMA, 1, SGD))
        self.expect("was trained with the seed 0", options=("--seed", "1"))
        self.expect("has the shape", case=Case("q", "qwen3_0_6b", 1))
        self.expect("It has a checkpoint of step 2, and this run begins after step 1",
                    resume=str(self.checkpoints / "step-00000001"))
        self.expect("Did you mean", "step-00000002", resume=str(self.checkpoints))
        said = self.run_ranks(self.alone, "--checkpoint-dir", str(self.checkpoints), code=EXIT_INPUT)
        self.assertIn("Add --resume latest", said)

    def test_old_checkpoints_and_leftovers_are_deleted(self) -> None:
        (self.checkpoints / ".step-00000009.partial" / "model").mkdir(parents=True)
        self.run_ranks(self.case, "--steps", "4", "--checkpoint-every", "1", "--checkpoint-keep", "2", "--checkpoint-dir", str(self.checkpoints),
                       "--resume", "latest")
        self.assertEqual(sorted(path.name for path in self.checkpoints.iterdir()), ["step-00000003", "step-00000004"])
        self.assertIn("random.1", tensors_of(self.checkpoints / "step-00000004" / "optimizer"))

    def test_latest_of_an_empty_folder_starts_anew(self) -> None:
        said = self.run_ranks(self.alone, "--steps", "1", "--checkpoint-dir", str(self.folder / "new"), "--resume",
                              "latest")
        self.assertIn("step 1: loss", said)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
