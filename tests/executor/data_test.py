"""Compares fsdp-exec's training data with plain PyTorch: labels, document borders, several files, shuffles, evaluations, and
the metrics that it writes meanwhile.

    data_test.py FSDP_EXEC      run by a Python that has torch

Losses and parameters are compared with a loop of plain PyTorch (plain_model.py).
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import struct
import subprocess
import sys
import time
import unittest
from typing import Any

sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
import torch  # noqa: E402
from parity_cases import Case, checkpointed  # noqa: E402
from plain_model import SEQ, VOCABULARY, Files, Plain, train, write_safetensors  # noqa: E402
from ranks import ROOT, InAFolder, run_executor, started  # noqa: E402
from told import tell  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
TENSORBOARD = pathlib.Path(os.environ.get("FSDP_TENSORBOARD") or "none")  # Its folder of packages.
EXIT_INPUT, EXIT_RUN = 2, 3
IGNORED = -100


def write_ids(path: pathlib.Path, ids: list[int], letter: str = "H") -> pathlib.Path:
    path.write_bytes(struct.pack(f"<{len(ids)}{letter}", *ids))
    return path


class OnFiles(InAFolder):
    def setUp(self) -> None:
        super().setUp()
        self.files = Files(self.folder)
        torch.set_num_threads(1)

    def model(self) -> Plain:
        model = Plain()
        model.load_state_dict(self.files.model.state_dict())
        return model

    def run_plain(self, name: str, *options: str, ranks: int = 1, batch: int = 4, **plan: Any) -> dict[str, Any]:
        words = ["--weights", str(self.files.weights), "--reduction", "parity", *options]
        return run_executor(EXECUTOR, self.files.plan(ranks, batch, **plan), ranks, self.folder, name, words)

    def losses(self, run: dict[str, Any], rank: int = 0) -> list[float]:
        return [step["loss"] for step in run["steps"][rank]]

    def refused(self, said: str, *options: str) -> None:
        with started(EXECUTOR, 1, [self.files.plan(1, 4)], self.folder, list(options)) as ranks:
            self.assertEqual(ranks[0].wait(), EXIT_INPUT, ranks[0].printed)
            self.assertRegex(ranks[0].printed, said)


class Labels(OnFiles):
    def test_masks_borders_and_several_files_train_as_in_plain_pytorch(self) -> None:
        ids = [self.files.ids[:7 * SEQ + 5], self.files.ids[7 * SEQ + 5:]]  # A remainder that is too short for a sample is
                                                                            # left out.
        end = 3
        labels = [[IGNORED if i % 5 == 2 else each for i, each in enumerate(part)] for part in ids]
        tokens = [str(write_ids(self.folder / f"ids-{i}", part, "i")) for i, part in enumerate(ids)]
        masks = [str(write_ids(self.folder / f"labels-{i}", part, "i")) for i, part in enumerate(labels)]
        samples = []
        for part, mask in zip(ids, labels, strict=True):
            for begin in range(0, len(part) - SEQ + 1, SEQ):
                rows = range(begin, begin + SEQ)
                samples.append((part[begin:begin + SEQ], [IGNORED if i > 0 and part[i - 1] == end else mask[i] for i in rows]))
        self.assertTrue(any(each[1][i] == IGNORED and (i + 3) % 5 for each in samples for i in range(SEQ)))

        def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
            rows = [samples[(number * 4 + row) % len(samples)] for row in range(4)]
            return torch.tensor([row[0] for row in rows]), torch.tensor([row[1] for row in rows])

        model = self.model()
        theirs = train(model, batch, 9, 1, torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.01))
        ours = self.run_plain("ours", "--steps", "9", "--lr", "0.02", "--token-dtype", "int32", "--tokens", *tokens,
                              "--labels", *masks, "--document-end", str(end))
        self.assertEqual(self.losses(ours), theirs.losses)
        self.assertEqual({name: tensor[2] for name, tensor in ours["parameters"].items()}, theirs.parameters)

    def test_rank_without_labels_stops_all_ranks(self) -> None:
        ids = [5] * (8 * SEQ)
        labels = [5] * (4 * SEQ) + [IGNORED] * (4 * SEQ)  # The second half is rank 1's.
        tokens, masks = (str(write_ids(self.folder / name, values, "i")) for name, values in
                         (("ids", ids), ("labels", labels)))
        began = time.monotonic()
        with started(EXECUTOR, 2, [self.files.plan(2, 4)], self.folder,
                     ["--tokens", tokens, "--labels", masks, "--token-dtype", "int32"]) as ranks:
            self.assertEqual([rank.wait() for rank in ranks], [EXIT_RUN] * 2)
            self.assertIn("step 1: The loss of rank 1 is NaN or infinite", ranks[0].printed)
            self.assertRegex(ranks[1].printed, "step 1: The loss is -?nan")
            tell("the loss of a rank is no number", ranks, began)

    def test_mismatched_files_are_reported(self) -> None:
        short = str(write_ids(self.folder / "short", [1] * 7, "H"))
        self.refused(r"short: It has 7 labels, and .* has \d+ tokens", "--tokens", str(self.files.tokens), "--labels", short)
        self.refused("--labels: There are 2 files of labels for 1 of tokens", "--tokens", str(self.files.tokens), "--labels",
                     short, short)
        for option in ("--shuffle", "3"), ("--document-end", "3"):
            self.refused(f"{option[0]}: It applies to token files", *option)


class AllInputsOfAFile(OnFiles):
    def stored(self, name: str, **changes: Any) -> str:
        """The contents of the token file, with some tensors replaced or removed."""
        ids = torch.tensor(self.files.ids).view(-1, SEQ)
        tensors = {"input_ids": ids, "labels": ids.clone(), **changes}
        path = self.folder / f"{name}.safetensors"
        write_safetensors(path, {key: tensor for key, tensor in tensors.items() if tensor is not None})
        return str(path)

    def test_training_matches_token_files_in_any_order_and_resumes(self) -> None:
        # The loss shifts labels, so each label stands at its own token and is shifted only once.
        labels = torch.tensor(self.files.ids).view(-1, SEQ)
        labels[:, 3] = IGNORED
        masks = str(write_ids(self.folder / "labels", labels.flatten().tolist(), "i"))
        stored = self.stored("all", input_ids=torch.tensor(self.files.ids, dtype=torch.int32).view(-1, SEQ), labels=labels)
        how = ["--steps", "9", "--lr", "0.02", "--shuffle", "7"]
        ids = str(write_ids(self.folder / "ids", self.files.ids, "i"))
        of_tokens = self.run_plain("tokens", *how, "--tokens", ids, "--labels", masks, "--token-dtype", "int32", ranks=2)
        held = ["--evaluate", stored, "--evaluate-every", "9", "--metrics", str(self.folder / "m.jsonl")]
        of_samples = self.run_plain("samples", *how, *held, "--tokens", stored, ranks=2)
        self.assertEqual([self.losses(of_samples, rank) for rank in (0, 1)], [self.losses(of_tokens, rank) for rank in (0, 1)])
        self.assertEqual(of_samples["parameters"], of_tokens["parameters"])
        self.assertIn('"evaluation_samples": 24', (self.folder / "m.jsonl").read_text(encoding="utf-8"))
        checkpoints = ["--checkpoint-dir", str(self.folder / "c")]
        self.run_plain("begun", "--steps", "4", *how[2:], *checkpoints, "--tokens", stored, ranks=2)
        rest = run_executor(EXECUTOR, self.files.plan(2, 4), 2, self.folder, "rest",
                            [*checkpoints, "--resume", "latest", "--tokens", stored, "--steps", "9", "--reduce", "parity"])
        self.assertEqual(rest["parameters"], of_tokens["parameters"])

    def test_mismatched_files_are_reported(self) -> None:
        good = self.stored("good")
        for path, said in (
                (self.stored("none", labels=None), r'It has no "labels" \[samples, \d+\], which the model takes'),
                (self.stored("name", label=torch.zeros(24, SEQ)), r'"label" is no input .* Did you mean "labels"\?'),
                (self.stored("shape", labels=torch.zeros(24, SEQ + 1, dtype=torch.int64)), r'"labels" has the shape \[24, \d+\], and samples'),
                (self.stored("kind", labels=torch.zeros(24, SEQ)), '"labels" is float32, and the model takes whole numbers'),
                (self.stored("count", labels=torch.zeros(23, SEQ, dtype=torch.int64)), '"labels" has 23 samples, and "input_ids" has 24')):
            with self.subTest(said):
                self.refused(said, "--tokens", path)
        for more in ([good], ["--labels", str(self.files.tokens)], ["--document-end", "3"], ["--token-dtype", "int32"]):
            self.refused("A .safetensors file has all inputs of all samples, and stands alone", "--tokens", good, *more)
        for name, ids in ("input_ids", IGNORED), ("labels", VOCABULARY):
            wrong = torch.tensor(self.files.ids).view(-1, SEQ)
            wrong[5, 1] = ids
            with started(EXECUTOR, 1, [self.files.plan(1, 4)], self.folder,
                         ["--steps", "3", "--tokens", self.stored(f"wrong-{name}", **{name: wrong})]) as ranks:
                self.assertEqual(ranks[0].wait(), EXIT_RUN)
                self.assertRegex(ranks[0].printed, rf'step 2.*"{name}" of sample 5 has {ids}, and the model takes whole numbers from 0 to')


class Order(OnFiles):
    """At a rate of 0 the loss of a step identifies its sample."""

    def order(self, name: str, steps: int, *options: str) -> list[float]:
        return self.losses(self.run_plain(name, "--lr", "0", "--steps", str(steps), "--tokens", str(self.files.tokens),
                                          *options, batch=1))

    def test_each_epoch_has_every_sample_once_in_another_order(self) -> None:
        n = self.files.samples
        straight = self.order("straight", n)
        self.assertEqual(len(set(straight)), n, "samples are not told apart")
        shuffled = self.order("shuffled", 2 * n, "--shuffle", "7")
        first, second = shuffled[:n], shuffled[n:]
        self.assertEqual(sorted(first), sorted(straight))
        self.assertEqual(sorted(second), sorted(straight))
        self.assertEqual(len({tuple(order) for order in (straight, first, second)}), 3)
        self.assertNotEqual(self.order("other", n, "--shuffle", "8"), first)
        # Two ranks alternate in the same order.
        both = self.run_plain("both", "--lr", "0", "--steps", str(n // 2), "--tokens", str(self.files.tokens), "--shuffle",
                              "7", ranks=2, batch=1)
        self.assertEqual([loss for pair in zip(*(self.losses(both, rank) for rank in (0, 1)), strict=True) for loss in pair],
                         first)
        # A continued run keeps its order, and accepts no other.
        checkpoints = ["--checkpoint-dir", str(self.folder / "c")]
        self.order("begun", n + 3, "--shuffle", "7", *checkpoints)
        resume = ["--resume", "latest", *checkpoints, "--tokens", str(self.files.tokens)]
        rest = run_executor(EXECUTOR, self.files.plan(1, 1), 1, self.folder, "rest",
                            [*resume, "--steps", str(2 * n), "--reduction", "parity"])
        self.assertEqual(self.losses(rest), shuffled[n + 3:])
        self.refused("--shuffle: .* was trained with a different value of it", *resume, "--shuffle", "8")


class Evaluations(OnFiles):
    def test_loss_matches_pytorch_and_training_is_unchanged(self) -> None:
        held_out = [(7 * i * i + 3) % VOCABULARY for i in range(9 * SEQ)]
        path = str(write_ids(self.folder / "held-out", held_out))
        options = ["--tokens", str(self.files.tokens), "--steps", "4", "--lr", "0.02"]
        metrics = self.folder / "metrics.jsonl"
        without = self.run_plain("without", *options, ranks=2, batch=2)
        with_it = self.run_plain("with", *options, "--evaluate", path, "--evaluate-every", "2", "--metrics", str(metrics),
                                 ranks=2, batch=2)
        self.assertEqual(with_it["parameters"], without["parameters"])
        self.assertEqual([self.losses(with_it, r) for r in (0, 1)], [self.losses(without, r) for r in (0, 1)])
        model = self.model().eval()
        model.load_state_dict({name: torch.frombuffer(bytearray(tensor[2]), dtype=torch.float32).view(tensor[1])
                               for name, tensor in with_it["parameters"].items()})
        rows = torch.tensor(held_out[:8 * SEQ]).view(8, SEQ)  # The ninth does not fill a round of two ranks.
        with torch.no_grad():
            theirs = sum(model(rows[i:i + 2], rows[i:i + 2]).item() for i in range(0, 8, 2)) / 4
        lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        found = [(line["step"], line["evaluation_samples"]) for line in lines if "evaluation_loss" in line]
        self.assertEqual(found, [(2, 8), (4, 8)])
        self.assertAlmostEqual(lines[-1]["evaluation_loss"], theirs, delta=1e-7)
        steps = [line for line in lines if "loss" in line]
        means = [(a + b) / 2 for a, b in zip(self.losses(with_it), self.losses(with_it, 1), strict=True)]
        self.assertEqual([(line["step"], line["loss"]) for line in steps], list(enumerate(means, start=1)))
        report = json.loads((self.folder / "with.0.json").read_text(encoding="utf-8"))
        self.assertEqual(report["evaluation"]["loss"], lines[-1]["evaluation_loss"])
        self.assertLess(report["evaluation"]["live_peak_bytes"], report["steps"][-1]["live_peak_bytes"])

    def test_dropout_and_checkpointing_are_off(self) -> None:
        ids = str(write_ids(self.folder / "ids", [i % 131 for i in range(24 * 16)]))
        for case in (Case("gpt2", "gpt2", 2), Case("full", "llama3_2_1b", 2, checkpointed("llama3_2_1b")),
                     Case("kept", "llama3_2_1b", 2, checkpointed("llama3_2_1b", "selective"), replicate=2)):
            with self.subTest(case.name):
                plan = case.write(self.folder, case.name)
                options = ["--steps", "3", "--tokens", ids, "--lr", "0", "--reduction", "parity"]
                without = run_executor(EXECUTOR, plan, case.ranks, self.folder, "without", options)
                metrics = self.folder / f"{case.name}.jsonl"
                with_it = run_executor(EXECUTOR, plan, case.ranks, self.folder, "with",
                                       [*options, "--evaluate", ids, "--evaluate-every", "1", "--metrics", str(metrics)])
                self.assertEqual([self.losses(with_it, r) for r in range(case.ranks)],
                                 [self.losses(without, r) for r in range(case.ranks)])
                lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
                losses = {line["evaluation_loss"] for line in lines if "evaluation_loss" in line}
                self.assertEqual(len(losses), 1, f"the same parameters have the losses {losses}")

    def test_too_few_samples_are_refused(self) -> None:
        path = str(write_ids(self.folder / "few", [1] * (3 * SEQ)))
        self.refused("--evaluate: 3 samples are evaluated, and the ranks take 4 at a time", "--evaluate", path)


class Metrics(OnFiles):
    def test_resumed_run_writes_each_step_once(self) -> None:
        path = self.folder / "metrics.jsonl"
        options = ["--tokens", str(self.files.tokens), "--metrics", str(path), "--checkpoint-dir", str(self.folder / "c"),
                   "--resume", "latest", "--reduction", "parity", "--schedule", "linear", "--schedule-steps", "9"]
        plan = self.files.plan(1, 4, optimizer={"clip_grad_norm": 1.0})
        run_executor(EXECUTOR, plan, 1, self.folder, "first", [*options, "--steps", "2"])
        # A killed run had gone beyond its checkpoint, and was in the middle of a line.
        with open(path, "a", encoding="utf-8") as file:
            file.write('{"step": 3, "loss": 1.0}\n{"step": 4, "lo')
        run_executor(EXECUTOR, plan, 1, self.folder, "second", [*options, "--steps", "5"])
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.assertEqual([line["step"] for line in lines], [1, 2, 3, 4, 5])
        self.assertEqual([line["samples"] for line in lines], [4, 8, 12, 16, 20])
        self.assertEqual([line["learning_rate"] for line in lines], [1e-4 * ((9 - i) / 9) for i in range(5)])
        self.assertTrue(all(line["gradient_norm"] > 0 and line["seconds"] > 0 for line in lines))

    def test_foreign_file_is_not_overwritten(self) -> None:
        path = self.folder / "notes.txt"
        path.write_text("dear diary\n", encoding="utf-8")
        with started(EXECUTOR, 2, [self.files.plan(2, 4)], self.folder, ["--metrics", str(path)]) as ranks:
            self.assertEqual([rank.wait() for rank in ranks], [EXIT_RUN] * 2)
            for rank in ranks:
                self.assertIn("notes.txt: This file exists and was not written by --metrics", rank.printed)
        self.assertEqual(path.read_text(encoding="utf-8"), "dear diary\n")

    def to_tensorboard(self, path: pathlib.Path, folder: pathlib.Path, packages: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-B", "-m", "fsdp_metrics", "to-tensorboard", str(path), str(folder)],
                              env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), packages])},
                              capture_output=True, text=True, check=False)

    def test_tensorboard_reads_the_metrics(self) -> None:
        path, folder = self.folder / "metrics.jsonl", self.folder / "board"
        path.write_text('{"step": 1, "loss": 2.5, "samples": 8}\n{"step": 2, "loss": 2.25, "samples": 16}\n'
                        '{"step": 2, "evaluation_loss": 2.125}\n{"step": 3, "loss": null, "samples": 24}\n{"step": 4, "lo',
                        encoding="utf-8")
        if not importlib.util.find_spec("tensorboard"):
            done = self.to_tensorboard(path, folder, "")
            self.assertEqual(done.returncode, EXIT_INPUT, done.stderr)
            self.assertIn("tensorboard is not installed. Run: pip install tensorboard", done.stderr)
        if not TENSORBOARD.is_dir():
            self.skipTest("There is no tensorboard. To run this: ./scripts/rehearsal_env tensorboard")
        done = self.to_tensorboard(path, folder, str(TENSORBOARD))
        self.assertEqual(done.returncode, 0, done.stderr)
        sys.path.append(str(TENSORBOARD))
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder)).Reload()
        found = {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}
        self.assertEqual(found, {"loss": [(1, 2.5), (2, 2.25)], "samples": [(1, 8.0), (2, 16.0), (3, 24.0)],
                                 "evaluation_loss": [(2, 2.125)]})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
