#!/usr/bin/env python3
"""fsdp-plan replay, run as its users run it.

usage: cli_replay_test.py PROJECT_ROOT BINARY

Screens are compared with tests/golden/cli/replay_*. After a change that is meant, run the test with FSDP_UPDATE_GOLDEN=1 and
read the diff.
"""

import json
import os
import pathlib
import pickle
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT, BINARY = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
GOLDEN = ROOT / "tests" / "golden" / "cli"
TRACES = sorted((ROOT / "tests" / "golden" / "allocator").glob("*.txt"))
LIMIT_SECONDS = 900  # However busy a machine is, only what hangs takes as long.
MIB = 1 << 20
BASE = 0x7F0000000000


def growing_trace() -> str:
    """Six steps of a model whose inputs grow, as requests: the default allocator keeps what no later step can use."""
    lines = ["!device_bytes 2147483648"]
    number = 0
    for _ in range(8):
        lines.append(f"alloc {number} {12 * MIB} 0")
        number += 1
    for step in range(6):
        live = []
        for layer in range(12):
            size = (10 + 3 * step) * MIB + layer * 70_000
            lines += [f"alloc {number} {size} 0", f"alloc {number + 1} {2 * size} 0", f"free {number + 1}"]
            live.append(number)
            number += 2
        lines += [f"free {each}" for each in reversed(live)]
    return "\n".join(lines) + "\n"


def snapshot_of(trace: str, **settings: object) -> dict:
    """What PyTorch's history would be for a trace with results: addresses and segments from after the bars."""
    events, live, reserved, line = [], {}, 0, 0
    for text in trace.splitlines():
        if text[:1] in "!=@":
            continue
        asked, results = (part.split() for part in text.split("|"))
        line += 1
        frames = [{"name": "forward", "filename": "/opt/torch/nn/modules/linear.py", "line": 134},
                  {"name": "train", "filename": "train.py", "line": 40 + line % 7}]
        common = {"stream": 0, "time_us": 1_000_000 + 250 * line, "frames": frames}
        if int(results[3]) > reserved:
            events.append({"action": "segment_alloc", "addr": BASE + int(results[0], 16), "size": int(results[3]) - reserved,
                           **common})
            reserved = int(results[3])
        if asked[0] == "alloc":
            live[asked[1]] = (BASE + int(results[0], 16), int(asked[2]))
            events.append({"action": "alloc", "addr": live[asked[1]][0], "size": live[asked[1]][1], **common})
        else:
            address, size = live.pop(asked[1])
            for action in ("free_requested", "free_completed"):
                events.append({"action": action, "addr": address, "size": size, **common})
    segments = [{"device": 0, "address": 0, "total_size": reserved, "stream": 0, "blocks": []}]
    return {"segments": segments, "device_traces": [[], events],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False,
                                   "garbage_collection_threshold": 0.0, **settings}} | {"segments": [
                                       {**segment, "device": 1} for segment in segments]}


class Replay(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls) -> None:
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.folder = pathlib.Path(cls.holder.name)
        (cls.folder / "trace.txt").write_text(growing_trace())
        cls.traced = cls.run_words("trace.txt --format trace")[1]
        (cls.folder / "snapshot.pickle").write_bytes(pickle.dumps(snapshot_of(cls.traced)))

    @classmethod
    def run_words(cls, words: str, width: int = 80, stdin: bytes = b"", **environment: str) -> tuple[int, str, str]:
        done = subprocess.run([str(BINARY), "replay", *shlex.split(words)], cwd=cls.folder, input=stdin, capture_output=True,
                              timeout=LIMIT_SECONDS, env={"PATH": "/usr/bin:/bin", "COLUMNS": str(width), **environment})
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def compare(self, name: str, words: str, width: int) -> None:
        code, out, err = self.run_words(words, width)
        text = f"$ fsdp-plan replay {words}\n{out}{err}exit code {code}\n"
        path = GOLDEN / name
        if os.environ.get("FSDP_UPDATE_GOLDEN"):
            path.write_text(text)
        self.assertEqual(text, path.read_text() if path.exists() else "", f"{path.name} differs")

    def test_screens(self) -> None:
        for width in (60, 80, 120):
            self.compare(f"replay_snapshot_{width}.txt",
                         "snapshot.pickle --alloc-conf expandable_segments:True --device-memory 2G", width)
            self.compare(f"replay_oom_{width}.txt", "snapshot.pickle --device-memory 600M --verbose", width)
            self.compare(f"replay_trace_{width}.txt", "trace.txt", width)

    def test_help(self) -> None:
        self.compare("replay_help.txt", "--help-all", 80)

    def test_snapshot_replays_as_its_trace(self) -> None:
        runs = [json.loads(self.run_words(f"{name} --json --device-memory 2G")[1])["replayed"]
                for name in ("trace.txt", "snapshot.pickle")]
        for key in ("requested_peak_bytes", "allocated_peak_bytes", "reserved_peak_bytes", "reserved_peak_step",
                    "allocated_over_time_bytes", "reserved_over_time_bytes", "num_cuda_malloc"):
            self.assertEqual(runs[0][key], runs[1][key], key)

    def test_every_protocol_of_pickle_reads_the_same(self) -> None:
        answers = set()
        for protocol in range(2, 6):
            data = pickle.dumps(snapshot_of(self.traced), protocol)
            code, out, err = self.run_words("- --json", stdin=data)
            self.assertEqual((code, err), (0, ""))
            answers.add(out)
        self.assertEqual(len(answers), 1)

    def test_trace_with_results_reprints_line_by_line(self) -> None:
        self.assertGreaterEqual(len(TRACES), 12)
        for path in TRACES:
            code, out, err = self.run_words("- --format trace", stdin=path.read_bytes())
            self.assertEqual((code, err), (0, ""))
            self.assertEqual(out, path.read_text(), path.name)

    def test_trace_under_other_settings_names_them(self) -> None:
        for words in ("trace.txt", "snapshot.pickle"):
            code, out, _ = self.run_words(f"{words} --alloc-conf 'expandable_segments: True' --device-memory 1G --format trace")
            self.assertEqual(code, 0)
            self.assertEqual(out.splitlines()[:2], ["!device_bytes 1073741824", "!config expandable_segments:True"])
            self.assertIn(" expandable ", out)
            self.assertEqual(self.run_words("- --format trace", stdin=out.encode())[1], out)

    def test_exit_codes(self) -> None:
        self.assertEqual(self.run_words("trace.txt")[0], 0)
        self.assertEqual(self.run_words("trace.txt --quiet --device-memory 200M")[0], 1)
        self.assertEqual(self.run_words("missing.txt")[0], 2)

    def test_csv_and_markdown_have_the_peaks(self) -> None:
        self.assertIn("peaks,recorded,", self.run_words("trace.txt --format csv")[1])
        self.assertIn("| recorded |", self.run_words("trace.txt --format md")[1])

    def mistakes(self, words: str, stdin: bytes = b"") -> list[str]:
        code, out, err = self.run_words(words, stdin=stdin)
        self.assertEqual((code, out), (2, ""), words)
        return err.splitlines()

    def test_all_mistakes_are_reported_at_once(self) -> None:
        bad = b"alloc a 1 0\nfree b\nfre a\n"
        self.assertEqual(self.mistakes("- --alloc-conf expandable_segment:True --device-memory 16", bad), [
            'error: standard input:2:6: "b" is not live. Only memory that an alloc made and no free ended can be named.',
            'error: standard input:3:1: There is no operation "fre". Did you mean "free"?',
            *self.mistakes("trace.txt --alloc-conf expandable_segment:True --device-memory 16")])
        self.assertIn('Did you mean "expandable_segments"?', self.mistakes("trace.txt --alloc-conf expandable_segment:True")[0])

    def test_pickles_are_not_executed(self) -> None:
        class Attack:
            def __reduce__(self):  # What every loader of pickles would call.
                return (os.system, ("touch attacked",))

        for protocol in range(2, 6):
            for value in (Attack(), {"device_traces": [[Attack()]]}, {"a": {1, 2}}, {"a": bytearray(b"x")}, {"a": object()}):
                lines = self.mistakes("-", pickle.dumps(value, protocol))
                self.assertEqual(len(lines), 1)
                self.assertRegex(lines[0], r"^error: standard input: byte \d+: It uses [A-Z_0-9]+\. Only dicts, ")
        self.assertFalse((self.folder / "attacked").exists())

    def test_other_files_are_refused(self) -> None:
        for data in (b"\x80\x04", b"\x80\x04N.", b"{}", b"\x00" * 100, b"# nothing\n", pickle.dumps({"device_traces": [[]]}),
                     pickle.dumps({"device_traces": [[7]]}), pickle.dumps(snapshot_of(self.traced))[:-50]):
            self.assertGreaterEqual(len(self.mistakes("-", data)), 1, data[:20])

    def test_only_replay_prints_traces(self) -> None:
        done = subprocess.run([str(BINARY), "gpus", "--format", "trace"], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(done.returncode, 2)
        self.assertIn("Only replay prints a trace.", done.stderr)

    def test_completions_know_the_command(self) -> None:
        for shell in ("bash", "zsh", "fish"):
            done = subprocess.run([str(BINARY), "completions", shell], capture_output=True, text=True, timeout=LIMIT_SECONDS)
            self.assertIn("replay", done.stdout)
            self.assertIn("device-memory", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
