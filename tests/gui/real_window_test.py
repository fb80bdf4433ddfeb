#!/usr/bin/env python3
"""The explorer as a real window on an X server, with real keys and clicks.

    xvfb-run -a -s "-screen 0 1400x900x24" real_window_test.py PROGRAM

Opens a project by the dialog, clicks into a box, types another number of GPUs, saves, undoes, saves again and quits; looks
at what was saved and what the window was called meanwhile. Needs Xvfb and xdotool, which scripts/bootstrap --with gui
installs; without them it fails.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time


def until(question, seconds=900.0):
    """The first answer that is true, asked again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = question()
        if answer:
            return answer
        time.sleep(0.05)
    return None


class Screen:
    """The X server of this process."""

    def __init__(self, folder):
        self.environment = dict(os.environ, HOME=folder, XDG_CONFIG_HOME=folder + "/config",
                                XDG_DATA_HOME=folder + "/data", XDG_RUNTIME_DIR=folder, QT_QPA_PLATFORM="xcb",
                                QT_ACCESSIBILITY="0")
        self.environment.pop("QT_SCALE_FACTOR", None)

    def ask(self, *words):
        done = subprocess.run(["xdotool", *map(str, words)], env=self.environment, capture_output=True, text=True,
                              timeout=900)
        return done.stdout.strip()

    def title(self, window):
        return self.ask("getwindowname", window)

    def windows(self, name):
        return self.ask("search", "--onlyvisible", "--name", name).split()

    def keys(self, *keys):
        for key in keys:
            self.ask("key", "--clearmodifiers", key)
            time.sleep(0.05)

    def write(self, text):
        self.ask("type", "--delay", 10, text)


def journey(screen, program, project):
    app = subprocess.Popen([program, "--size", "1360x860"], env=screen.environment, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True)
    try:
        window = (until(lambda: screen.windows("fsdp-plan explorer")) or [None])[0]
        assert window, "the window did not come up"
        assert until(lambda: screen.title(window).startswith("Start")), screen.title(window)
        # Without a window manager nobody else gives the focus.
        screen.ask("windowfocus", "--sync", window)
        screen.ask("windowmove", window, 0, 0)
        screen.keys("ctrl+o")
        dialog = until(lambda: screen.windows("^Open$"))
        assert dialog, "Ctrl+O opened nothing"
        screen.ask("windowfocus", "--sync", dialog[0])
        screen.write(project)
        screen.keys("Return")
        name = pathlib.Path(project).name
        assert until(lambda: name in screen.title(window)), screen.title(window)
        screen.ask("windowfocus", "--sync", window)
        # A real click into the box "GPUs per node", found by its place in the panel.
        before = json.loads(pathlib.Path(project).read_text())["options"]["--gpus"]
        assert before == ["4"], before
        time.sleep(0.5)  # The docks come up with the first model.
        screen.ask("mousemove", "--sync", 310, 147, "click", 1)
        screen.keys("ctrl+a")
        screen.write("8")
        screen.keys("Return")
        assert until(lambda: "*" in screen.title(window)), "the change does not show in the title: " + screen.title(window)
        screen.keys("ctrl+s")
        assert until(lambda: "*" not in screen.title(window)), "Ctrl+S did not save: " + screen.title(window)
        after = json.loads(pathlib.Path(project).read_text())["options"]["--gpus"]
        assert after == ["8"], after
        screen.keys("ctrl+z")
        assert until(lambda: "*" in screen.title(window)), "Ctrl+Z did not undo"
        screen.keys("ctrl+s")
        assert until(lambda: json.loads(pathlib.Path(project).read_text())["options"]["--gpus"] == ["4"]), "undo saved"
        screen.keys("ctrl+q")
        assert until(lambda: app.poll() is not None), "Ctrl+Q did not close the window"
        assert app.returncode == 0, app.returncode
    finally:
        if app.poll() is None:
            app.kill()
        said = app.stderr.read()
        if said:
            print(said)


def main(program):
    missing = [tool for tool in ("Xvfb", "xdotool") if not shutil.which(tool)]
    if missing:
        print(f"This machine lacks {', '.join(missing)}. Run ./scripts/bootstrap --with gui.")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        project = os.path.join(folder, "work.fsdp-project.json")
        pathlib.Path(project).write_text(json.dumps({
            "kind": "fsdp-plan-project", "format_version": "1.0", "model": "mlp",
            "options": {"--gpus": ["4"], "--mem": ["16G"]}}))
        journey(Screen(folder), program, project)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
