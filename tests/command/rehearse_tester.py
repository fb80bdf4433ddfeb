"""Runs fsdp-plan rehearse with a script that writes its record by itself (fake_training.py), and compares what it says."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

GIB = 1 << 30
LIMIT_SECONDS = 900  # However busy a machine is, only what hangs takes as long.


class Tester:
    def __init__(self, root, binary, folder):
        self.root, self.binary, self.folder = root, binary, folder
        self.golden = root / "tests" / "golden" / "cli"
        self.problems = []
        self.temporary = folder / "temporary"
        # Where a script can write although it is rehearsed: among the kernels that are kept.
        self.notes = folder / "cache" / "fsdp-plan" / "notes"
        self.notes.mkdir(parents=True)
        self.python = folder / "python"
        self.temporary.mkdir()
        (self.python / "hook").mkdir(parents=True)
        (self.python / "hook" / "sitecustomize.py").write_text("")
        (folder / "stub.so").write_text("")
        script = folder / "train.py"
        shutil.copy(root / "tests" / "command" / "fake_training.py", script)
        script.chmod(0o755)

    def environment(self, **more):
        return {"PATH": "/usr/bin:/bin", "COLUMNS": "80", "FSDP_PLAN_MODEL_SPECS": str(self.root / "model_specs"),
                "FSDP_PLAN_STUB_GPU": str(self.folder / "stub.so"), "FSDP_PLAN_PYTHON_PATH": str(self.python),
                "TMPDIR": str(self.temporary), "FAKE_NOTES": str(self.notes),
                "XDG_CACHE_HOME": str(self.folder / "cache"), **more}

    def run(self, *words, may_leave=(), **environment):
        done = subprocess.run([self.binary, *words], cwd=self.folder, env=self.environment(**environment),
                              capture_output=True, timeout=LIMIT_SECONDS, check=False)
        left = [path for path in self.temporary.iterdir() if path not in may_leave]
        self.check(not left, f"{words} leaves {left}.")
        # On a busy machine a run may take more than a second, and then says what it does.
        err = re.sub(r"^rank \d+(, the first of \d+ side by side)?: .*, \d+ s\n", "", done.stderr.decode(), flags=re.MULTILINE)
        return done.returncode, done.stdout.decode(), err

    def rehearse(self, mode, *options, **environment):
        return self.run("rehearse", *options, "--", "./train.py", mode, **environment)

    def check(self, good, what):
        if not good:
            self.problems.append(what)

    def check_ended(self, name):
        """The process that noted its number under a name is gone."""
        path = self.notes / name
        if not path.is_file():
            self.problems.append(f"Nothing called {name} was ever started.")
            return
        number = path.read_text()
        path.unlink()
        state = pathlib.Path(f"/proc/{number}/stat")
        deadline = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < deadline:
            if not state.exists() or ") Z" in state.read_text():
                return
            time.sleep(0.05)
        self.problems.append(f"The process {name} is left running.")
        os.kill(int(number), signal.SIGKILL)

    def compare(self, name, text):
        # Wall time differs from run to run.
        text = re.sub(r"took [0-9.]+ m?s", "took <time>", text).replace(str(self.folder), "<folder>")
        path = self.golden / name
        if os.environ.get("FSDP_UPDATE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            self.problems.append(f"{path} differs from:\n{text}")
