"""Kills ranks at any time, and expects that the last whole checkpoint exists and the run continues from it. A full disk ends
the run with one message and leaves no part of a checkpoint.

    checkpoint_faults_test.py FSDP_EXEC [TORCHRUN]

FSDP_CHECKPOINTS=all in the environment: 40 kills instead of a few.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from checkpoints import contents_of, differing, index_of, steps_in  # noqa: E402
from parity_cases import Case  # noqa: E402
from ranks import LIMIT_SECONDS, InAFolder, clean_environment, free_port, parameters_of, started  # noqa: E402
from told import tell  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
TORCHRUN = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
KILLS = 40 if os.environ.get("FSDP_CHECKPOINTS") == "all" else 6
EXIT_RUN = 3
CASE = Case("f", "llama3_2_1b", 3)


class Faults(InAFolder):
    def setUp(self) -> None:
        super().setUp()
        self.checkpoints = self.folder / "checkpoints"

    def plan(self, case: Case = CASE) -> pathlib.Path:
        return case.write(self.folder)

    def wait_for_step(self, number: int, folder: pathlib.Path | None = None) -> None:
        folder = folder or self.checkpoints
        deadline = time.monotonic() + LIMIT_SECONDS
        while not (folder.is_dir() and any(int(step.name[5:]) >= number for step in steps_in(folder))):
            self.assertLess(time.monotonic(), deadline, f"no checkpoint of step {number}")
            time.sleep(0.01)

    def test_ranks_killed_at_any_moment_leave_a_usable_checkpoint(self) -> None:
        draw = random.Random(5)
        last = 0
        caught = 0
        for kill in range(KILLS):
            options = ["--steps", "1000000", "--checkpoint-every", "1", "--checkpoint-keep", "2", "--checkpoint-dir", str(self.checkpoints),
                       "--resume", "latest"]
            with started(EXECUTOR, CASE.ranks, [self.plan()], self.folder, options) as ranks:
                self.wait_for_step(last + 1)
                time.sleep(draw.uniform(0, 0.2))
                victims = ranks if kill % 2 else [draw.choice(ranks)]
                for rank in victims:
                    rank.process.send_signal(signal.SIGKILL)
                for rank in ranks:
                    self.assertIn(rank.wait(), (-signal.SIGKILL, EXIT_RUN), rank.printed)
                    # The remaining ranks name the lost one, wherever the run was, including within a checkpoint.
                    if rank not in victims:
                        self.assertIn("No sign of life from rank", rank.printed)
            caught += any(path.name.endswith(".partial") for path in self.checkpoints.iterdir())
            found = steps_in(self.checkpoints)
            for step in found:
                index_of(step)
                contents_of(step)
            self.assertGreater(int(found[-1].name[5:]), last)
            last = int(found[-1].name[5:])
        print(f"{caught} of {KILLS} kills were while a checkpoint was written", file=sys.stderr)
        options = ["--steps", str(last + 1), "--checkpoint-dir", str(self.checkpoints), "--resume", "latest"]
        with started(EXECUTOR, CASE.ranks, [self.plan()], self.folder, options) as ranks:
            self.assertEqual([rank.wait() for rank in ranks], [0] * CASE.ranks, ranks[0].printed)
            self.assertIn(f"resuming after step {last}", ranks[0].printed)

    def expect_full(self, fault: str, said: str) -> None:
        options = ["--steps", "5", "--checkpoint-every", "1", "--checkpoint-dir", str(self.checkpoints)]
        began = time.monotonic()
        with started(EXECUTOR, CASE.ranks, [self.plan()], self.folder, options) as ranks:
            self.assertEqual([rank.wait() for rank in ranks], [EXIT_RUN] * CASE.ranks)
            for rank in ranks:
                errors = [line for line in rank.printed.splitlines() if line.startswith("error")]
                self.assertEqual(len(errors), 1, rank.printed)
                self.assertRegex(errors[0], said)
            tell(fault, ranks, began)
        self.assertEqual([path.name for path in self.checkpoints.iterdir() if not path.name.startswith("step-")], [])
        for step in steps_in(self.checkpoints):
            index_of(step)

    def test_file_size_limit_is_reported(self) -> None:
        self.checkpoints.mkdir()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))  # The moments of a rank have 300 KB.
        try:
            self.expect_full("a file of a checkpoint may not be as large",
                             r"error: the checkpoint of step 1 was not written: rank \d: .*optimizer/.*: The file cannot "
                             "be written: File too large.*There is none before it")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    def test_full_disk_is_reported(self) -> None:
        self.checkpoints.mkdir()
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(self.checkpoints)],
                               capture_output=True, check=False)
        if mount.returncode != 0:
            self.skipTest("only root can make a small disk")
        try:
            self.expect_full("the disk of checkpoints is full",
                             r"error: the checkpoint of step 3 was not written: rank \d: .*: No space left on device.*"
                             "The last one is .*step-00000002")
        finally:
            subprocess.run(["umount", str(self.checkpoints)], check=True)

    def test_torchrun_restarts_killed_ranks_from_the_last_checkpoint(self) -> None:
        if TORCHRUN is None or not TORCHRUN.is_file():
            self.skipTest("there is no torchrun")
        # On a busy machine a run may end before the test sees it.
        for steps in ("60", "600", "6000"):
            if self.is_started_again(steps):
                return
        self.fail("every run has ended before a rank could be killed")

    def is_started_again(self, steps: str) -> bool:
        """Kills a rank after step 20 and checks how the run continues. False if it had ended by then."""
        plan, checkpoints = self.plan(), self.folder / f"checkpoints-{steps}"
        whole, restarted = self.folder / f"whole-{steps}", self.folder / f"restarted-{steps}"
        options = ["--steps", steps, "--threads", "1", "--save-parameters"]
        words = [str(TORCHRUN), "--no-python", "--max-restarts", "2", "--monitor-interval", "0.1", "--nproc-per-node",
                 str(CASE.ranks), "--master-addr", "127.0.0.1", "--master-port", str(free_port()), str(EXECUTOR),
                 str(plan), *options, str(restarted), "--checkpoint-dir", str(checkpoints), "--checkpoint-every", "10", "--resume", "latest"]
        log = self.folder / "log"
        with open(log, "w", encoding="utf-8") as file:
            run = subprocess.Popen(words, env=clean_environment(), stdout=file, stderr=file)
        try:
            self.wait_for_step(20, checkpoints)
            victim = self.a_rank_of(run.pid)
            if victim is None:
                return False
            os.kill(victim, signal.SIGKILL)
            self.assertEqual(run.wait(LIMIT_SECONDS), 0, log.read_text(encoding="utf-8"))
        finally:
            run.kill()
            run.wait()
        again = re.search(r"resuming after step (\d+) of", log.read_text(encoding="utf-8"))
        if again is None or again[1] == steps:
            return False
        with started(EXECUTOR, CASE.ranks, [plan], self.folder, [*options[:2], *options[4:], str(whole)]) as ranks:
            self.assertEqual([rank.wait() for rank in ranks], [0] * CASE.ranks, ranks[0].printed)
        self.assertEqual(differing(parameters_of(restarted), parameters_of(whole)), [])
        return True

    @staticmethod
    def a_rank_of(parent: int) -> int | None:
        """A process that trains; None if all have ended."""
        children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="utf-8").split()
        for pid in map(int, children):
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{pid}/exe").resolve() == EXECUTOR:
                    return pid
        return None


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
