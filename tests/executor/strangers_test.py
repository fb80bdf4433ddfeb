"""A stranger who reaches the run's port or writes its files: what he can do, and the ranks' messages.

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
from told import tell  # noqa: E402
from torch.distributed import PrefixStore, TCPStore  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
EXIT_RUN = 3
WORDS = "your disk is on fire"
LISTENING = "0A"  # The state of a socket in /proc/net/tcp.


def listened_at(pid: int, port: int) -> set[str]:
    """The addresses, as hexadecimal numbers, at which a process listens on a port."""
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


def resident(pid: int) -> int:
    """Resident bytes of a process; 0 if it has ended."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


class Strangers(InAFolder):
    def setUp(self) -> None:
        super().setUp()
        self.files = Files(self.folder)
        self.plans: dict[int, pathlib.Path] = {}  # By number of ranks, written before any rank reads them.

    def wait_for(self, ranks: list[Rank], text: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while text not in ranks[0].printed:
            self.assertLess(time.monotonic(), deadline, ranks[0].printed)
            self.assertTrue(all(rank.process.poll() is None for rank in ranks), "".join(rank.printed for rank in ranks))
            time.sleep(0.05)

    def launch(self, rank: int, world_size: int, port: int, *options: str, **variables: str) -> Rank:
        """One rank of a run that meets at a port; it does not outlive the test."""
        environment = {**clean_environment(), "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **variables}
        if world_size not in self.plans:
            self.plans[world_size] = self.files.plan(world_size, 2 * world_size)
        words = [str(EXECUTOR), str(self.plans[world_size]), "--threads", "1", *options]
        started = Rank(words, rank, self.folder / f"{time.monotonic_ns()}.log", environment)
        self.addCleanup(started.process.wait)
        self.addCleanup(started.process.kill)
        return started

    def visit(self, port: int) -> TCPStore:
        """Connects to the store as a rank would, once rank 0 is there."""
        return TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False,
                        timeout=timedelta(seconds=LIMIT_SECONDS))

    def assert_closed(self, port: int) -> None:
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS)

    def test_store_listens_only_at_the_address_of_the_run(self) -> None:
        port = free_port()
        first = self.launch(0, 2, port)
        store = self.visit(port)
        self.assertEqual(listened_at(first.process.pid, port), {"0100007F"})  # 127.0.0.1
        del store

    def test_store_closes_to_strangers_once_ranks_have_joined(self) -> None:
        port = free_port()
        endless = ["--steps", "1000000"]
        ranks = [self.launch(0, 3, port, *endless)]
        store = self.visit(port)
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        ranks += [self.launch(rank, 3, port, *endless) for rank in (1, 2)]
        self.wait_for(ranks, "step 2")
        self.assert_closed(port)
        self.assertEqual(listened_at(ranks[0].process.pid, port), set())
        with self.assertRaises(Exception):  # noqa: B017 (torch's are of several kinds)
            store.set("more", "of it")
            store.get("more")
        for connection in idle:
            connection.settimeout(LIMIT_SECONDS)
            self.assertEqual(connection.recv(1), b"")
            connection.close()
        done = int(ranks[0].printed.rpartition("step ")[2].split(":")[0].split(" ")[0].rstrip(","))
        self.wait_for(ranks, f"step {done + 30}:")
        # Another run meets at the same port.
        others = [self.launch(rank, 2, port, "--steps", "1") for rank in range(2)]
        self.assertEqual([rank.wait() for rank in others], [0, 0], others[0].printed)

    def test_endless_writer_ends_the_start_without_filling_memory(self) -> None:
        port = free_port()
        first = self.launch(0, 2, port, "--timeout", str(4 * LIMIT_SECONDS))
        store = self.visit(port)
        before = resident(first.process.pid)
        most = before
        value = "x" * (4 << 20)
        with self.assertRaises(Exception):  # noqa: B017
            for i in range(1000):
                store.set(f"stranger/{i}", value)
                most = max(most, resident(first.process.pid))
        self.assertEqual(first.wait(), EXIT_RUN)
        self.assertRegex(first.printed, rf"error: rank 0: joining the other ranks: while the ranks met, the store at port "
                                        rf"{port} was sent more than 16 MiB, which no ranks do\. Who else reaches that port")
        self.assertLess(most - before, 400 << 20)

    def test_no_rank_prints_a_strangers_message(self) -> None:
        port = free_port()
        checkpoints = self.folder / "c"
        options = ["--steps", "1000000", "--checkpoint-every", "3", "--checkpoint-keep", "1", "--checkpoint-dir", str(checkpoints)]
        ranks = [self.launch(0, 2, port, *options)]
        store = self.visit(port)
        for prefix in "fsdp-exec/0", "fsdp-exec//0":
            own = PrefixStore(prefix, store)
            own.set("heartbeat/lost", WORDS)
            for step in range(3, 300, 3):
                own.set(f"bytes/checkpoint/{step}/result", f"error {WORDS}")
                own.set(f"bytes/checkpoint/{step}/files/1", f"error {WORDS}")
        while not (digests := [key for key in store.list_keys() if key.endswith("text/0")]):
            self.assertIsNone(ranks[0].process.poll(), ranks[0].printed)
            time.sleep(0.05)
        # The plan cannot be read.
        read = {key: store.get(key) for key in store.list_keys()}
        self.assertEqual([len(read[digest]) < 64 for digest in digests], [True], list(read))
        self.assertEqual([key for key, value in read.items() if b"Plain" in value or b"mesh" in value], [])
        ranks.append(self.launch(1, 2, port, *options))
        self.wait_for(ranks, "step 30:")
        for rank in ranks:
            self.assertNotIn(WORDS, rank.printed)
            self.assertNotIn("error", rank.printed)
        tell("a stranger writes into the store of a run on CPUs", ranks)

    def test_duplicate_rank_is_refused_at_once(self) -> None:
        port = free_port()
        ranks = [self.launch(rank, 3, port, "--timeout", str(4 * LIMIT_SECONDS)) for rank in range(2)]
        store = PrefixStore("fsdp-exec//0", self.visit(port))
        store.wait(["here/1"], timedelta(seconds=LIMIT_SECONDS))
        began = time.monotonic()
        second = self.launch(1, 3, port, "--timeout", str(4 * LIMIT_SECONDS))
        self.assertEqual(second.wait(), EXIT_RUN)
        self.assertRegex(second.printed, rf"rank 1 of a run is at 127\.0\.0\.1 port {port} already.*MASTER_PORT")
        tell("a second rank of a number that is there comes to the port", [*ranks, second], began)
        # With its own name it is another run, whose rank 0 is missing.
        began = time.monotonic()
        named = self.launch(1, 3, port, "--timeout", "2", FSDP_EXEC_RUN_ID="other")
        self.assertEqual(named.wait(), EXIT_RUN)
        self.assertRegex(named.printed, "not there after 2 s: rank 0")
        tell("a rank of another run comes to the port (`--timeout 2`)", [*ranks, named], began)
        self.assertTrue(all(rank.process.poll() is None for rank in ranks))


class MeetingPlaces(InAFolder):
    """Each cause has its own message."""

    def setUp(self) -> None:
        super().setUp()
        self.files = Files(self.folder)

    def expect(self, fault: str, said: str, address: str, port: int, timeout: str = "1") -> None:
        began = time.monotonic()
        rank = Rank([str(EXECUTOR), str(self.files.plan(2, 4)), "--timeout", timeout], 1, self.folder / "log",
                    {**clean_environment(), "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": address,
                     "MASTER_PORT": str(port)})
        self.assertEqual(rank.wait(), EXIT_RUN)
        self.assertRegex(rank.printed, f"error: rank 1: joining the other ranks: {said}")
        tell(f"{fault} (`--timeout {timeout}`)", [rank], began)

    def test_unknown_host_is_reported(self) -> None:
        self.expect("nobody knows the name in MASTER_ADDR", r'the host of MASTER_ADDR, "no\.such\.host\.invalid", is unknown', "no.such.host.invalid", 29500)

    def test_silent_host_is_reported(self) -> None:
        # TEST-NET-1 of RFC 5737, which nobody has. Some networks answer for every address.
        with socket.socket() as probe:
            probe.settimeout(3)
            try:
                probe.connect(("192.0.2.1", 29500))
            except ConnectionRefusedError:
                self.skipTest("this network refuses for hosts that are not there")
            except OSError:
                pass
        self.expect("no host answers", r"no host answers at 192\.0\.2\.1 \(.*\)\. Is MASTER_ADDR the address of rank 0\?", "192.0.2.1", 29500)

    def test_missing_rank_0_is_reported(self) -> None:
        port = free_port()
        self.expect("rank 0 is not there", rf"127\.0\.0\.1 is there, and nothing listens at its port {port}: rank 0 has not started, has ended, or "
                    "trains with the ranks that it has met",
                    "127.0.0.1", port)

    def test_other_service_at_the_port_is_reported(self) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            self.expect("another program is at the port", rf"the process at 127\.0\.0\.1 port {port} is not the store of rank 0", "127.0.0.1", port)

    def test_too_few_descriptors_are_reported(self) -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        plan = self.files.plan(1, 4)
        said, is_told = "", False
        for files in (10, 12, 14, 16):
            began = time.monotonic()
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, limits[1]))
            try:
                with started(EXECUTOR, 1, [plan], self.folder, ["--steps", "1", "--timeout", "1"],
                             port=free_port()) as ranks:
                    ranks[0].wait()
                    said += ranks[0].printed
                    if "ulimit" in ranks[0].printed and not is_told:
                        is_told = True
                        resource.setrlimit(resource.RLIMIT_NOFILE, limits)  # Restores the limit to write the report.
                        tell("too few descriptors", ranks, began)
            except OSError:  # This process has the limit, too.
                continue
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        self.assertRegex(said, r"this process may open \d+ files, and has no more: raise ulimit -n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
