"""Runs fsdp-plan calibrate from end to end on a small model: a run that ends early and continues, an interrupted run, the
resulting file, predictions that use it, refusals. Nothing here depends on durations.

    calibrate_test.py FSDP_EXEC FSDP_PLAN
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

PLAN = str(pathlib.Path(sys.argv[2]).resolve())
os.environ["FSDP_PLAN_EXECUTOR"] = str(pathlib.Path(sys.argv[1]).resolve())


def run(folder: pathlib.Path, *words: str) -> tuple[int, str, str]:
    done = subprocess.run([PLAN, *words], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def check(is_good: bool, what: str) -> None:
    if not is_good:
        raise SystemExit(f"FAILED: {what}")


def calibrate(folder: pathlib.Path, seconds: str, *more: str) -> tuple[int, str, str]:
    return run(folder, "calibrate", "mlp", "--batch", "4", "--gpus", "2", "--seconds", seconds, "--rounds", "1", "-o", "c.json",
               "--force", *more)


def refusals(folder: pathlib.Path) -> None:
    for words, wanted in ((["calibrate", "mlp"], "Write -o cluster.json."),
                          (["calibrate", "mpl", "-o", "x.json"], "mlp"),
                          (["calibrate", "mlp", "-o", "x.json", "--seconds", "0"], "--seconds"),
                          (["calibrate", "mlp", "-o", "x.json", "--rounds", "0"], "--rounds"),
                          (["calibrate", "mlp", "-o", "x.json", "--gpus", "5000"], "too many for one machine"),
                          (["calibrate", "mlp", "-o", "x.json", "--device", "cuda"], "Write --gpu NAME"),
                          (["calibrate", "mlp", "-o", "x.json", "--device", "tpu"], "Write cpu or cuda."),
                          (["calibrate", "mlp", "-o", "x.json", "--device", "cpu", "--gpu", "T4"], "measures the CPU")):
        code, _, err = run(folder, *words)
        check(code == 2 and wanted in err, f"{words} ends with {code}: {err}")
    check(not (folder / "x.json").exists(), "A refused calibration wrote a file.")


def interrupt(folder: pathlib.Path) -> None:
    """Interrupts a calibration after its first run."""
    with subprocess.Popen([PLAN, "calibrate", "mlp", "--batch", "4", "--gpus", "2", "--seconds", "600", "-o", "c.json"],
                          cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (folder / "c.json.partial").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        code = process.wait()
    check(code == 130, f"An interrupted calibration ends with {code}.")
    check((folder / "c.json.partial").exists() and not (folder / "c.json").exists(), "What was done is not kept.")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        refusals(folder)
        interrupt(folder)
        before = json.loads((folder / "c.json.partial").read_text())["done"]
        code, _, err = run(folder, "calibrate", "mlp", "--batch", "8", "--gpus", "2", "-o", "c.json")
        check(code != 0 and "This unfinished calibration is for" in err, f"Another calibration goes on with it: {err}")

        code, out, err = calibrate(folder, "0.001")
        check(code == 0 and "PART" in out, f"No time left, and no part: {out}{err}")
        part = json.loads((folder / "c.json.partial").read_text())["done"]
        check(part[:len(before)] == before and len(part) <= len(before) + 1, "It measured without time.")
        before = part

        code, out, err = calibrate(folder, "600")
        check(code == 0 and "CALIBRATED" in out and f"{len(before)} of them from before" in out, f"It does not go on: {out}{err}")
        check(not (folder / "c.json.partial").exists(), "The partial file is left over.")
        machine = json.loads((folder / "c.json").read_text())["machine"]
        check([each["ranks"] for each in machine] == [1, 2], "There is a table for each number of ranks.")
        for tables in machine:
            works = [row["work"] for row in tables["ops"]]
            check(any(work.startswith("linear float32") for work in works), f"No Linear in {works}.")
            check(all("backward_microseconds" in row for row in tables["ops"] if row["work"].startswith("linear")),
                  "A Linear without a backward.")
        works = {row["work"] for row in machine[1]["collectives"]}
        check({"all_gather", "reduce_scatter", "all_reduce", "all_gather in steps", "reduce_scatter in steps"} <= works,
              f"Collectives lack: {works}.")

        run(folder, "mlp", "--batch", "6", "--gpus", "2", "--mem", "4G", "-o", "p.json")
        code, out, err = run(folder, "execute", "p.json", "--steps", "3", "--cluster", "c.json")
        check(code == 0 and "measured on this machine by fsdp-plan calibrate" in out.replace("\n          ", " "), f"{out}{err}")
        check("roofline" not in out, f"An op of the same model was not measured: {out}")
        code, _, err = run(folder, "mlp", "--batch", "6", "--gpus", "3", "--mem", "4G", "-o", "three.json")
        code, _, err = run(folder, "execute", "three.json", "--cluster", "c.json")
        check(code == 2 and "has no times of 3 ranks" in err, err)


if __name__ == "__main__":
    main()
