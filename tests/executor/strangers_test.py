"""Who is not of the run and reaches its port, or writes its files: what he can do, and what the ranks say.

    strangers_test.py FSDP_EXEC      run by a Python that has torch
"""

from __future__ import annotations

import os
import pathlib
import resource
import socket
import sys
import time
import unittest
from datetime import timedelta

sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from plain_model import Files  # noqa: E402
from ranks import LIMIT_SECONDS, InAFolder, Rank, clean_environment, free_port, started  # noqa: E402
from torch.distributed import PrefixStore, TCPStore  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
EXIT_RUN = 3
WORDS = "your disk is on fire"
LISTENING = "0A"  # The state of a socket in /proc/net/tcp.


def listened_at(pid: int, port: int) -> set[str]:
    """The addresses, as hexadecimal numbers, at which a process listens at a port."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    found = set()
    for table in "tcp", "tcp6":
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
            words = line.split()
            address, number = words[1].split(":")
            if words[3] == LISTENING and words[9] in inodes and int(number, 16) == port:
                found.add(address)
    return found


class Strangers(InAFolder):
    def setUp(self) -> None:
        super().setUp()
        self.files = Files(self.folder)

    def wait_for(self, ranks: list[Rank], text: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while text not in ranks[0].printed:
            self.assertLess(time.monotonic(), deadline, ranks[0].printed)
            self.assertTrue(all(rank.process.poll() is None for rank in ranks), "".join(rank.printed for rank in ranks))
            time.sleep(0.05)

    def test_the_store_listens_where_the_run_meets_and_nowhere_else(self) -> None:
        port = free_port()
        with started(EXECUTOR, 2, [self.files.plan(2, 4)], self.folder, ["--steps", "1000000"], port=port) as ranks:
            self.wait_for(ranks, "step 2")
            self.assertEqual(listened_at(ranks[0].process.pid, port), {"0100007F"})  # 127.0.0.1

    def test_a_strangers_words_are_said_by_no_rank(self) -> None:
        port = free_port()
        checkpoints = self.folder / "c"
        options = ["--steps", "1000000", "--checkpoint-every", "3", "--checkpoint-keep", "1", "--checkpoint-dir", str(checkpoints)]
        with started(EXECUTOR, 2, [self.files.plan(2, 4)], self.folder, options, port=port) as ranks:
            self.wait_for(ranks, "step 3")
            store = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=20))
            for prefix in "fsdp-exec/0", "fsdp-exec//0":
                own = PrefixStore(prefix, store)
                for step in range(3, 3000, 3):
                    own.set(f"bytes/checkpoint/{step}/result", f"error {WORDS}")
                    own.set(f"bytes/checkpoint/{step}/files/1", f"error {WORDS}")
            # The plan is not there to be read.
            read = {key: store.get(key) for key in store.list_keys()}
            digests = [value for key, value in read.items() if key.endswith("text/0")]
            self.assertEqual([len(digest) < 64 for digest in digests], [True], list(read))
            self.assertEqual([key for key, value in read.items() if b"Plain" in value or b"mesh" in value], [])
            before = int(ranks[0].printed.rpartition("step ")[2].split(":")[0].split(" ")[0].rstrip(","))
            self.wait_for(ranks, f"step {before + 30}:")
            for rank in ranks:
                self.assertNotIn(WORDS, rank.printed)
                self.assertNotIn("error", rank.printed)

    def test_a_rank_that_is_there_already_is_refused_at_once(self) -> None:
        port = free_port()
        plan = self.files.plan(2, 4)
        with started(EXECUTOR, 2, [plan], self.folder, ["--steps", "1000000"], port=port) as ranks:
            self.wait_for(ranks, "step 2")
            environment = {**clean_environment(), "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2",
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            second = Rank([str(EXECUTOR), str(plan), "--timeout", str(4 * LIMIT_SECONDS)], 1, self.folder / "second.log",
                          environment)
            self.assertEqual(second.wait(), EXIT_RUN)
            self.assertRegex(second.printed, rf"rank 1 of a run is at 127\.0\.0\.1 port {port} already.*MASTER_PORT")
            # With a name of its own it is another run, which its rank 0 is missing from.
            named = Rank([str(EXECUTOR), str(plan), "--timeout", "2"], 1, self.folder / "named.log",
                         {**environment, "FSDP_EXEC_RUN_ID": "other"})
            self.assertEqual(named.wait(), EXIT_RUN)
            self.assertRegex(named.printed, "not there after 2 s: rank 0")
            self.assertTrue(all(rank.process.poll() is None for rank in ranks))


class MeetingPlaces(InAFolder):
    """Each cause has words of its own."""

    def setUp(self) -> None:
        super().setUp()
        self.files = Files(self.folder)

    def expect(self, said: str, address: str, port: int, timeout: str = "1") -> None:
        rank = Rank([str(EXECUTOR), str(self.files.plan(2, 4)), "--timeout", timeout], 1, self.folder / "log",
                    {**clean_environment(), "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": address,
                     "MASTER_PORT": str(port)})
        self.assertEqual(rank.wait(), EXIT_RUN)
        self.assertRegex(rank.printed, f"error: rank 1: joining the other ranks: {said}")

    def test_a_name_that_nobody_knows(self) -> None:
        self.expect(r'the host of MASTER_ADDR, "no\.such\.host\.invalid", is unknown', "no.such.host.invalid", 29500)

    def test_a_host_that_does_not_answer(self) -> None:
        # TEST-NET-1 of RFC 5737, which nobody has. Some networks answer for all the world.
        with socket.socket() as probe:
            probe.settimeout(3)
            try:
                probe.connect(("192.0.2.1", 29500))
            except ConnectionRefusedError:
                self.skipTest("this network refuses for hosts that are not there")
            except OSError:
                pass
        self.expect(r"no host answers at 192\.0\.2\.1 \(.*\)\. Is MASTER_ADDR the address of rank 0\?", "192.0.2.1", 29500)

    def test_a_rank_0_that_is_gone(self) -> None:
        port = free_port()
        self.expect(rf"127\.0\.0\.1 is there, and nothing listens at its port {port}: rank 0 has not started, or has ended",
                    "127.0.0.1", port)

    def test_something_else_at_the_port(self) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            self.expect(rf"what answers at 127\.0\.0\.1 port {port} is not the store of rank 0", "127.0.0.1", port)

    def test_too_few_descriptors(self) -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        plan = self.files.plan(1, 4)
        said = ""
        for files in (10, 12, 14, 16):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, limits[1]))
            try:
                with started(EXECUTOR, 1, [plan], self.folder, ["--steps", "1", "--timeout", "1"],
                             port=free_port()) as ranks:
                    ranks[0].wait()
                    said += ranks[0].printed
            except OSError:  # Of this process, which has the limit, too.
                continue
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        self.assertRegex(said, r"this process may open \d+ files, and has no more: raise ulimit -n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
