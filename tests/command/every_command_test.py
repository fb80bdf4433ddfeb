#!/usr/bin/env python3
"""Every command and every export, asked about every runtime and every kind of model: each answers, or says why it cannot.

usage: every_command_test.py PROJECT_ROOT BINARY

The commands, exports and runtimes are the program's own lists, as its completions have them. A command that is not in
COMMANDS, or an export that is not in EXPORTS, fails the test: whoever adds one says there what it is asked. A runtime needs
no entry. A sanitizer's complaint is a failure (label `hostile`).
"""

import concurrent.futures
import csv
import io
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT, BINARY = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
LIMIT_SECONDS = 900  # However busy a machine is, only what hangs takes as long.
ANSWERED, DOES_NOT_FIT, REFUSED, OTHER_FAILED = 0, 1, 2, 3
SANITIZER = 86  # An exit code of its own.

# One model of each kind, of a shipped spec with two of its blocks, or captured, and how small it is asked about.
FAMILIES = {
    "decoder": ("model_specs/gpt2.json", "--seq 64 --batch 1"),
    "convolutions": ("model_specs/resnet18.json", "--batch 2"),
    "encoder and decoder": ("model_specs/t5_3b.json", "--seq 64 --set target_seq=32 --batch 1"),
    "mixture of experts": ("model_specs/qwen3_30b_a3b.json", "--seq 64 --batch 1"),
    "speech": ("model_specs/whisper_large_v3.json", "--set target_seq=32 --batch 1"),
    "captured": ("tests/golden/captured/small_decoder.json", ""),
    "passes": ("tests/golden/captured/small_gan.json", ""),
}
# What cannot be planned: of a capture what DeepSpeed replaces and where parameters are read, of models that are trained by turns
# what is not FSDP2.
MAY_REFUSE = {("captured", "zero3"), ("captured", "simple_fsdp"), *(("passes", runtime) for runtime in
                                       ("fsdp1", "ddp", "zero1", "zero2", "zero3", "simple_fsdp"))}  # fmt: skip

MACHINES = "--gpus 4 --mem 80G"

# What each command is asked: of PLAN, a plan's file; of REPORT, its report; of MODEL, the words of a model and its machines with
# RUNTIME. A sentence says why a command has no question of a plan.
COMMANDS = {
    "plan": ["plan MODEL MACHINES --runtime RUNTIME --json", "plan MODEL MACHINES --runtime RUNTIME --verbose"],
    "simulate": ["simulate PLAN", "simulate PLAN --json", "simulate PLAN --verbose", "simulate PLAN --rank 3 --format csv",
                 "simulate PLAN --mem 1G --format md"],  # fmt: skip
    "explain": ["explain PLAN", "explain PLAN --time", "explain PLAN --verbose"],
    "fit": ["fit MODEL --runtime RUNTIME --gpu L4 --gpus 2"],
    "run": ["run PLAN -- false"],
    "execute": ["execute PLAN --steps 1 --device cpu --ranks 3"],
    "export": ["export PLAN --to EXPORT"],
    "compare": ["compare REPORT REPORT", "compare REPORT REPORT --json"],
    "rehearse": "runs PyTorch: tests/rehearsal/plan_runner_test.py rehearses plans of each runtime",
    "capture": "runs a script, before there is a runtime",
    "measure": "runs a script as it is",
    "calibrate": "measures a machine, at the shapes of a model",
    "clock": "times one collective or kernel",
    "replay": "replays what was recorded",
    "schema": "prints a file that is shipped",
    "models": "lists files that are shipped",
    "gpus": "lists files that are shipped",
    "check": "reads configurations of other programs",
    "doctor": "looks at the machine",
    "completions": "prints the options",
}


def steps_of_csv(text):
    rows = list(csv.DictReader(io.StringIO(text.decode(), newline="")))
    assert {row["phase"] for row in rows} == {"initialization", "first_step", "steady_step"}
    named = [row["instruction"] for row in rows if row["phase"] != "initialization" and row["change_bytes"] != "0"]
    assert named and all(re.fullmatch(r"[A-Z][A-Za-z]+( [\x20-\x7e]+)?", name) for name in named), "names of instructions"


def events_of_snapshot(text):
    events = pickle.loads(text)["device_traces"][0]
    names = [event["frames"][0]["name"] for event in events]
    assert len(events) > 10 and all(name.isascii() and name.isprintable() for name in names), "names of instructions"


def read_python(text):
    compile(text, "export", "exec")


# How each is read by those that it is for; None: text in a language that Python has no reader of. The last word says whether every
# plan has it.
EXPORTS = {
    "fsdp2": (read_python, False),
    "fsdp1": (read_python, False),
    "ddp": (read_python, False),
    "accelerate": (None, False),
    "trainer": (read_python, False),
    "torchtitan": (None, False),
    "deepspeed": (json.loads, False),
    "chrome": (json.loads, True),
    "memviz": (events_of_snapshot, True),
    "csv": (steps_of_csv, True),
}


def run(words, folder):
    environment = {**os.environ, "ASAN_OPTIONS": f"exitcode={SANITIZER}:detect_leaks=0",
                   "UBSAN_OPTIONS": f"halt_on_error=1:exitcode={SANITIZER}:print_stacktrace=1", "TMPDIR": str(folder)}
    return subprocess.run([BINARY, *words], capture_output=True, cwd=ROOT, env=environment, timeout=LIMIT_SECONDS, check=False)


def completed(option):
    """The words that the program itself offers after an option; of "": its commands."""
    text = run(["completions", "bash"], "/tmp").stdout.decode()
    pattern = rf"^    {re.escape(option)}\) COMPREPLY=\(\$\(compgen -W \"([^\"]*)\"" if option else r'COMPREPLY=\(\$\(compgen -W "(plan [^"]*)"'
    return re.search(pattern, text, re.MULTILINE).group(1).split()


def shortened(path):
    """A spec with two of each kind of blocks: "layers.{0..47}" becomes "layers.{0..1}"."""
    text = (ROOT / path).read_text()
    return re.sub(r"\{(\d+)\.\.(\d+)\}", lambda m: f"{{{m[1]}..{min(int(m[2]), int(m[1]) + 1)}}}", text)


class EveryCommand(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.base = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.base.name)
        cls.runtimes, cls.exports, cls.commands = completed("--runtime"), completed("--to"), completed("")
        cls.lock = threading.Lock()
        cls.faults, cls.asked = [], 0

    @classmethod
    def tearDownClass(cls):
        cls.base.cleanup()

    def test_the_tables_have_every_command_and_export(self):
        self.assertEqual(sorted(COMMANDS), sorted(self.commands), "COMMANDS has what each command is asked.")
        self.assertEqual(sorted(EXPORTS), sorted(self.exports), "EXPORTS has how each export is read.")
        self.assertGreaterEqual(len(self.runtimes), 7)

    def fault(self, words, done, what):
        with self.lock:
            self.faults.append(f"{' '.join(map(str, words))}\n  {what}: exit code {done.returncode}\n  "
                               + done.stderr.decode(errors="replace")[-1500:])

    def ask(self, words, may_refuse=True):
        done = run(words, self.folder)
        with self.lock:
            type(self).asked += 1
        errors = done.stderr.decode(errors="replace")
        codes = {ANSWERED, DOES_NOT_FIT, REFUSED, OTHER_FAILED if words[0] == "run" else ANSWERED}
        if done.returncode not in codes or "runtime error:" in errors or "Sanitizer" in errors:
            self.fault(words, done, "neither an answer nor a refusal")
        elif done.returncode == REFUSED and not (may_refuse and errors.startswith("error: ") and not done.stdout):
            self.fault(words, done, "refused")
        elif done.returncode in (ANSWERED, DOES_NOT_FIT) and not done.stdout and "-o" not in words:
            self.fault(words, done, "answers nothing")
        return done

    def walk(self, family, runtime):
        model, sizes = FAMILIES[family]
        model_words = [self.folder / pathlib.Path(model).name, *sizes.split()]
        given = {"MODEL": model_words, "MACHINES": MACHINES.split()}
        stem = f"{family.replace(' ', '_')}-{runtime}"
        plan, report = self.folder / f"{stem}.json", self.folder / f"{stem}.report.json"
        refusable = (family, runtime) in MAY_REFUSE
        made = self.ask(["plan", *model_words, *MACHINES.split(), "--runtime", runtime, "-o", plan])
        if b"error: --precision" in made.stderr:  # DDP has no mixed precision.
            model_words += ["--precision", "bf16"]
            made = self.ask(["plan", *model_words, *MACHINES.split(), "--runtime", runtime, "-o", plan])
        if made.returncode == REFUSED or not plan.exists():
            if not refusable:
                self.fault([stem], made, "no plan")
            return
        done = self.ask(["simulate", plan, "--json"], False)
        report.write_bytes(done.stdout)
        for command in COMMANDS.values():
            for question in command if isinstance(command, list) else []:
                for export in EXPORTS if "EXPORT" in question else [None]:
                    words = []
                    for word in question.split():
                        names = {"PLAN": plan, "REPORT": report, "RUNTIME": runtime, "EXPORT": export}
                        words += given[word] if word in given else [names.get(word, word)]
                    self.question(words, export)

    def question(self, words, export):
        read, always = EXPORTS[export] if export else (None, words[0] in ("plan", "simulate", "explain", "compare", "fit"))
        done = self.ask(words, not always)
        if done.returncode != ANSWERED or read is None:
            return
        try:
            read(done.stdout)
        except Exception as error:  # noqa: BLE001: whatever a reader says is a fault of what was written
            self.fault(words, done, f"cannot be read: {error}")

    def test_every_command_answers_of_every_runtime_and_model(self):
        for model, _ in FAMILIES.values():
            (self.folder / pathlib.Path(model).name).write_text(shortened(model))
        with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
            for done in [pool.submit(self.walk, family, runtime) for family in FAMILIES for runtime in self.runtimes]:
                done.result()
        print(f"{self.asked} questions", file=sys.stderr)
        self.assertFalse(self.faults, f"{len(self.faults)} faults:\n" + "\n".join(self.faults[:20]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
