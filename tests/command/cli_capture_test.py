#!/usr/bin/env python3
"""fsdp-plan capture, run as its users run it, with a script that writes the captured model by itself. What PyTorch has to be
there for is in tests/rehearsal/capture_test.py.

usage: cli_capture_test.py PROJECT_ROOT BINARY
"""

import pathlib
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
from cli_rehearse_test import Tester  # noqa: E402

COMMAND = "Write it after --: fsdp-plan capture -o my.model.json -- python train.py."
SCRIPT = ["--", "./train.py", "capture", "small.json"]
MISTAKES = [  # words, and all that is said
    ([], ["--output: A capture is a file. Write -o my.model.json.", f"There is no command to capture. {COMMAND}"]),
    (["-o", "x.json", "--"], [f"There is no command to capture. {COMMAND}"]),
    (["-o", "-", *SCRIPT], ["--output: A capture is a file. Write -o my.model.json."]),
    (["-o", "small.json", *SCRIPT], ["small.json: The file exists. Add --force to overwrite it, or give another name."]),
    (["-o", "no/x.json", *SCRIPT], ["no/x.json: There is no folder \"no\". Create it first."]),
    (["small.json", "-o", "x.json"], ["Unexpected \"small.json\": a script is captured by the command that starts it. "
                                      "Write fsdp-plan capture -o my.model.json -- python train.py."]),
    (["-o", "x.json", "--steps", "3", *SCRIPT], ["--steps: The command capture does not take this option."]),
    (["-o", "x.json", "--format", "json", *SCRIPT],
     ["--format: A capture answers with the file that it writes. Write table, md or csv."]),
    (["-o", "x.json", "--batches", "1,2", *SCRIPT],
     ["--batches: It is not known which option sets the script's batch. Add --batch-option '--batch-size {}', with the script's own option."]),
    (["-o", "x.json", "--batch-option", "--bs {}", *SCRIPT],
     ["--batch-option: There are no batches for it. Add --batches 1,2,4,8."]),
    (["--gpu", "H1000", "--batches", "0,x,2", "--batch-option", "--bs", "--", "./trian.py"],
     ["--output: A capture is a file. Write -o my.model.json.",
      "--batches: \"0\" is not a batch. Write numbers with commas: 1,2,4,8.",
      "--batches: \"x\" is not a batch. Write numbers with commas: 1,2,4,8.",
      "--batch-option: \"--bs\" has no {} where the number goes. Write the script's own option: --batch-option '--batch-size {}'.",
      "./trian.py: There is no such program. Write the command as you would type it.",
      "--gpu: Unknown GPU \"H1000\". Did you mean \"H100\"?"]),
]


def test_mistakes_are_all_reported(tester):
    """All of them at once, before anything runs."""
    for words, said in MISTAKES:
        code, out, err = tester.run("capture", *words)
        lines = err.splitlines()
        good = len(lines) == len(said) and all(line.startswith(f"error: {each}") for line, each in zip(lines, said))
        tester.check(code == 2 and out == "" and good, f"capture {words} ends with {code}: {out}{err}")
        tester.check(not (tester.folder / "x.json").exists(), f"capture {words} wrote a file.")


def capture(tester, *words, script=("./train.py", "capture", "small.json")):
    (tester.folder / "x.json").unlink(missing_ok=True)
    code, out, err = tester.run("capture", "-o", "x.json", *words, "--", *script)
    tester.check((code == 0) == (tester.folder / "x.json").exists(), f"{words} {script} ends with {code}: {err}")
    return code, out, err


def test_recording_is_written(tester):
    code, out, err = capture(tester, "--no-check")
    tester.check(code == 0 and out.startswith("CAPTURED  x.json") and "batch 2, seq 64; batch 1, seq 64" in out, f"{code} {out}{err}")
    given = (tester.folder / "small.json").read_text(encoding="utf-8")
    tester.check((tester.folder / "x.json").read_text(encoding="utf-8") == given, "It is not what was recorded.")
    code, _, err = tester.run("capture", "-o", "x.json", "--no-check", "--force", *SCRIPT)
    tester.check(code == 0, f"--force: {code} {err}")


def test_each_batch_runs(tester):
    """The golden file has the batches 1, 2 and 4, whatever the script is told."""
    code, out, err = capture(tester, "--no-check", "--batch-option", "--bs {}", "--batches", "4,1,4")
    tester.check(code == 0, f"{code} {out}{err}")
    code, out, err = capture(tester, "--no-check", "--batch-option", "--seed {}", "--batches", "2,3,8")
    tester.check(code == 2 and out == "" and err.splitlines() == [
        f"error: --batch-option: With --seed {seed} the script trained micro-batches of other sizes: 1, 2, 4. "
        "Give the option that sets how many samples one GPU takes at once." for seed in (3, 8)], f"{code} {out}{err}")


def test_recorder_failure_is_reported(tester):
    code, out, err = capture(tester, script=("./train.py", "capture", "Two models."))
    tester.check((code, out, err) == (3, "", "error: Two models.\n"), f"{code} {out}{err}")
    code, out, err = capture(tester, "--batch-option", "--bs {}", "--batches", "8", script=("./train.py", "capture", "Two models."))
    tester.check((code, out, err) == (3, "", "error: batch 8: Two models.\n"), f"{code} {out}{err}")
    code, out, err = capture(tester, script=("./train.py", "fits"))
    tester.check((code, out, err) == (3, "", "error: The script trained no model that could be captured.\n"), f"{code} {out}{err}")


def test_script_failure_is_reported(tester):
    code, out, err = capture(tester, script=("./train.py", "raises"))
    tester.check(code == 3 and out == "" and "rank 0: The script raised ValueError: shapes do not match" in err, f"{code} {out}{err}")


def test_difference_from_the_script_is_reported(tester):
    """Under a plan the script has the 10 GiB of its made-up record, and the model is a small one."""
    code, out, err = capture(tester)
    text = " ".join(out.split())
    tester.check(code == 1 and out.startswith("NOT CAPTURED") and "x.json was not written: a plan of it predicts other "
                 "collectives than the script makes; --no-check writes it all the same." in text, f"{code} {out}{err}")
    code, out, err = capture(tester, "--quiet")
    tester.check(code == 1 and len(out.splitlines()) <= 3, f"--quiet: {code} {out}{err}")


def main(root, binary):
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder).resolve())
        shutil.copy(root / "tests" / "golden" / "captured" / "small_decoder.json", tester.folder / "small.json")
        for name, test in list(globals().items()):
            if not name.startswith("test_"):
                continue
            known = len(tester.problems)
            test(tester)
            print(f"{'ok  ' if len(tester.problems) == known else 'FAIL'} {name}", flush=True)
        shutil.rmtree(tester.notes)
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
