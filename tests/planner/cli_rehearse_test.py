#!/usr/bin/env python3
"""fsdp-plan rehearse and compare, run as their users run them, with a script that writes its record by itself.

usage: cli_rehearse_test.py PROJECT_ROOT BINARY

Screens are compared with tests/golden/cli/. After a change that is meant, run the test with FSDP_UPDATE_GOLDEN=1 and read
the diff.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

try:
    import jsonschema
except ImportError:
    jsonschema = None

GIB = 1 << 30


class Tester:
    def __init__(self, root, binary, folder):
        self.root, self.binary, self.folder = root, binary, folder
        self.golden = root / "tests" / "golden" / "cli"
        self.problems = []
        self.temporary = folder / "temporary"
        self.notes = folder / "notes"
        self.python = folder / "python"
        self.temporary.mkdir()
        self.notes.mkdir()
        (self.python / "hook").mkdir(parents=True)
        (self.python / "hook" / "sitecustomize.py").write_text("")
        (folder / "stub.so").write_text("")
        script = folder / "train.py"
        shutil.copy(root / "tests" / "planner" / "fake_training.py", script)
        script.chmod(0o755)

    def environment(self, **more):
        return {"PATH": "/usr/bin:/bin", "COLUMNS": "80", "FSDP_PLAN_MODEL_SPECS": str(self.root / "model_specs"),
                "FSDP_PLAN_STUB_GPU": str(self.folder / "stub.so"), "FSDP_PLAN_PYTHON_PATH": str(self.python),
                "TMPDIR": str(self.temporary), "FAKE_NOTES": str(self.notes), **more}

    def run(self, *words, **environment):
        done = subprocess.run([self.binary, *words], cwd=self.folder, env=self.environment(**environment),
                              capture_output=True, timeout=120, check=False)
        self.check(not list(self.temporary.iterdir()), f"{words} leaves {list(self.temporary.iterdir())}.")
        return done.returncode, done.stdout.decode(), done.stderr.decode()

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
        for _ in range(100):
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


FAILURES = {  # mode: what the message says
    "raises": "rank 0: The script raised ValueError: shapes do not match (train.py:7).",
    "network": "rank 0: The script needs the network: requests.exceptions.ConnectionError: HTTPSConnectionPool",
    "other_torch": "wants another torch than 2.11.0+cu130",
    "no_torch": "rank 0: This Python has no torch. Run ./scripts/bootstrap --with rehearsal",
    "cpu_torch": "rank 0: Its torch 2.11.0+cpu was built without CUDA",
    "imports_nothing": "rank 0: The script imports no torch, so there is nothing to rehearse.",
    "crashes": "rank 0: It crashed: it was ended by signal 11 (Segmentation fault).",
    "killed": "rank 0: It was killed, probably because the machine ran out of its own memory.",
    "exits": "rank 0: It ended with exit code 64, and no Python in it said what it did.",
    "exits_with_record": "rank 0: The script ended itself with exit code 5.",
    "silent": "rank 0: It ended well, but no Python in it said what it did.",
    "cut_record": "rank 0: What it wrote about itself cannot be read.",
    "wrong_record": "/end/why: Unknown end \"tired\".",
}


def test_exit_codes(tester):
    for mode, expected in {"fits": 0, "oom": 1, **dict.fromkeys(FAILURES, 3)}.items():
        code, out, err = tester.rehearse(mode)
        tester.check(code == expected, f"{mode} ends with {code}, not with {expected}: {err}")
        tester.check((out == "") == (expected == 3), f"{mode} prints the wrong things: {out}")


def test_failures_are_explained(tester):
    for mode, sentence in FAILURES.items():
        _, _, err = tester.rehearse(mode)
        tester.check(sentence in err, f"{mode} is explained otherwise: {err}")
    _, _, err = tester.rehearse("raises")
    tester.check(err.count("Traceback (most recent call last)") == 1 and err.index("main()") < err.index("error: "),
                 f"The script's traceback is not kept once, above the error: {err}")
    _, _, err = tester.rehearse("raises", "--verbose")
    tester.check(err.count("Traceback (most recent call last)") == 1, f"--verbose shows a traceback twice: {err}")
    _, _, err = tester.rehearse("exits")
    tester.check("usage: train.py\n" in err, f"The last lines of a script are not kept: {err}")


def test_screens(tester):
    for name, words in {"fits": ["fits", "--gpu", "H100", "--gpus", "4"], "oom": ["oom", "--gpu", "T4"],
                        "timing": ["timing", "--mem", "16G"]}.items():
        for width in ("60", "80", "120"):
            code, out, err = tester.rehearse(words[0], *words[1:], COLUMNS=width)
            tester.compare(f"rehearse_{name}_{width}.txt", f"{out}{err}exit code {code}\n")
    code, out, _ = tester.run("rehearse", "--help")
    tester.compare("rehearse_help.txt", out)
    tester.check(code == 0 and max(map(len, out.splitlines())) <= 80, "The help is wider than 80 columns.")


BAD_COMMANDS = [
    ["rehearse"], ["rehearse", "--"], ["rehearse", "plan.json", "--", "./train.py"], ["rehearse", "torchrun", "train.py"],
    ["rehearse", "--", "torchrn", "train.py"], ["rehearse", "--", "stub.so"], ["rehearse", "--", "./stub.so"],
    ["rehearse", "--gpu", "H1000", "--steps", "-1", "--timeout", "0s", "--record-stream", "never", "--routing", "x",
     "--rank", "1,b", "--nccl-bytes", "3", "--tolerance", "x", "--against", "missing.json", "--", "./train.py", "fits"],
    ["rehearse", "--gpus", "4", "--rank", "4", "--", "./train.py", "fits"],
    ["rehearse", "--context-bytes", "80G", "--mem", "16G", "--", "./train.py", "fits"],
    ["rehearse", "--tolerance", "1%", "--", "./train.py", "fits"],
    ["rehearse", "-o", "stub.so", "--snapshot", "no/where", "--trace", "stub.so", "--", "./train.py", "fits"],
    ["rehearse", "--batch", "3", "--", "./train.py", "fits"],
    ["rehearse", "missing.json"], ["compare", "a.json"], ["compare", "missing.json", "stub.so", "--tolerance", "-1"],
    ["qwen3_tts", "--steps", "3"],
]


def test_mistakes(tester):
    transcript = ""
    for words in BAD_COMMANDS:
        code, out, err = tester.run(*words)
        transcript += f"$ fsdp-plan {' '.join(words)}\n{err}\n"
        tester.check(code == 2 and out == "" and err != "", f"{words} ends with {code}: {out}{err}")
    tester.compare("rehearse_mistakes.txt", transcript)
    code, _, err = tester.rehearse("fits", FSDP_PLAN_STUB_GPU="/no/stub.so")
    tester.check(code == 2 and "./scripts/bootstrap --with rehearsal" in err, f"A missing stub: {err}")
    code, _, err = tester.rehearse("fits", FSDP_PLAN_PYTHON_PATH="/no/python")
    tester.check(code == 2 and "FSDP_PLAN_PYTHON_PATH" in err, f"Missing Python files: {err}")


def test_timeout(tester):
    begin = time.monotonic()
    code, _, err = tester.rehearse("deaf", "--timeout", "500ms")
    tester.check(code == 3 and "rank 0: It did not end within 500 ms" in err, f"A script that hangs: {code} {err}")
    tester.check(time.monotonic() - begin < 30, "A script that hangs is waited for too long.")
    tester.check_ended("deaf")


def test_nothing_is_left(tester):
    code, _, err = tester.rehearse("daemon")
    tester.check(code == 0, f"A script that starts a daemon: {err}")
    tester.check_ended("deaf")


def start(tester, mode, *options):
    """A rehearsal in the background, once its script runs."""
    words = [tester.binary, "rehearse", *options, "--", "./train.py", mode]
    process = subprocess.Popen(words, cwd=tester.folder, env=tester.environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    note = tester.notes / mode
    for _ in range(400):
        if note.exists() and note.read_text():
            return process
        time.sleep(0.02)
    tester.problems.append(f"{mode} does not start.")
    return process


def test_interrupt(tester):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for mode in ("waits", "deaf"):
            process = start(tester, mode)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            tester.check(process.returncode == 130, f"{mode}, {number!r}: ends with {process.returncode}.")
            tester.check(out == b"" and b"Interrupted." in err, f"{mode}, {number!r}: {err.decode()}")
            tester.check_ended(mode)
            tester.check(not list(tester.temporary.iterdir()), "An interrupted rehearsal leaves files.")
    tester.check((tester.notes / "interrupted").exists(), "Ctrl-C does not reach the script.")


def test_killed(tester):
    """Who kills the command by SIGKILL kills the script, too."""
    process = start(tester, "waits")
    process.kill()
    process.communicate(timeout=60)
    tester.check_ended("waits")
    for path in tester.temporary.iterdir():
        shutil.rmtree(path)


def shown_environment(tester, rank=0):
    return json.loads((tester.notes / f"environment-{rank}").read_text())


def test_environment(tester):
    """The stub and the hook are told which card it is and who is rehearsed; nothing of an outer job shines through."""
    outer = {"CUDA_VISIBLE_DEVICES": "3", "RANK": "7", "WORLD_SIZE": "8", "STUB_GPU_ADDRESSES": "down",
             "FSDP_REHEARSAL_OWNER": "1", "PYTHONPATH": "/mine"}
    tester.rehearse("environment", "--gpu", "T4", "--gpus", "4", "--nodes", "2", "--rank", "5", "--steps", "2", **outer)
    shown = shown_environment(tester, 5)
    for name, value in {"STUB_GPU_NAME": "Tesla T4", "STUB_GPU_COMPUTE_CAPABILITY": "75", "STUB_GPU_SMS": "40",
                        "STUB_GPU_THREADS_PER_SM": "1024", "STUB_GPU_COUNT": "4", "STUB_GPU_EVENTS": "done",
                        "FSDP_REHEARSAL": "1", "FSDP_REHEARSAL_RANK": "5", "FSDP_REHEARSAL_WORLD_SIZE": "8",
                        "FSDP_REHEARSAL_LOCAL_WORLD_SIZE": "4", "FSDP_REHEARSAL_STEPS": "2",
                        "FSDP_REHEARSAL_ROUTING": "balanced", "PYTHONPATH": f"{tester.python}/hook:/mine"}.items():
        tester.check(shown.get(name) == value, f"{name} is {shown.get(name)!r}, not {value!r}.")
    for name in ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "STUB_GPU_ADDRESSES", "FSDP_REHEARSAL_OWNER"):
        tester.check(name not in shown, f"{name} shines through.")
    nccl = shown["STUB_GPU_NCCL_BYTES"].split(",")
    sizes = [int(entry.split(":")[1]) for entry in nccl]
    tester.check([entry.split(":")[0] for entry in nccl] == ["1", "2", "4", "8", "*"] and sizes[0] == 0 < sizes[1]
                 and sizes[3] == sizes[4], f"NCCL's bytes: {nccl}")
    tester.rehearse("environment", "--context-bytes", "1G", "--nccl-bytes", "2G", "--cudnn-workspace", "64M",
                    "--record-stream", "hold", "--routing", "none")
    shown = shown_environment(tester)
    tester.check((shown["STUB_GPU_CONTEXT_BYTES"], shown["STUB_GPU_NCCL_BYTES"], shown["STUB_GPU_EVENTS"],
                  shown["STUB_GPU_CUDNN_WORKSPACE_BYTES"], shown["FSDP_REHEARSAL_ROUTING"])
                 == (str(GIB), f"1:{2 * GIB},*:{2 * GIB}", "hold", str(64 << 20), "none"), f"Options: {shown}")
    tester.check("FSDP_REHEARSAL_WORLD_SIZE" not in shown, "The number of ranks is made up.")


def test_report(tester):
    code, out, err = tester.rehearse("fits", "--gpus", "4", "--json", "-o", "report.json")
    tester.check(code == 0, err)
    report = json.loads(out)
    tester.check(json.loads((tester.folder / "report.json").read_text()) == report, "-o writes another report.")
    again = tester.rehearse("fits", "--gpus", "4", "--json")[1]
    tester.check(again == out, "Two runs give two reports.")
    memory = report["memory"]
    tester.check(sum(term["bytes"] for term in memory["device_terms"]) == memory["device_peak_bytes"],
                 "The device terms do not add up to the device peak.")
    tester.check(report["kind"] == "measured" and report["runtime"] == "pytorch-fsdp2" and "plan" not in report
                 and "time" not in report and report["cluster"]["gpus_per_node"] == 4, "The report says wrong things.")
    if jsonschema is None:
        print("left out: install python3-jsonschema to compare output with schemas")
        return
    schema = json.loads(tester.run("schema", "report")[1])
    store = {"plan.schema.json": json.loads(tester.run("schema", "plan")[1])}
    resolver = jsonschema.RefResolver("report.schema.json", schema, store=store)
    reports = [report] + [json.loads(tester.rehearse(mode, "--json")[1]) for mode in ("oom", "timing")]
    for each in reports:
        for error in list(jsonschema.Draft7Validator(schema, resolver=resolver).iter_errors(each))[:3]:
            tester.problems.append(f"/{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}")


def test_ranks(tester):
    code, out, err = tester.rehearse("uneven", "--gpus", "4", "--rank", "all", "--json")
    report = json.loads(out)
    tester.check(code == 0 and [r["rank"] for r in report["rehearsal"]["ranks"]] == [0, 1, 2, 3], f"--rank all: {err}")
    tester.check(report["rehearsal"]["rank"] == 3 and report["memory"]["reserved_peak_bytes"] == 13 * GIB,
                 "The report is not that of the worst rank.")
    for words, ranks in {("--gpus", "4", "--rank", "2,0"): [0, 2],
                         ("--gpus", "4", "--nodes", "4", "--rank", "worst"): [0, 1, 4, 8, 15]}.items():
        report = json.loads(tester.rehearse("uneven", *words, "--json", FAKE_WORLD="16")[1])
        tester.check([r["rank"] for r in report["rehearsal"]["ranks"]] == ranks, f"{words}: {report['rehearsal']['ranks']}")


def test_ranks_that_only_the_launcher_knows(tester):
    """accelerate may read its number of processes from a file of its own: the first rank says how many there are."""
    (tester.folder / "accelerate").symlink_to(tester.folder / "train.py")
    _, out, err = tester.run("rehearse", "--rank", "all", "--json", "--", "./accelerate", "uneven", FAKE_WORLD="3")
    report = json.loads(out or "{}")
    tester.check(out != "" and [r["rank"] for r in report["rehearsal"]["ranks"]] == [0, 1, 2], f"Unknown world: {err}")


def test_timing(tester):
    """Where memory depends on timing both bounds are run, and the worse one decides."""
    report = json.loads(tester.rehearse("timing", "--json")[1])
    rank = report["rehearsal"]["ranks"][0]
    tester.check(rank["reserved_peak"] == {"low_bytes": 10 * GIB, "high_bytes": 12 * GIB}, f"The range is {rank}.")
    tester.check(report["memory"]["reserved_peak_bytes"] == 12 * GIB, "The report is not that of the worse bound.")
    rank = json.loads(tester.rehearse("timing", "--json", "--record-stream", "done")[1])["rehearsal"]["ranks"][0]
    tester.check(rank["reserved_peak"]["high_bytes"] == 10 * GIB, "--record-stream done runs something else.")
    code, out, _ = tester.rehearse("timing_decides")
    tester.check(code == 1 and "depends on timing" in out, f"Bounds that disagree: {code} {out}")


def test_files(tester):
    code, _, err = tester.rehearse("files", "--gpus", "2", "--rank", "all", "--snapshot", "out.pickle", "--trace", "t.txt")
    texts = [(tester.folder / name).read_text() for name in ("out.pickle", "t.txt")]
    tester.check(code == 0 and texts == ["SNAPSHOT of rank 1", "TRACE of rank 1"], f"Files of the worst rank: {texts} {err}")
    code, _, err = tester.rehearse("files", "--snapshot", "out.pickle")
    tester.check(code == 2 and "out.pickle: The file exists." in err, f"A file is overwritten: {err}")


def test_output_of_the_script(tester):
    _, out, err = tester.rehearse("loud")
    tester.check("xxx" not in out + err, "The script's output is shown.")
    _, out, err = tester.rehearse("loud", "--verbose")
    tester.check(err.count("x" * 99 + "\n") == 20000, "--verbose does not show all of the script's output.")


def test_comparison(tester):
    tester.rehearse("fits", "--gpus", "4", "-o", "fits.json")
    tester.rehearse("uneven", "--gpus", "4", "--rank", "2", "-o", "uneven.json")
    code, out, _ = tester.run("compare", "fits.json", "fits.json", "--tolerance", "0%")
    tester.check(code == 0 and out.startswith("WITHIN"), f"A report differs from itself: {out}")
    code, out, _ = tester.run("compare", "fits.json", "uneven.json", "--tolerance", "2%")
    tester.check(code == 1 and out.startswith("OUTSIDE"), f"Reports that differ: {code} {out}")
    comparison = json.loads(tester.run("compare", "fits.json", "uneven.json", "--json")[1])["comparison"]
    worst = comparison["terms"][0]
    tester.check(worst["relative"] == worst["difference"] / worst["measured"] < -0.16, f"The worst term is {worst}.")
    code, out, _ = tester.rehearse("uneven", "--gpus", "4", "--rank", "2", "--against", "fits.json", "--tolerance", "2%")
    tester.check(code == 1 and "compare" in out and "-16.7 %" in out, f"--against: {code} {out}")
    report = json.loads(tester.rehearse("fits", "--gpus", "4", "--against", "fits.json", "--json")[1])
    tester.check(all(t["difference"] == 0 for t in report["comparison"]["terms"]), "--against itself is not exact.")
    tester.run("qwen3_tts", "--gpus", "4", "--mem", "16G", "-o", "plan.json")
    code, out, err = tester.rehearse("fits", "--gpus", "4", "--mem", "16G", "--against", "plan.json", "--json")
    names = [t["name"] for t in json.loads(out or "{}").get("comparison", {}).get("terms", [])]
    tester.check(code == 0 and "steady step: reserved peak" in names, f"--against a plan: {code} {err}")


def test_plan(tester):
    """A plan is given to the runner with its model, and compared with its prediction."""
    tester.run("qwen3_0_6b", "--gpus", "4", "--gpu", "T4", "--seq", "512", "-o", "small.json", "--force")

    def rehearse(mode, *words):
        python = tester.folder / "python_with_torch"
        # The first call only asks for torch.
        python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 0\nexec ./train.py {mode} "$3"\n')
        python.chmod(0o755)
        return tester.run("rehearse", "small.json", "--python", "./python_with_torch", *words)

    code, out, err = rehearse("plan", "--json", "--steps", "4")
    tester.check(code == 0, f"A plan cannot be rehearsed: {err}")
    report = json.loads(out)
    job = json.loads((tester.notes / "job").read_text())
    plan = json.loads((tester.folder / "small.json").read_text())
    tester.check(job["steps"] == 4 and job["plan"] == plan and job["dimensions"]["seq"] == 512 and job["model"]["modules"],
                 "The runner gets another job.")
    tester.check(report["plan"] == plan and report["model"]["name"] == plan["model"]["name"], "The report has no plan.")
    terms = {term["name"]: term for term in report["comparison"]["terms"]}
    predicted = json.loads(tester.run("simulate", "small.json", "--json")[1])["memory"]["reserved_peak_bytes"]
    tester.check(terms["reserved peak"]["predicted"] == predicted and terms["reserved peak"]["measured"] == 10 * GIB,
                 f"A plan is compared with something else: {terms['reserved peak']}")
    tester.check("plan.json" not in out and str(tester.temporary) not in out, "The report names a temporary file.")
    code, _, err = rehearse("plan", "--tolerance", "1%")
    tester.check(code == 1, f"A plan that is predicted wrongly ends with {code}. {err}")
    code, out, err = rehearse("refused_plan")
    tester.check(code == 2 and out == "" and "an op that the runner does not know" in err, f"A refused plan: {code} {err}")
    code, _, err = tester.run("rehearse", "small.json", "--python", "/bin/false")
    tester.check(code == 2 and "--python: /bin/false has no torch." in err, f"A Python without torch: {code} {err}")


def main(root, binary):
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(root, binary, pathlib.Path(folder).resolve())
        for name, test in list(globals().items()):
            if not name.startswith("test_"):
                continue
            known = len(tester.problems)
            test(tester)
            print(f"{'ok  ' if len(tester.problems) == known else 'FAIL'} {name}", flush=True)
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
