"""Checks fsdp-exec's messages for a fault of a rank, the memory or the plan, and that it ends.

    faults_test.py FSDP_EXEC

No test depends on how long after its fault the last rank ended; told.py records that. In a PATIENT run the ranks may wait for
each other longer than the test waits for them, so if it ends, no time-out has ended it.
"""

from __future__ import annotations

import pathlib
import signal
import socket
import subprocess
import sys
import time
import unittest
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from parity_cases import Case  # noqa: E402
from ranks import LIMIT_SECONDS, InAFolder, Rank, clean_environment, free_port, started, stopped_in_a_step  # noqa: E402
from told import tell  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
EXIT_INPUT, EXIT_RUN = 2, 3
PATIENT = ["--timeout", str(4 * LIMIT_SECONDS)]
ENDLESS = ["--steps", "1000000"]
TIMEOUTS = (2, 8, 32, 128)  # Seconds. On a busy machine the first ones may run out before anything is wrong.


class Faults(InAFolder):
    def plan(self, case: Case, name: str = "plan", **changes: Any) -> pathlib.Path:
        return case.write(self.folder, name, **changes)

    def they_train(self, ranks: list[Rank]) -> bool:
        """Waits until they train. False if one of them has ended before."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while "step 3: loss" not in ranks[0].printed:
            self.assertLess(time.monotonic(), deadline, "no step is done")
            if any(rank.process.poll() is not None for rank in ranks):
                return False
            time.sleep(0.05)
        return True

    def wait_until_they_train(self, ranks: list[Rank]) -> None:
        self.assertTrue(self.they_train(ranks), "".join(rank.printed for rank in ranks))

    def expect_end(self, rank: Rank, code: int, *said: str) -> None:
        self.assertEqual(rank.wait(), code, rank.printed)
        for pattern in said:
            self.assertRegex(rank.printed, pattern)

    def test_killed_rank_ends_the_others(self) -> None:
        plan = self.plan(Case("f", "llama3_2_1b", 3))
        with started(EXECUTOR, 3, [plan], self.folder, [*ENDLESS, *PATIENT]) as ranks:
            self.wait_until_they_train(ranks)
            began = time.monotonic()
            ranks[1].process.send_signal(signal.SIGKILL)
            for r in (0, 2):
                self.expect_end(ranks[r], EXIT_RUN, stopped_in_a_step(r), "No sign of life from rank 1")
            tell("a rank is killed", [ranks[0], ranks[2]], began)

    def test_hanging_rank_is_named(self) -> None:
        plan = self.plan(Case("f", "llama3_2_1b", 3))
        for timeout in TIMEOUTS:
            with started(EXECUTOR, 3, [plan], self.folder, [*ENDLESS, "--timeout", str(timeout)]) as ranks:
                if not self.they_train(ranks) and timeout != TIMEOUTS[-1]:
                    continue
                began = time.monotonic()
                ranks[1].process.send_signal(signal.SIGSTOP)
                for r in (0, 2):
                    self.expect_end(ranks[r], EXIT_RUN, stopped_in_a_step(r))
                # Others may have been late, too, if the machine delays a rank for seconds.
                if all("No sign of life from rank 1" in ranks[r].printed for r in (0, 2)):
                    tell("a rank hangs (seconds after `--timeout`)", [ranks[0], ranks[2]], began + timeout)
                    return
        self.fail("".join(rank.printed for rank in ranks))

    def test_hanging_rank_0_that_serves_the_store_is_named(self) -> None:
        plan = self.plan(Case("f", "llama3_2_1b", 3))
        for timeout in TIMEOUTS:
            options = [*ENDLESS, "--timeout", str(timeout)]
            with started(EXECUTOR, 3, [plan], self.folder, options, port=free_port()) as ranks:
                if not self.they_train(ranks) and timeout != TIMEOUTS[-1]:
                    continue
                ranks[0].process.send_signal(signal.SIGSTOP)
                for r in (1, 2):
                    self.expect_end(ranks[r], EXIT_RUN, stopped_in_a_step(r), "No sign of life from rank 0: ")
                return
        self.fail("".join(rank.printed for rank in ranks))

    def test_single_rank_needs_no_engine(self) -> None:
        done = subprocess.run([str(EXECUTOR), str(self.plan(Case("f", "llama3_2_1b", 1))), "--steps", "1"],
                              env=clean_environment(), capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_port_in_use_is_reported(self) -> None:
        plan = self.plan(Case("f", "llama3_2_1b", 2))
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            began = time.monotonic()
            with started(EXECUTOR, 2, [plan], self.folder, ["--timeout", "3"], port=port) as ranks:
                self.expect_end(ranks[0], EXIT_RUN, rf"error: rank 0: .*port {port} .*is taken.*MASTER_PORT")
                self.expect_end(ranks[1], EXIT_RUN, "error: rank 1: joining the other ranks: ")
                tell("the port is taken (`--timeout 3`)", ranks, began)

    def test_replicas_end_with_a_rank_of_another_shard_group(self) -> None:
        case = Case("f", "llama3_2_1b", 2, replicate=2)
        with started(EXECUTOR, 4, [self.plan(case)], self.folder, [*ENDLESS, *PATIENT]) as ranks:
            self.wait_until_they_train(ranks)
            began = time.monotonic()
            ranks[3].process.send_signal(signal.SIGKILL)
            for rank in ranks[:3]:
                self.expect_end(rank, EXIT_RUN, stopped_in_a_step(rank.rank))
            tell("a rank of another shard group is killed", ranks[:3], began)

    def test_missing_rank_is_named_after_the_timeout(self) -> None:
        plan = self.plan(Case("f", "llama3_2_1b", 3))
        began = time.monotonic()
        with started(EXECUTOR, 2, [plan], self.folder, ["--timeout", "5"], world_size=3) as ranks:
            for rank in ranks:
                self.expect_end(rank, EXIT_RUN, rf"error: rank {rank.rank}: joining the other ranks: .*ranks? .*2")
            tell("a rank never starts (`--timeout 5`)", ranks, began)
        self.assertGreater(time.monotonic() - began, 4, "they do not wait as long as said")

    def test_too_little_memory_is_reported_in_bytes(self) -> None:
        plan = self.plan(Case("f", "llama3_2_1b", 2))
        began = time.monotonic()
        with started(EXECUTOR, 2, [plan], self.folder, ["--mem", "600K", *PATIENT]) as ranks:
            for rank in ranks:
                rank.wait()
            said = "".join(rank.printed for rank in ranks)
            self.assertRegex(said, r"error: rank \d: .*\d+ bytes were asked for while \d+ of 614400 were in use")
            for rank in ranks:
                self.expect_end(rank, EXIT_RUN, "error: rank")
            tell("too little memory", ranks, began)

    def expect_refusal(self, fault: str, plans: list[pathlib.Path], *options: str) -> None:
        began = time.monotonic()
        with started(EXECUTOR, 3, plans, self.folder, list(options)) as ranks:
            for rank in ranks:
                self.expect_end(rank, EXIT_INPUT, r"error: .*options.* rank 2 differ from those of rank 0")
            tell(fault, ranks, began)

    def test_ranks_with_another_plan_are_named_and_no_rank_trains(self) -> None:
        case = Case("f", "llama3_2_1b", 3)
        one = self.plan(case, "one")
        for name, changes in {"accumulation": {"accumulation": 2}, "units": {"units": [{"modules": [""]}]},
                              "optimizer": {"optimizer": {"weight_decay": 0.5}}}.items():
            with self.subTest(name):
                self.expect_refusal("a rank has another plan", [one, one, self.plan(case, name, **changes)])

    def test_ranks_with_other_options_are_named_and_no_rank_trains(self) -> None:
        plan = self.plan(Case("f", "llama3_2_1b", 3))
        for options in ("--seed", "RANK"), ("--steps", "1RANK"), ("--lr", "1RANK"):
            with self.subTest(options[0]):
                self.expect_refusal("a rank has other options", [plan], *options)

    def test_copies_of_a_plan_may_have_different_paths(self) -> None:
        case = Case("f", "llama3_2_1b", 2)
        with started(EXECUTOR, 2, [self.plan(case, "here"), self.plan(case, "there")], self.folder, []) as ranks:
            self.assertEqual([rank.wait() for rank in ranks], [0, 0], "".join(rank.printed for rank in ranks))

    def test_every_problem_of_a_plan_is_reported_and_nothing_is_written(self) -> None:
        units = [{"modules": ["model.layer.0"]}, {"modules": ["model.norms"]}, {"modules": [""]}]
        options = ["--report", str(self.folder / "report.RANK"), "--save-parameters", str(self.folder / "parameters")]
        plan = self.plan(Case("f", "llama3_2_1b", 1), units=units)
        with started(EXECUTOR, 1, [plan], self.folder, options) as ranks:
            self.expect_end(ranks[0], EXIT_INPUT, r"model\.layer\.0", r"model\.norms", "model.norm")
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name.startswith(("report", "param"))], [])

    def test_a_mesh_of_another_size_is_refused(self) -> None:
        plan = self.plan(Case("f", "llama3_2_1b", 3))
        began = time.monotonic()
        with started(EXECUTOR, 2, [plan], self.folder, []) as ranks:
            for rank in ranks:
                self.expect_end(rank, EXIT_INPUT, "3 ranks, and 2 were started")
            tell("the plan is for other ranks than are started", ranks, began)

    def test_file_that_is_no_plan_is_refused(self) -> None:
        (self.folder / "no.json").write_text('{"format_version": "1.0", "model": {', encoding="utf-8")
        with started(EXECUTOR, 1, [self.folder / "no.json"], self.folder, []) as ranks:
            self.expect_end(ranks[0], EXIT_INPUT, r"no\.json")

    def test_report_that_cannot_be_written_is_refused(self) -> None:
        plan = self.plan(Case("f", "llama3_2_1b", 1))
        options = ["--report", str(self.folder / "nowhere" / "report")]
        with started(EXECUTOR, 1, [plan], self.folder, options) as ranks:
            self.expect_end(ranks[0], EXIT_INPUT, r"nowhere is not a folder\.")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
