"""Several ranks of fsdp-exec-cuda, each a process on the stub GPU: which transport they agree on, and how they end.

    stub_ranks_test.py FSDP_EXEC_CUDA FSDP_PLAN STUB

The stub's NCCL plays the other ranks of each, so that no bytes move between them; they meet through a store, as on cards.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
import unittest
from collections.abc import Iterator
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from parity_cases import Case  # noqa: E402
from ranks import InAFolder, Rank, clean_environment, free_port  # noqa: E402

PROGRAM, PLANNER, STUB = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
NOTE = "note: there are fewer GPUs than ranks"


class OnTheStub(InAFolder):
    @contextlib.contextmanager
    def started(self, plan: pathlib.Path, environments: list[dict[str, str]], *options: str) -> Iterator[list[Rank]]:
        """A rank for each of the environments, which meet through rank 0."""
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
        """Which ranks take their GPU for shared, and what rank 0 printed."""
        with self.started(self.plan(len(environments)), environments, "--steps", "1") as ranks:
            for rank in ranks:
                self.assertEqual(rank.wait(), 0, rank.printed)
            reports: list[dict[str, Any]] = [json.loads((self.folder / f"report.{r}.json").read_text(encoding="utf-8"))
                                             for r in range(len(ranks))]
            return ["shared by several ranks" in json.dumps(report) for report in reports], ranks[0].printed

    def test_one_gpu_that_is_seen_per_rank_is_a_gpu_of_its_own(self) -> None:
        """As srun --gpus-per-task=1 and Ray show them."""
        shared, said = self.train([{"STUB_GPU_FIRST": str(r), "LOCAL_WORLD_SIZE": "2"} for r in range(2)])
        self.assertEqual(shared, [False, False])
        self.assertNotIn(NOTE, said)

    def test_two_of_three_ranks_on_one_gpu_change_the_transport_of_all(self) -> None:
        shared, said = self.train([{"STUB_GPU_FIRST": first} for first in ("0", "1", "1")])
        self.assertEqual(shared, [True, True, True])
        self.assertIn(NOTE, said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
