"""Several ranks of fsdp-exec-cuda, each a process on the stub GPU: their common transport, and their end.

    stub_ranks_test.py FSDP_EXEC_CUDA FSDP_PLAN STUB

The stub's NCCL plays the other ranks of each, so no bytes move between them; they meet through a store, as on cards.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import signal
import sys
import time
import unittest
from collections.abc import Iterator
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from parity_cases import Case  # noqa: E402
from ranks import (  # noqa: E402
    LIMIT_SECONDS,
    InAFolder,
    Rank,
    clean_environment,
    free_port,
    run_executor,
    stopped_in_a_step,
)
from told import tell  # noqa: E402

PROGRAM, PLANNER, STUB = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
NOTE = "note: there are fewer GPUs than ranks"


class OnTheStub(InAFolder):
    @contextlib.contextmanager
    def started(self, plan: pathlib.Path, environments: list[dict[str, str]], *options: str) -> Iterator[list[Rank]]:
        """Starts a rank for each of the environments, which meet through rank 0."""
        meeting = {"WORLD_SIZE": str(len(environments)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        ranks: list[Rank] = []
        try:
            for r, own in enumerate(environments):
                environment = {**clean_environment(), "LD_PRELOAD": str(STUB), "RANK": str(r), "LOCAL_RANK": str(r), **meeting,
                               **own}
                words = [str(PROGRAM), str(plan), "--device", "cuda", "--threads", "1",
                         "--report", str(self.folder / f"report.{r}.json"), *options]
                ranks.append(Rank(words, r, self.folder / f"{r}.log", environment))
            yield ranks
        finally:
            for rank in ranks:
                if rank.process.poll() is None:
                    rank.process.kill()
                    rank.process.wait()

    def plan(self, shard: int) -> pathlib.Path:
        return Case("stub", "llama3_2_1b", shard).write(self.folder, "plan")


class RanksAgreeOnTheTransport(OnTheStub):
    def train(self, environments: list[dict[str, str]]) -> tuple[list[bool], str]:
        """The ranks that consider their GPU shared, and the output of rank 0."""
        with self.started(self.plan(len(environments)), environments, "--steps", "1") as ranks:
            for rank in ranks:
                self.assertEqual(rank.wait(), 0, rank.printed)
            reports: list[dict[str, Any]] = [json.loads((self.folder / f"report.{r}.json").read_text(encoding="utf-8"))
                                             for r in range(len(ranks))]
            return ["shared by several ranks" in json.dumps(report) for report in reports], ranks[0].printed

    def test_one_visible_gpu_per_rank_counts_as_separate_gpus(self) -> None:
        """As srun --gpus-per-task=1 and Ray show GPUs."""
        shared, said = self.train([{"STUB_GPU_FIRST": str(r), "LOCAL_WORLD_SIZE": "2"} for r in range(2)])
        self.assertEqual(shared, [False, False])
        self.assertNotIn(NOTE, said)

    def test_shared_gpu_changes_the_transport_of_all_ranks(self) -> None:
        shared, said = self.train([{"STUB_GPU_FIRST": first} for first in ("0", "1", "1")])
        self.assertEqual(shared, [True, True, True])
        self.assertIn(NOTE, said)


class EveryNthStep(OnTheStub):
    def measured(self, *options: str) -> tuple[dict[str, Any], str]:
        with self.started(self.plan(1), [{}], "--steps", "8", *options) as ranks:
            self.assertEqual(ranks[0].wait(), 0, ranks[0].printed)
            return json.loads((self.folder / "report.0.json").read_text(encoding="utf-8")), ranks[0].printed

    def test_is_measured_while_memory_covers_all_steps(self) -> None:
        every, _ = self.measured()
        third, printed = self.measured("--measure-every", "3")
        rows = [(step["step"], step["mean_of"]) for step in third["steps"]]
        self.assertEqual(rows, [(1, 1), (3, 2), (6, 3), (8, 2)])
        self.assertEqual([line.split(":")[0] for line in printed.splitlines() if line.startswith("step ")],
                         ["step 1", "step 3", "step 6", "step 8"])
        self.assertEqual(third["memory"]["phases"], every["memory"]["phases"])


    def test_training_on_cpu_is_unchanged(self) -> None:
        runs = [run_executor(PROGRAM.with_name("fsdp-exec"), self.plan(2), 2, self.folder, name, ["--steps", "5", *options])
                for name, options in (("every", []), ("second", ["--measure-every", "2"]))]
        self.assertEqual([step["step"] for step in runs[1]["steps"][0]], [1, 2, 4, 5])
        for every, second in zip(runs[0]["steps"], runs[1]["steps"], strict=True):
            self.assertEqual([step["loss"] for step in every if step["step"] != 3], [step["loss"] for step in second])
        self.assertEqual(runs[0]["parameters"], runs[1]["parameters"])


class EndOfRanks(OnTheStub):
    """The stub's ranks never wait for each other, so a rank learns about another only over the store."""

    ENDLESS = ("--steps", "1000000", "--timeout", "3600")

    def wait_until_they_train(self, ranks: list[Rank]) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while "step 2: loss" not in ranks[0].printed:
            self.assertLess(time.monotonic(), deadline, "no step is done")
            self.assertTrue(all(rank.process.poll() is None for rank in ranks), "".join(rank.printed for rank in ranks))
            time.sleep(0.05)

    def test_killed_rank_is_detected_through_the_store(self) -> None:
        cards = [{"STUB_GPU_FIRST": str(r)} for r in range(3)]
        with self.started(self.plan(3), cards, *self.ENDLESS, "--heartbeat", "3") as ranks:
            self.wait_until_they_train(ranks)
            began = time.monotonic()
            ranks[1].process.send_signal(signal.SIGKILL)
            for r in (0, 2):
                self.assertEqual(ranks[r].wait(), 3, ranks[r].printed)
                self.assertRegex(ranks[r].printed, stopped_in_a_step(r) + "rank 1 has given no sign of life for 3\\.0 s\\. "
                                                                        "No sign of life from rank 1")
            tell("GPU: a rank is silent, killed or hanging (`--heartbeat 3`)", [ranks[0], ranks[2]], began)

    def test_other_ranks_report_the_cause_without_waiting(self) -> None:
        cards = [{"STUB_GPU_FIRST": "0"},
                 {"STUB_GPU_FIRST": "1", "STUB_GPU_BYTES": str(8 << 20), "STUB_GPU_TRACE": "nccl"}]
        with self.started(self.plan(2), cards, *self.ENDLESS, "--heartbeat", "3600") as ranks:
            began = time.monotonic()
            for rank in ranks:
                self.assertEqual(rank.wait(), 3, rank.printed)
            tell("GPU: the memory of a rank does not do", ranks, began)
        self.assertIn("error: rank 1: step 1, ", ranks[1].printed)
        self.assertIn("CUDA out of memory", ranks[1].printed)
        self.assertRegex(ranks[0].printed, r"error: rank 0: .*: rank 1 has failed; its own output has the reason")
        self.assertIn("communicator 0: aborted", ranks[1].printed)
        self.assertNotIn("finalized", ranks[1].printed)

    def test_finished_ranks_close_together(self) -> None:
        cards = [{"STUB_GPU_FIRST": str(r), "STUB_GPU_TRACE": "nccl"} for r in range(2)]
        with self.started(self.plan(2), cards, "--steps", "1") as ranks:
            for rank in ranks:
                self.assertEqual(rank.wait(), 0, rank.printed)
                self.assertIn("communicator 0: finalized", rank.printed)
                self.assertNotIn("aborted", rank.printed)

    def test_device_error_is_reported_as_such(self) -> None:
        cards = [{"STUB_GPU_FIRST": "0"}, {"STUB_GPU_FIRST": "1", "STUB_GPU_FAULT": "illegal:200"}]
        with self.started(self.plan(2), cards, *self.ENDLESS, "--heartbeat", "3600") as ranks:
            began = time.monotonic()
            for rank in ranks:
                self.assertEqual(rank.wait(), 3, rank.printed)
            tell("GPU: an address of a kernel is illegal", ranks, began)
        self.assertRegex(ranks[1].printed, "error: rank 1: .*an illegal memory access was encountered")
        self.assertRegex(ranks[0].printed, "error: rank 0: .*: rank 1 has failed; its own output has the reason")

    def test_hanging_collective_is_reported_with_its_caller(self) -> None:
        cards = [{"STUB_GPU_FIRST": "0"}, {"STUB_GPU_FIRST": "1", "STUB_GPU_FAULT": "hang:40"}]
        options = ["--steps", "1000000", "--timeout", "3", "--heartbeat", "3600"]
        with self.started(self.plan(2), cards, *options) as ranks:
            began = time.monotonic()
            for rank in ranks:
                self.assertEqual(rank.wait(), 3, rank.printed)
            tell("GPU: a collective never ends (`--timeout 3`)", ranks, began)
        has_not_ended = "all-gather of .* among 2 ranks has not ended after 3\\.0 s: another rank has not come to it"
        self.assertRegex(ranks[1].printed, stopped_in_a_step(1) + has_not_ended)
        self.assertRegex(ranks[0].printed, stopped_in_a_step(0) + "rank 1 has failed; its own output has the reason")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
