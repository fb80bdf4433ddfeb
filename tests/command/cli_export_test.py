#!/usr/bin/env python3
"""fsdp-plan export, run as its users run it, and its files read by other programs' rules.

usage: cli_export_test.py PROJECT_ROOT BINARY
"""

import csv
import json
import pathlib
import pickle
import pickletools
import subprocess
import sys
import tempfile
import unittest

ROOT, BINARY = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
LIMIT_SECONDS = 900  # However busy a machine is, only what hangs takes as long.
# What the machine for pickles of torch/utils/viz/MemoryViz.js knows.
KNOWN_TO_THE_VIEWER = {
    "APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE", "DICT", "EMPTY_DICT",
    "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1", "LONG_BINGET", "LONG_BINPUT", "MARK", "MEMOIZE", "NEWFALSE",
    "NEWTRUE", "NONE", "PROTO", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
}


def run(*words: str | pathlib.Path) -> subprocess.CompletedProcess:
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, cwd=ROOT, timeout=LIMIT_SECONDS, check=False)


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.plan = pathlib.Path(cls.folder.name) / "plan.json"
        made = run("gpt2", "--gpus", "4", "--mem", "16G", "--quiet", "-o", cls.plan)
        assert made.returncode == 0, made.stderr
        report = run("simulate", cls.plan, "--json")
        cls.report = json.loads(report.stdout)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def exported(self, form: str) -> bytes:
        done = run("export", self.plan, "--to", form)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def steady_peak(self) -> int:
        return self.report["memory"]["phases"]["steady_step"]["live_peak_bytes"]

    def test_memviz_is_a_pickle_that_the_viewer_can_read(self) -> None:
        data = self.exported("memviz")
        self.assertLessEqual({op.name for op, _, _ in pickletools.genops(data)}, KNOWN_TO_THE_VIEWER)
        snapshot = pickle.loads(data)
        self.assertEqual(set(snapshot), {"segments", "device_traces"})
        events = snapshot["device_traces"][0]
        self.assertIn("unknown", {event["category"] for event in events})
        live = peak = 0
        for event in events:
            self.assertLess(event["addr"], 2**53)
            live += {"alloc": event["size"], "free_completed": -event["size"]}.get(event["action"], 0)
            peak = max(peak, live)
        self.assertEqual(peak, self.steady_peak())

    def test_chrome_is_a_trace_whose_slices_never_overlap(self) -> None:
        trace = json.loads(self.exported("chrome"))
        self.assertEqual(trace["distributedInfo"]["world_size"], 4)
        ends: dict[int, float] = {}
        communication = 0.0
        for event in trace["traceEvents"]:
            if event["ph"] != "X" or event.get("cat") != "kernel":
                continue
            self.assertGreaterEqual(event["ts"], ends.get(event["tid"], 0) - 1e-3)
            ends[event["tid"]] = event["ts"] + event["dur"]
            communication += event["dur"] if event["name"].startswith("nccl") else 0
        issued = sum(each["time"] for each in self.report["traffic"]["collectives"])
        self.assertAlmostEqual(communication / 1e6, issued, delta=0.01 * issued)
        counters = [e["args"]["live"] for e in trace["traceEvents"] if e["ph"] == "C" and e["name"] == "live bytes"]
        self.assertEqual(max(counters), self.steady_peak())

    def test_csv_has_the_same_peak(self) -> None:
        rows = list(csv.DictReader(self.exported("csv").decode().splitlines()))
        steady = [int(row["live_bytes"]) for row in rows if row["phase"] == "steady_step"]
        self.assertEqual(max(steady), self.steady_peak())

    def test_says_what_it_can_write(self) -> None:
        done = run("export", self.plan, "--to", "crome")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b'Did you mean "chrome"?', done.stderr)
        done = run("export", self.plan)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"--to memviz", done.stderr)

    def test_writes_no_file_twice(self) -> None:
        path = pathlib.Path(self.folder.name) / "step.json"
        self.assertEqual(run("export", self.plan, "--to", "chrome", "-o", path).returncode, 0)
        self.assertEqual(run("export", self.plan, "--to", "chrome", "-o", path).returncode, 2)
        self.assertEqual(run("export", self.plan, "--to", "chrome", "-o", path, "--force").returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
