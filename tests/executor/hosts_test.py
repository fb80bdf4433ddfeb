"""Ranks of two hosts: they meet, they agree with ranks of one host, and they end if the link between them is lost.

    hosts_test.py FSDP_EXEC

A host is a network namespace with its own mounts, and the network a pair of virtual interfaces. This file restarts itself in a
user namespace, which permits these without root; if that is not allowed, the tests are skipped.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest
from collections.abc import Iterator

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from checkpoints import differing, steps_in  # noqa: E402
from parity_cases import Case  # noqa: E402
from ranks import (  # noqa: E402
    LIMIT_SECONDS,
    InAFolder,
    Rank,
    clean_environment,
    parameters_of,
    started,
    stopped_in_a_step,
)
from told import tell  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
IS_INSIDE = len(sys.argv) > 2
EXIT_RUN = 3
TIMEOUTS = (3, 12, 48, 192)  # Seconds. On a busy machine the first ones may run out before anything is wrong.
PORT = 29500
CASE = Case("hosts", "llama3_2_1b", 2, {"optimizer": {"clip_grad_norm": 1.0}}, replicate=2)
RANKS = CASE.ranks
ACROSS = {"replicate": 1, "shard": RANKS}  # Both hosts have shards, and write them.
ADDRESSES = ("10.77.0.1", "10.77.0.2")


def namespaces_are_allowed() -> bool:
    tools = [shutil.which(name) for name in ("unshare", "nsenter", "ip")]
    return all(tools) and subprocess.run(["unshare", "-Urn", "true"], capture_output=True).returncode == 0


class Hosts:
    """This process's own namespace is the first host; the second belongs to a sleeping process."""

    _made = 0

    def __init__(self) -> None:
        Hosts._made += 1
        self.interfaces = (f"first{Hosts._made}", f"second{Hosts._made}")
        self.sleeper = subprocess.Popen(["unshare", "-n", "-m", "sleep", "infinity"])
        self.second = ["nsenter", "--net", "--mount", "--target", str(self.sleeper.pid), "--"]
        self.wait_for_namespace()
        first, second = self.interfaces
        self.ip("link", "add", first, "type", "veth", "peer", "name", second, "netns", str(self.sleeper.pid))
        for prefix, name, address in (([], first, ADDRESSES[0]), (self.second, second, ADDRESSES[1])):
            self.ip("address", "add", f"{address}/24", "dev", name, prefix=prefix)
            for each in ("lo", name):
                self.ip("link", "set", each, "up", prefix=prefix)

    def wait_for_namespace(self) -> None:
        own, other = (f"/proc/{pid}/ns/net" for pid in ("self", self.sleeper.pid))
        while os.readlink(own) == os.readlink(other):
            time.sleep(0.01)

    @staticmethod
    def ip(*words: str, prefix: list[str] = []) -> None:  # noqa: B006
        subprocess.run([*prefix, "ip", *words], check=True, capture_output=True)

    def hide(self, folder: pathlib.Path, inside: list[str]) -> None:
        """The second host gets its own folder in that place, with these folders in it."""
        folder.mkdir(exist_ok=True)
        made = [str(folder / name) for name in ["", *inside]]
        for words in (["mount", "-t", "tmpfs", "none", str(folder)], ["mkdir", "-p", *made]):
            subprocess.run([*self.second, *words], check=True)

    def cut(self) -> None:
        self.ip("link", "set", self.interfaces[0], "down")

    def mend(self) -> None:
        self.ip("link", "set", self.interfaces[0], "up")

    def end(self) -> None:
        self.ip("link", "delete", self.interfaces[0])
        self.sleeper.kill()
        self.sleeper.wait()


@contextlib.contextmanager
def on_two_hosts(hosts: Hosts, plan: pathlib.Path, folder: pathlib.Path, *options: str) -> Iterator[list[Rank]]:
    """Ranks 0 and 1 on the first, 2 and 3 on the second: replicas are on another host than their originals."""
    ranks = []
    try:
        for rank in range(RANKS):
            environment = {**clean_environment(), "RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank % 2),
                           "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(PORT)}
            words = [*(hosts.second if rank >= 2 else []), str(EXECUTOR), str(plan), "--threads", "1", *options]
            ranks.append(Rank(words, rank, folder / f"{rank}.log", environment))
        yield ranks
    finally:
        for rank in ranks:
            rank.process.kill()
            rank.process.wait()


class TwoHosts(InAFolder):
    def setUp(self) -> None:
        super().setUp()
        self.plan = CASE.write(self.folder)
        self.hosts = Hosts()
        self.addCleanup(self.hosts.end)

    def test_parameters_equal_those_of_one_host(self) -> None:
        there, here = self.folder / "there", self.folder / "here"
        with on_two_hosts(self.hosts, self.plan, self.folder, "--steps", "2", "--save-parameters", str(there)) as ranks:
            self.assertEqual([rank.wait() for rank in ranks], [0] * RANKS, "".join(rank.printed for rank in ranks))
        with started(EXECUTOR, RANKS, [self.plan], self.folder, ["--steps", "2", "--save-parameters", str(here)]) as ranks:
            self.assertEqual([rank.wait() for rank in ranks], [0] * RANKS, "".join(rank.printed for rank in ranks))
        self.assertEqual(parameters_of(there), parameters_of(here))

    def run_on_both(self, *options: str) -> list[Rank]:
        with on_two_hosts(self.hosts, self.plan, self.folder, *options) as ranks:
            for rank in ranks:
                rank.wait()
        return ranks

    def test_checkpoint_of_two_hosts_resumes_on_one(self) -> None:
        self.plan = CASE.write(self.folder, mesh=ACROSS)
        whole, parts = self.folder / "whole", self.folder / "parts"
        keep = ["--checkpoint-dir", str(self.folder / "checkpoints"), "--resume", "latest"]
        for options in (["4", "--save-parameters", str(whole)], ["2", *keep]):
            for rank in self.run_on_both("--steps", *options):
                self.assertEqual(rank.process.returncode, 0, rank.printed)
        options = ["--steps", "4", *keep, "--save-parameters", str(parts)]
        with started(EXECUTOR, RANKS, [self.plan], self.folder, options) as ranks:
            self.assertEqual([rank.wait() for rank in ranks], [0] * RANKS, "".join(rank.printed for rank in ranks))
            self.assertIn("resuming after step 2 of", ranks[0].printed)
        self.assertEqual(differing(parameters_of(parts), parameters_of(whole)), [])

    def test_unshared_folder_is_reported(self) -> None:
        self.plan = CASE.write(self.folder, mesh=ACROSS)
        folder = self.folder / "checkpoints"
        for already in (False, True):
            with self.subTest(folders_lie_there_already=already):
                parts = ("model", "optimizer") if already else ()
                self.hosts.hide(folder, [f".step-00000001.partial/{part}" for part in parts])
                ranks = self.run_on_both("--steps", "1", "--checkpoint-dir", str(folder))
                said = ranks[0].printed
                self.assertEqual([rank.process.returncode for rank in ranks], [EXIT_RUN] * RANKS, said)
                self.assertRegex(said, r"error: the checkpoint of step 1 was not written: rank \d: .*all hosts share")
                self.assertEqual(steps_in(folder), [])
        tell("hosts that share no folder of checkpoints", ranks)

    def test_a_lost_link_ends_every_rank(self) -> None:
        for timeout in TIMEOUTS:
            options = ["--steps", "1000000", "--timeout", str(timeout)]
            with on_two_hosts(self.hosts, self.plan, self.folder, *options) as ranks:
                if not self.they_train(ranks) and timeout != TIMEOUTS[-1]:
                    continue
                self.hosts.cut()
                began = time.monotonic()
                for rank in ranks:
                    self.assertEqual(rank.wait(), EXIT_RUN, rank.printed)
                    self.assertRegex(rank.printed, stopped_in_a_step(rank.rank))
                # Rank 1 may have been late, too, if the machine delays a rank for seconds.
                if "No sign of life from ranks 2, 3" in ranks[0].printed:
                    tell("the link between two hosts is lost (seconds after `--timeout`)", ranks, began + timeout)
                    return
                self.hosts.mend()
        self.fail(ranks[0].printed)

    def they_train(self, ranks: list[Rank]) -> bool:
        """Waits until they train. False if one of them has ended before."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while "step 2: loss" not in ranks[0].printed:
            self.assertLess(time.monotonic(), deadline, "no step is done")
            if any(rank.process.poll() is not None for rank in ranks):
                return False
            time.sleep(0.05)
        return True


if __name__ == "__main__":
    if IS_INSIDE:
        unittest.main(argv=sys.argv[:1])
    if not namespaces_are_allowed():
        print("skipped: no network namespaces can be made here")
        sys.exit(77)
    os.execvp("unshare", ["unshare", "-Urn", sys.executable, "-B", __file__, str(EXECUTOR), "inside"])
