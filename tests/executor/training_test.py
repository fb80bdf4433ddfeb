"""fsdp-exec trains like a script of plain PyTorch: gradients of micro-batches become their mean, rates follow a schedule,
optimizers have their constants, and weight decay applies only to the selected parameters.

    training_test.py FSDP_EXEC      run by a Python that has torch

The reference is a loop over torch.nn and torch.optim (plain_model.py), which imports nothing of this project. For schedules it
is torch.optim.lr_scheduler, and transformers if it is installed.
"""

from __future__ import annotations

import os
import pathlib
import sys
import unittest
from typing import Any

sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"  # Set before torch is imported: sums are made in the same order.
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
import torch  # noqa: E402
from plain_model import Files, Plain, Trained, train  # noqa: E402
from ranks import InAFolder, run_executor, started  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
EXIT_INPUT = 2
RATE = 0.01


class Against(InAFolder):
    def setUp(self) -> None:
        super().setUp()
        self.files = Files(self.folder)
        torch.set_num_threads(1)

    def model(self) -> Plain:
        model = Plain()
        model.load_state_dict(self.files.model.state_dict())
        return model

    def ours(self, plan: pathlib.Path, steps: int, *options: str, name: str = "ours", ranks: int = 1) -> dict[str, Any]:
        words = [*self.files.options(), "--steps", str(steps), "--reduction", "parity", *options]
        return run_executor(EXECUTOR, plan, ranks, self.folder, name, words)

    def expect_equal(self, ours: dict[str, Any], theirs: Trained) -> None:
        """Losses and parameters in every bit."""
        self.assertEqual([step["loss"] for step in ours["steps"][0]], theirs.losses)
        self.assertEqual({name: tensor[2] for name, tensor in ours["parameters"].items()}, theirs.parameters)
        begun = {name: tensor.numpy().tobytes() for name, tensor in self.files.model.state_dict().items()}
        self.assertEqual([name for name, tensor in theirs.parameters.items() if tensor == begun[name]], [], "they stay")

    def refused(self, *options: str, plan: pathlib.Path | None = None) -> str:
        with started(EXECUTOR, 1, [plan or self.files.plan(1, 4)], self.folder, list(options)) as ranks:
            self.assertEqual(ranks[0].wait(), EXIT_INPUT, ranks[0].printed)
            self.assertNotIn("step 1", ranks[0].printed)
            return ranks[0].printed


class Accumulation(Against):
    def test_gradients_are_those_of_the_mean_loss(self) -> None:
        for kind, optimizer in {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}.items():
            for accumulation, batch in ((3, 2), (1, 4)):
                with self.subTest(kind, accumulation=accumulation):
                    plan = self.files.plan(1, batch, accumulation=accumulation,
                                           optimizer={"kind": kind, "weight_decay": 0.01, "clip_grad_norm": 0.5})
                    model = self.model()
                    theirs = train(model, lambda i, batch=batch: self.files.batch(i * batch, batch), 8, accumulation,
                                   optimizer(model.parameters(), lr=0.1, weight_decay=0.01, foreach=True), clip=0.5)
                    self.expect_equal(self.ours(plan, 8, "--lr", "0.1"), theirs)

    def test_gradient_norm_does_not_depend_on_micro_batches(self) -> None:
        optimizer = {"kind": "sgd", "weight_decay": 0.0, "clip_grad_norm": 100.0}
        norms = [self.ours(self.files.plan(1, 4 // n, accumulation=n, optimizer=optimizer), 1)["steps"][0][0]["gradient_norm"]
                 for n in (1, 2, 4)]
        for norm in norms[1:]:
            self.assertAlmostEqual(norm / norms[0], 1, delta=1e-5)
        summed = self.ours(self.files.plan(1, 1, accumulation=4, optimizer=optimizer), 1, "--accumulation", "sum")
        self.assertAlmostEqual(summed["steps"][0][0]["gradient_norm"] / norms[0], 4, delta=1e-4)


class Schedules(Against):
    STEPS, WARMUP = 11, 3

    def rates(self, *options: str) -> list[float]:
        plan = self.files.plan(1, 4)
        run = self.ours(plan, self.STEPS, "--lr", str(RATE), *options)
        return [step["learning_rate"] for step in run["steps"][0]]

    def theirs(self, make: Any) -> list[float]:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
        scheduler = make(optimizer)
        rates = []
        for _ in range(self.STEPS):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return rates

    def expect_close(self, ours: list[float], theirs: list[float]) -> None:
        """PyTorch computes each rate from the previous one by a product, and so rounds differently."""
        self.assertEqual(len(ours), len(theirs))
        for a, b in zip(ours, theirs, strict=True):
            self.assertAlmostEqual(a, b, delta=1e-12)

    def test_schedules_of_torch_match(self) -> None:
        schedulers = torch.optim.lr_scheduler
        self.expect_close(self.rates("--schedule", "cosine", "--min-lr-ratio", "0.25"), self.theirs(
            lambda optimizer: schedulers.CosineAnnealingLR(optimizer, T_max=self.STEPS, eta_min=0.25 * RATE)))
        self.expect_close(self.rates("--schedule", "linear"), self.theirs(
            lambda optimizer: schedulers.LinearLR(optimizer, 1.0, 0.0, total_iters=self.STEPS)))
        after = lambda optimizer: [schedulers.LinearLR(optimizer, 1e-9, 1.0, total_iters=self.WARMUP),  # noqa: E731
                                   schedulers.CosineAnnealingLR(optimizer, T_max=20 - self.WARMUP)]
        warmed = self.rates("--schedule", "cosine", "--warmup", str(self.WARMUP), "--schedule-steps", "20")
        for a, b in zip(warmed, self.theirs(lambda optimizer: schedulers.SequentialLR(
                optimizer, after(optimizer), milestones=[self.WARMUP])), strict=True):
            self.assertAlmostEqual(a, b, delta=2e-9 * RATE)  # Its warm-up cannot begin at 0.

    def test_schedules_of_transformers_match(self) -> None:
        try:
            from transformers import get_scheduler
        except ImportError:
            self.skipTest("transformers is not installed")
        for schedule, name, options, words in (
                ("constant", "constant_with_warmup", [], {}), ("linear", "linear", [], {}), ("cosine", "cosine", [], {}),
                ("cosine", "cosine_with_min_lr", ["--min-lr-ratio", "0.1"], {"min_lr_rate": 0.1})):
            with self.subTest(name):
                theirs = self.theirs(lambda optimizer, name=name, words=words: get_scheduler(
                    name, optimizer, self.WARMUP, self.STEPS, scheduler_specific_kwargs=words))
                ours = self.rates("--schedule", schedule, "--warmup", str(self.WARMUP), *options)
                self.assertEqual(ours, theirs)

    def test_resumed_run_keeps_its_schedule_and_settings(self) -> None:
        plan = self.files.plan(1, 2, accumulation=2)
        words = ["--lr", str(RATE), "--schedule", "cosine", "--warmup", "2", "--schedule-steps", "9", "--min-lr-ratio",
                 "0.1", "--betas", "0.8", "0.95", "--eps", "1e-6", "--weight-decay", "0.3", "--no-decay", "norms,biases",
                 "--accumulation", "sum"]
        whole = self.ours(plan, 8, *words, name="whole")
        checkpoints = ["--checkpoint-dir", str(self.folder / "c")]
        self.ours(plan, 3, *words, *checkpoints, name="first")
        resume = ["--resume", "latest", "--tokens", str(self.files.tokens), "--reduction", "parity"]
        rest = run_executor(EXECUTOR, plan, 1, self.folder, "rest", ["--steps", "8", *checkpoints, *resume])
        self.assertEqual([step["loss"] for step in rest["steps"][0]], [step["loss"] for step in whole["steps"][0]][3:])
        self.assertEqual([step["learning_rate"] for step in rest["steps"][0]],
                         [step["learning_rate"] for step in whole["steps"][0]][3:])
        self.assertEqual(rest["parameters"], whole["parameters"])
        # An option that is passed again counts.
        other = run_executor(EXECUTOR, plan, 1, self.folder, "other",
                             ["--steps", "4", "--resume", str(self.folder / "c" / "step-00000003"), *resume[2:],
                              "--schedule", "constant", "--warmup", "0"])
        self.assertEqual([step["learning_rate"] for step in other["steps"][0]], [RATE])


class Optimizers(Against):
    def groups(self, model: Plain, decay: float, left_out: str) -> list[dict[str, Any]]:
        """As scripts write them: by modules."""
        without = []
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                is_norm = isinstance(module, torch.nn.LayerNorm)
                if ("norms" in left_out and is_norm) or ("biases" in left_out and name == "bias" and not is_norm):
                    without.append(parameter)
        ids = {id(parameter) for parameter in without}
        return [{"params": [p for p in model.parameters() if id(p) not in ids], "weight_decay": decay},
                {"params": without, "weight_decay": 0.0}]

    def test_constants_and_groups_of_weight_decay_match(self) -> None:
        kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
        for kind, implementation, left_out in (
                ("adamw", "foreach", "norms,biases"), ("adamw", "fused", "norms"), ("adamw", "for_loop", "biases"),
                ("adam", "foreach", "norms,biases"), ("sgd", "foreach", "biases")):
            with self.subTest(kind, implementation=implementation):
                adam = kind != "sgd"
                plan = self.files.plan(1, 4, optimizer={"kind": kind, "implementation": implementation,
                                                        **({} if adam else {"momentum": 0.9})})
                model = self.model()
                constants: dict[str, Any] = {"betas": (0.8, 0.95), "eps": 1e-5} if adam else {"momentum": 0.9}
                switches = {"foreach": implementation == "foreach", "fused": implementation == "fused"}
                theirs = train(model, lambda i: self.files.batch(i * 4, 4), 6, 1,
                               kinds[kind](self.groups(model, 0.3, left_out), lr=0.03, **constants, **switches))
                words = ["--betas", "0.8", "0.95", "--eps", "1e-5"] if adam else []
                ours = self.ours(plan, 6, "--lr", "0.03", "--weight-decay", "0.3", "--no-decay", left_out, *words)
                self.expect_equal(ours, theirs)

    def test_unsupported_values_are_refused(self) -> None:
        for rate in "nan", "inf", "-5", "1e400", "x":
            self.assertIn(rate, self.refused("--lr", rate))
        self.assertIn("[0, 1)", self.refused("--betas", "0.9", "1"))
        self.assertIn("--betas", self.refused("--betas", "0.9"))
        sgd = self.files.plan(1, 4, optimizer={"kind": "sgd"})
        said = self.refused("--betas", "0.9", "0.99", "--eps", "1e-3", "--min-lr-ratio", "0.1", plan=sgd)
        for flag in "--betas", "--eps", "--min-lr-ratio":
            self.assertRegex(said, rf"error: {flag}: ")
        self.assertIn("20 steps, and the whole schedule 5", self.refused("--schedule", "linear", "--warmup", "20",
                                                                        "--steps", "5"))
        self.assertIn("--schedule-steps", self.refused("--schedule-steps", "7"))
        self.assertIn("--no-decay", self.refused("--no-decay", "norm"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
