"""The Chrome trace of a measured step contains everything that the report counts, and events of a stream do not overlap.

    trace_test.py FSDP_EXEC
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import unittest
from collections import defaultdict
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from parity_cases import Case  # noqa: E402
from ranks import started  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
CASE = Case("trace", "llama3_2_1b", 2, {"optimizer": {"clip_grad_norm": 1.0}, "accumulation": 2}, replicate=2)
COMPUTE, STEP = 7, 1
KERNELS = {"all_gather": "gloo:all_gather", "reduce_scatter": "gloo:reduce_scatter", "all_reduce": "gloo:all_reduce"}


class MeasuredTrace(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        home = pathlib.Path(folder.name)
        options = ["--steps", "2", "--chrome-trace", str(home / "trace-{rank}.json"), "--report", str(home / "report-{rank}.json")]
        with started(EXECUTOR, CASE.ranks, [CASE.write(home)], home, options) as ranks:
            codes = [rank.wait() for rank in ranks]
            if any(codes):
                raise AssertionError("".join(rank.printed for rank in ranks))
        cls.traces = [json.loads((home / f"trace-{rank}.json").read_text()) for rank in range(CASE.ranks)]
        cls.reports = [json.loads((home / f"report-{rank}.json").read_text()) for rank in range(CASE.ranks)]

    def slices(self, rank: int) -> dict[int, list[dict[str, Any]]]:
        found = defaultdict(list)
        for event in self.traces[rank]["traceEvents"]:
            if event["ph"] == "X":
                found[event["tid"]].append(event)
        return found

    def test_trace_names_rank_and_world_size(self) -> None:
        for rank, trace in enumerate(self.traces):
            self.assertEqual(trace["distributedInfo"]["rank"], rank)
            self.assertEqual(trace["distributedInfo"]["world_size"], CASE.ranks)

    def test_collectives_match_the_report_in_order(self) -> None:
        for rank, report in enumerate(self.reports):
            expected = [(row["kind"], row["elements"]) for row in report["traffic"]["collectives"]]
            events = [event for lane in self.slices(rank).values() for event in lane if event["name"].startswith("gloo:")]
            self.assertEqual(len(events), len(expected))
            for kind, name in KERNELS.items():
                found = [max(event["args"]["In msg nelems"], event["args"]["Out msg nelems"])
                         for event in sorted(events, key=lambda event: event["ts"]) if name in event["name"]]
                self.assertEqual(found, [elements for each, elements in expected if each == kind], (rank, kind))

    def test_nothing_on_a_stream_overlaps_or_leaves_the_step(self) -> None:
        for rank in range(CASE.ranks):
            lanes = self.slices(rank)
            end = lanes[STEP][0]["ts"] + lanes[STEP][0]["dur"]
            for stream, lane in lanes.items():
                lane.sort(key=lambda event: event["ts"])
                for before, after in zip(lane, lane[1:]):
                    self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 1e-3, (rank, stream, before, after))
                self.assertLessEqual(lane[-1]["ts"] + lane[-1]["dur"], end + 1, (rank, stream))

    def test_work_and_waits_add_up_to_the_step(self) -> None:
        for rank, report in enumerate(self.reports):
            lanes = self.slices(rank)
            work = sum(event["dur"] for event in lanes[COMPUTE])
            waits = 1e6 * sum(row["exposed"] for row in report["traffic"]["collectives"])
            step = lanes[STEP][0]["dur"]
            self.assertGreater(waits, 0)
            self.assertAlmostEqual((work + waits) / step, 1, delta=0.02)

    def test_memory_stays_below_the_peak_and_has_its_categories(self) -> None:
        for rank, report in enumerate(self.reports):
            totals: dict[str, list[int]] = defaultdict(list)
            for event in self.traces[rank]["traceEvents"]:
                if event["ph"] == "C":
                    for name, value in event["args"].items():
                        totals[f"{event['name']}/{name}"].append(value)
            self.assertTrue(any("OptState" in name for name in totals), totals.keys())
            highest = max(max(values) for values in totals.values())
            self.assertLessEqual(highest, report["memory"]["live_peak_bytes"])
            self.assertGreater(highest, report["memory"]["live_peak_bytes"] / 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
