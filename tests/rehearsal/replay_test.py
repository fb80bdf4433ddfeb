"""What fsdp-plan replay makes of a recorded run, against that run: the real allocator on the stub GPU.

    replay_test.py STUB FSDP_PLAN      run by a Python that has torch

A run is rehearsed with each setting. The snapshot of the first, replayed with the setting of another, has to come to what the
other rehearsal measured.
"""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import sys
import tempfile
import unittest
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from command import run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.pop("PYTORCH_CUDA_ALLOC_CONF", None)  # The older name of what each run sets.
STUB, PROGRAM = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
PEAKS = {"live_peak_bytes": "requested_peak_bytes", "allocated_peak_bytes": "allocated_peak_bytes",
         "reserved_peak_bytes": "reserved_peak_bytes"}

# Fragments the default allocator: sizes grow from step to step, a side stream keeps blocks, the cache is emptied once.
GROWING = '''
import torch
import torch.nn as nn

model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(6)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
side = torch.cuda.Stream()
for step in range(4):
    x = torch.randn(1000 + 900 * step, 1024, device="cuda")
    with torch.cuda.stream(side):
        y = torch.zeros(700 + 300 * step, 1024, device="cuda")
    y.record_stream(torch.cuda.current_stream())
    del y
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 2:
        torch.cuda.empty_cache()
'''

# Runs out in a line of its own: gradients of a backward are asked for where no line of Python is known.
HOLDING = '''
import torch

held = []
for number in range(200):
    held.append(torch.empty(25 + number, 1 << 20, dtype=torch.uint8, device="cuda"))
    if number % 3 == 0:
        held.pop(0)
'''


def fsdp_plan(*words: str, conf: str = "") -> tuple[int, dict[str, Any]]:
    code, printed = run(PROGRAM, *words, FSDP_PLAN_STUB_GPU=str(STUB), FSDP_PLAN_PYTHON_PATH=str(ROOT / "python"),
                        OMP_NUM_THREADS="1", PYTORCH_ALLOC_CONF=conf)
    return code, json.loads(printed)


class ReplayOfARehearsal(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def rehearse(self, conf: str, name: str, *words: str, memory: str = "16G") -> tuple[int, dict[str, Any]]:
        snapshot = self.folder / f"{name}.pickle"
        code, report = fsdp_plan("rehearse", "--mem", memory, "--record-stream", "done", "--snapshot", str(snapshot),
                                 "--force", "--json", "--steps", "0", "--", sys.executable, *words, conf=conf)
        return code, report

    def check_all_pairs(self, *words: str) -> None:
        confs = {"default": "", "expandable": "expandable_segments:True",
                 "rounded": "roundup_power2_divisions:4,max_split_size_mb:32"}
        measured = {name: self.rehearse(conf, name, *words)[1]["memory"] for name, conf in confs.items()}
        reserved = {memory["reserved_peak_bytes"] for memory in measured.values()}
        self.assertGreater(len(reserved), 1, "the settings have to make a difference")
        for recorded in confs:
            for asked, conf in confs.items():
                _, replayed = fsdp_plan("replay", str(self.folder / f"{recorded}.pickle"), "--alloc-conf",
                                        conf or "expandable_segments:False", "--json")
                self.assertEqual(replayed["recording"]["blocks_before"], 0)
                self.assertEqual(replayed["recording"]["reserved_peak_bytes"],
                                 measured[recorded]["reserved_peak_bytes"])
                self.assertEqual(replayed["recorded"]["reserved_peak_bytes"],
                                 measured[recorded]["reserved_peak_bytes"])
                for of_rehearsal, of_replay in PEAKS.items():
                    self.assertEqual(replayed["replayed"][of_replay], measured[asked][of_rehearsal],
                                     f"{of_replay}: recorded with {recorded}, replayed with {asked}")

    def test_fragmenting_run_matches_under_every_setting(self) -> None:
        script = self.folder / "growing.py"
        script.write_text(GROWING)
        self.check_all_pairs(str(script))

    def test_late_recording_reserves_what_the_run_reserved(self) -> None:
        script = self.folder / "growing.py"
        script.write_text(GROWING)
        self.rehearse("", "whole", str(script))
        snapshot = pickle.loads((self.folder / "whole.pickle").read_bytes())
        events = snapshot["device_traces"][0]
        for begin in range(1, len(events), len(events) // 24):
            late = self.folder / "late.pickle"
            late.write_bytes(pickle.dumps({**snapshot, "device_traces": [events[begin:]]}))
            _, replayed = fsdp_plan("replay", str(late), "--json")
            self.assertEqual(replayed["recorded"]["reserved_peak_bytes"], replayed["recording"]["reserved_peak_bytes"],
                             f"without the first {begin} of {len(events)} events")

    def test_fsdp2_matches_under_every_setting(self) -> None:
        self.check_all_pairs("-m", "torch.distributed.run", "--nproc-per-node", "4",
                             str(ROOT / "tests" / "rehearsal" / "scripts" / "fsdp2.py"), "--steps", "2")

    def test_out_of_memory_repeats_at_its_line(self) -> None:
        script = self.folder / "holding.py"
        script.write_text(HOLDING)
        code, report = self.rehearse("", "full", str(script), memory="2G")
        self.assertEqual(code, 1, report["verdict"])
        code, replayed = fsdp_plan("replay", str(self.folder / "full.pickle"), "--json")
        self.assertEqual(code, 1)
        refusal = replayed["recorded"]["first_refusal"]
        self.assertEqual(refusal["requested_bytes"], report["rehearsal"]["failed_allocation"]["bytes"])
        self.assertEqual([(pathlib.Path(frame["file"]).name, frame["line"]) for frame in refusal["stack"]][-1],
                         ("holding.py", 6))
        code, _ = fsdp_plan("replay", str(self.folder / "full.pickle"), "--device-memory", "16G", "--json")
        self.assertEqual(code, 0)
        self.assertEqual(replayed["recorded"]["device_bytes"], report["rehearsal"]["failed_allocation"]["device_free_bytes"]
                         + refusal["reserved_bytes"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
