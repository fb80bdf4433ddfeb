#!/usr/bin/env python3
"""Without a display the explorer says what can be done, in its own words, and ends with 2.

    no_display_test.py PROGRAM
"""

import os
import subprocess
import sys


def run(program, *words, **environment):
    clean = {key: value for key, value in os.environ.items()
             if key not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    return subprocess.run([program, *words], env=dict(clean, **environment), capture_output=True, text=True, timeout=300)


def main(program):
    done = run(program, QT_QPA_PLATFORM="xcb", DISPLAY=":9876")
    assert done.returncode == 2, (done.returncode, done.stderr)
    for wanted in ("There is no display", "-platform vnc", "--screenshot", "fsdp-plan qwen3_tts"):
        assert wanted in done.stderr, done.stderr
    assert "einstall" not in done.stderr, done.stderr
    for word in ("--help", "--version"):
        done = run(program, word)
        assert done.returncode == 0, (word, done.stderr)
        assert "fsdp-plan-gui" in done.stdout, done.stdout
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
