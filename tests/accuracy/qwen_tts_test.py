"""Holds predictions for the fine-tuning of Qwen3-TTS against the published model code under the real FSDP2, as rehearsed: the
golden file says what each setting needed. ./scripts/accuracy makes it anew.

    qwen_tts_test.py FSDP_PLAN                    the test
    qwen_tts_test.py FSDP_PLAN --document FILE    writes the table between its marks
"""

from __future__ import annotations

import functools
import json
import pathlib
import sys
import tempfile
import unittest
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[1] / "support")]
from command import answer as answer_of  # noqa: E402
from marked_text import write_between  # noqa: E402
from qwen_tts_settings import CHAOTIC, GIB, Setting, settings  # noqa: E402
from rehearse_qwen_tts import KEYS, LARGE, SMALL, summary  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "qwen_tts_rehearsed.jsonl"
PHASES = ("first_step", "steady_step")
# Relative differences allowed.
BOUNDS = {"live": 0.005, "allocated": 0.005, "reserved": 0.03}
BELOW = 0.001  # the truth, of live tensors
PROGRAM = ""


def simulate(setting: Setting, memory: str, folder: str) -> dict[str, Any]:
    plan = pathlib.Path(folder) / "plan.json"
    plan.write_text(json.dumps(setting.plan()), encoding="utf-8")
    return answer_of(PROGRAM, "simulate", plan, "--gpu", setting.gpu, "--gpus", str(setting.gpus), "--mem", memory, "--json")


def answer(fits: bool, flushes: int) -> str:
    """What a GPU of 16 GiB says."""
    if not fits:
        return "out of memory"
    return "runs" if flushes == 0 else "runs, emptying its cache"


@functools.cache
def comparisons() -> list[dict[str, Any]]:
    """For each setting what was measured, what is predicted and the relative differences."""
    golden = {row["name"]: row for row in map(json.loads, GOLDEN.read_text(encoding="utf-8").splitlines())}
    rows = []
    for setting in settings():
        measured = golden[setting.name]
        with tempfile.TemporaryDirectory() as folder:
            large, small = simulate(setting, LARGE, folder), simulate(setting, SMALL, folder)
        phases = large["memory"]["phases"]
        rows.append({
            "setting": setting,
            "measured": measured,
            "differences": {key: {phase: phases[phase][f"{key}_peak_bytes"] / measured["phases"][phase][key] - 1
                                  for phase in PHASES} for key in KEYS},
            "collectives": summary([(row["kind"], row["elements"], row["dtype"], row["group_size"])
                                    for row in large["traffic"]["collectives"]]),
            "fits": small["verdict"] == "fits" and "tight" not in small["memory"],
            "verdict": "no" if small["verdict"] != "fits" else "tight" if "tight" in small["memory"] else "yes",
            "answer": answer(small["memory"]["cache_flushes"] >= 0, small["memory"]["cache_flushes"]),
            "measured_answer": answer(measured["runs_in_16_gib"], measured["cache_flushes_in_16_gib"]),
        })  # fmt: skip
    return rows


class QwenTts(unittest.TestCase):
    def test_forty_settings_have_current_rehearsals(self) -> None:
        self.assertGreaterEqual(len(comparisons()), 40)
        for row in comparisons():
            command = " ".join(row["setting"].command("qwen_tts_step.py", "CONFIG"))
            self.assertEqual(row["measured"]["command"], command, "Run ./scripts/accuracy.")

    def test_collectives_are_equal(self) -> None:
        for row in comparisons():
            with self.subTest(row["setting"].name):
                self.assertEqual(row["collectives"], row["measured"]["collectives"])

    def test_bytes_are_within_their_bounds(self) -> None:
        for row in comparisons():
            name = row["setting"].name
            for key, phases in row["differences"].items():
                bound = max(BOUNDS[key], CHAOTIC.get(name, 0) if key == "reserved" else 0)
                for phase, difference in phases.items():
                    with self.subTest(name, kind=key, phase=phase):
                        self.assertLessEqual(abs(difference), bound)
                        if key == "live":
                            self.assertGreaterEqual(difference, -BELOW)

    def test_answers_for_16_gib_agree(self) -> None:
        for row in comparisons():
            with self.subTest(row["setting"].name):
                self.assertEqual(row["answer"] == "out of memory", row["measured_answer"] == "out of memory")
                self.assertEqual(row["verdict"] == "no", row["measured_answer"] == "out of memory")
                if row["fits"]:
                    self.assertEqual(row["measured_answer"], "runs")


def table() -> list[str]:
    lines = ["| setting | GPU | GPUs | allocated GiB | predicted | reserved GiB | predicted | in 16 GiB | predicted | fits |",
             "|---|---|---:|---:|---:|---:|---:|---|---|---|"]  # fmt: skip
    for row in comparisons():
        setting, steady = row["setting"], row["measured"]["phases"]["steady_step"]
        off = {key: f"{100 * row['differences'][key]['steady_step']:+.2f} %" for key in KEYS}
        lines.append(f"| {setting.name} | {setting.gpu} | {setting.gpus} | {steady['allocated'] / GIB:.2f} | {off['allocated']} | "
                     f"{steady['reserved'] / GIB:.2f} | {off['reserved']} | {row['measured_answer']} | {row['answer']} | "
                     f"{row['verdict']} |")  # fmt: skip
    worst = {key: max(abs(d) for row in comparisons() for d in row["differences"][key].values()) for key in KEYS}
    same = sum((row["answer"] == "out of memory") == (row["measured_answer"] == "out of memory") for row in comparisons())
    equal = sum(row["collectives"] == row["measured"]["collectives"] for row in comparisons())
    within = sum(all(abs(d) <= BOUNDS["reserved"] for d in row["differences"]["reserved"].values()) for row in comparisons())
    number = len(comparisons())
    return [f"{number} settings. Collectives of a step equal: {equal}. Largest difference of live tensors {100 * worst['live']:.2f} %, "
            f"of allocated memory {100 * worst['allocated']:.2f} %. Reserved memory within 3 % in both steps: {within}; largest "
            f"difference {100 * worst['reserved']:.1f} %. Same answer for 16 GiB: {same}.", "", *lines]  # fmt: skip


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
    if sys.argv[2:3] == ["--document"]:
        write_between(pathlib.Path(sys.argv[3]), "qwen3-tts", table())
    else:
        unittest.main(argv=sys.argv[:1])
