#!/usr/bin/env python3
"""fsdp-plan rehearse and compare, run as their users run them, with a script that writes its record by itself.

usage: cli_rehearse_test.py PROJECT_ROOT BINARY

Screens are compared with tests/golden/cli/. After a change that is meant, run the test with FSDP_UPDATE_GOLDEN=1 and read
the diff.
"""

import fcntl
import html.parser
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

from rehearse_tester import GIB, LIMIT_SECONDS, Tester

try:
    import jsonschema
except ImportError:
    jsonschema = None

FAILURES = {  # mode: what the message says
    "raises": "rank 0: The script raised ValueError: shapes do not match (train.py:7).",
    "lacks_in_worker": "rank 0: This Python lacks a module of the script: ModuleNotFoundError: No module named 'pandas', in a worker "
                       "of a DataLoader",
    "checks": "train.py:5 read 0 from the device. Leave out the check.",
    "endless": "rank 0, train.py:7: A loop read the same value and no answer ends it.",
    "network": "rank 0: The script needs the network: requests.exceptions.ConnectionError: HTTPSConnectionPool",
    "other_torch": "wants another torch than 2.11.0+cu130",
    "no_torch": "rank 0: This Python has no torch. Run ./scripts/bootstrap --with rehearsal",
    "cpu_torch": "rank 0: Its torch 2.11.0+cpu was built without CUDA",
    "imports_nothing": "rank 0: The script imports no torch, so there is nothing to rehearse.",
    "crashes": "rank 0: It crashed: it was ended by signal 11 (Segmentation fault).",
    "killed": "rank 0: It was killed, probably because this machine ran out of memory.",
    "exits": "rank 0: It ended with exit code 64, and no Python in it reported what it did.",
    "exits_with_record": "rank 0: The script ended itself with exit code 1. Its last output: no data in /data.",
    "silent": "rank 0: It succeeded, but no Python in it reported what it did.",
    "cut_record": "rank 0: Its record of itself cannot be read.",
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
    code, out, _ = tester.run("rehearse", "--help-all")
    tester.compare("rehearse_help.txt", out)
    tester.check(code == 0 and max(map(len, out.splitlines())) <= 80, "The help is wider than 80 columns.")


BAD_COMMANDS = [
    ["rehearse"], ["rehearse", "--"], ["rehearse", "plan.json", "--", "./train.py"], ["rehearse", "torchrun", "train.py"],
    ["rehearse", "--", "torchrn", "train.py"], ["rehearse", "--", "stub.so"], ["rehearse", "--", "./stub.so"],
    ["rehearse", "--gpu", "H1000", "--steps", "-1", "--timeout", "0s", "--record-stream", "never", "--routing", "x",
     "--rank", "1,b", "--nccl-bytes", "3", "--tolerance", "x", "--compare-with", "missing.json", "--", "./train.py", "fits"],
    ["rehearse", "--gpus", "4", "--rank", "4", "--", "./train.py", "fits"],
    ["rehearse", "--context-bytes", "80G", "--mem", "16G", "--", "./train.py", "fits"],
    ["rehearse", "--tolerance", "1%", "--", "./train.py", "fits"],
    ["rehearse", "-o", "stub.so", "--snapshot", "no/where", "--allocator-trace", "stub.so", "--", "./train.py", "fits"],
    ["rehearse", "--batch", "3", "--", "./train.py", "fits"],
    ["rehearse", "missing.json"], ["compare", "a.json"], ["compare", "missing.json", "stub.so", "--tolerance", "-1"],
    ["qwen3_tts", "--steps", "3"],
]


def test_run_without_a_step_is_reported(tester):
    code, out, err = tester.rehearse("untrained")
    tester.check(code == 0 and "no training step was observed" in " ".join(out.split()), f"A run without a step: {out}{err}")
    tester.check("no training step" not in " ".join(tester.rehearse("fits")[1].split()), "A run with steps is said to have none.")


def test_mistakes_are_all_reported(tester):
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
    # On a busy machine the script may not have begun to hang after half a second.
    for timeout, said in (("500ms", "500 ms"), ("8s", "8.00 s"), ("64s", "64.0 s"), ("512s", "512 s")):
        code, _, err = tester.rehearse("deaf", "--timeout", timeout)
        tester.check(code == 3 and f"rank 0: It did not end within {said}" in err, f"A script that hangs: {code} {err}")
        if (tester.notes / "deaf").is_file():
            break
    tester.check_ended("deaf")


def test_no_process_is_left(tester):
    code, _, err = tester.rehearse("daemon")
    tester.check(code == 0, f"A script that starts a daemon: {err}")
    tester.check_ended("deaf")


def start(tester, mode, *options):
    """A rehearsal in the background, once its script runs."""
    words = [tester.binary, "rehearse", *options, "--", "./train.py", mode]
    process = subprocess.Popen(words, cwd=tester.folder, env=tester.environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    note = tester.notes / mode
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        if note.exists() and note.read_text():
            return process
        time.sleep(0.02)
    tester.problems.append(f"{mode} does not start.")
    return process


def test_interrupt(tester):
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        for mode in ("waits", "deaf"):
            process = start(tester, mode)
            process.send_signal(number)
            out, err = process.communicate(timeout=LIMIT_SECONDS)
            tester.check(process.returncode == 130, f"{mode}, {number!r}: ends with {process.returncode}.")
            tester.check(out == b"" and b"Interrupted." in err, f"{mode}, {number!r}: {err.decode()}")
            at = {"waits": "rank 0 was at: step 2 of 3, after ", "deaf": "rank 0 was at: starting, after "}[mode]
            tester.check(at in err.decode(), f"{mode}, {number!r}: where it was is not said: {err.decode()}")
            measured = "Until then it needed 10.7 GiB of" in " ".join(err.decode().split())
            tester.check(measured == ((mode, number) == ("waits", signal.SIGINT)), f"{mode}, {number!r}: {err.decode()}")
            tester.check_ended(mode)
            tester.check(not list(tester.temporary.iterdir()), "An interrupted rehearsal leaves files.")
    tester.check((tester.notes / "interrupted").exists(), "Ctrl-C does not reach the script.")


def test_sign_of_life(tester):
    """From the second second on, without a terminal and in a file."""
    process = start(tester, "waits", "--progress", "progress.txt")
    while "step 2 of 3" not in (said := process.stderr.readline().decode()) and said:
        pass
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_SECONDS)
    tester.check(re.fullmatch(r"rank 0: step 2 of 3, \d+ s\n", said) is not None, f"Nothing says what is done: {said}")
    tester.check_ended("waits")
    lines = (tester.folder / "progress.txt").read_text()
    tester.check(re.fullmatch(r"(rank 0: starting, \d s\n)?rank 0: step 2 of 3, \d+ s\n", lines) is not None, f"The file has {lines!r}.")
    code, out, err = tester.rehearse("fits", "--progress", "progress.txt")
    tester.check(code == 2 and "progress.txt" in err, f"A file is overwritten: {code} {err}")


def test_killing_the_command_kills_the_script(tester):
    """Who kills the command by SIGKILL kills the script, too, and all that it started; nothing stays in TMPDIR."""
    process = start(tester, "waits_beside_daemon")
    process.kill()
    process.communicate(timeout=LIMIT_SECONDS)
    tester.check_ended("waits_beside_daemon")
    tester.check_ended("deaf")
    end = time.monotonic() + LIMIT_SECONDS
    while list(tester.temporary.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    tester.check(not list(tester.temporary.iterdir()), "A killed rehearsal leaves its folder.")


def test_stale_folders_are_removed(tester):
    """A folder whose owner was killed with all that might tidy up is removed at the next start; one that is in use is not."""
    stale, used = (tester.temporary / f"fsdp-plan-{name}" for name in ("stale1", "inuse1"))
    for folder in (stale, used):
        folder.mkdir()
        (folder / "lock").touch()
    with open(used / "lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tester.run("rehearse", "--", "./train.py", "fits", may_leave=[used])
        tester.check(used.is_dir() and not stale.exists(), "The wrong folders are removed.")
    shutil.rmtree(used)


def test_closed_pipe(tester):
    """fsdp-plan rehearse ... | true"""
    for closed in ("stdout", "stderr"):
        reads, writes = os.pipe()
        os.close(reads)
        words = [tester.binary, "rehearse", "--", "./train.py", "fits" if closed == "stdout" else "raises"]
        where = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, closed: writes}
        done = subprocess.run(words, cwd=tester.folder, env=tester.environment(), timeout=LIMIT_SECONDS, check=False, **where)
        os.close(writes)
        tester.check(done.returncode == -signal.SIGPIPE, f"A closed {closed} ends it with {done.returncode}.")
        tester.check(not list(tester.temporary.iterdir()), f"A closed {closed} leaves {list(tester.temporary.iterdir())}.")


def with_small_disk(tester, size, variable, *words):
    """Runs the command with a small disk on the folder `small`, in a name space of our own; None where there are none."""
    small = tester.folder / "small"
    small.mkdir(exist_ok=True)
    command = (f"mount -t tmpfs -o size={size} none {small} || exit 99; {tester.binary} rehearse {' '.join(words)}; "
               f"code=$?; ls {small} >&2; exit $code")
    more = {variable: str(small)} if variable else {}
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", command], cwd=tester.folder, capture_output=True, text=True,
                          env=tester.environment(**more), timeout=LIMIT_SECONDS, check=False)
    if done.returncode == 99 or done.stderr.startswith("unshare:"):
        print("left out: a disk that is full needs a mount of our own")
        return None
    return done


def test_full_disk(tester):
    done = with_small_disk(tester, "64k", "", "--snapshot", "small/out.pickle", "--", "./train.py", "snapshot")
    if done is None:
        return
    tester.check(done.returncode == 3 and "small/out.pickle: It cannot be written: No space left on device." in done.stderr
                 and done.stdout.startswith("FITS") and not done.stderr.endswith("out.pickle\n"),
                 f"A full disk at --snapshot: {done.returncode} {done.stdout}{done.stderr}")
    done = with_small_disk(tester, "4k", "", "-o", "small/out.json", "--", "./train.py", "fits")
    tester.check(done.returncode == 3 and done.stdout.startswith("FITS") and not done.stderr.endswith("out.json\n"),
                 f"A full disk at -o: {done.returncode} {done.stdout}{done.stderr}")
    done = with_small_disk(tester, "4m", "TMPDIR", "--", "./train.py", "fills_disk")
    tester.check(done.returncode == 3 and "rank 0: The folder of temporary files" in done.stderr
                 and "is full" in done.stderr, f"A full TMPDIR: {done.returncode} {done.stderr}")


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
                 == (str(GIB), ",".join(f"{n}:{2 * GIB}" for n in (1, 2, 4, 8, "*")), "hold", str(64 << 20), "none"), f"Options: {shown}")
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
    reports += [json.loads(tester.rehearse(*words, "--json")[1]) for words in (
        ("fails_on_rank_2", "--gpus", "4", "--rank", "all"), ("batch", "--mem", "20G", "--find-batch", "--batch-size {}"))]
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


def test_failed_rank_keeps_the_other_ranks(tester):
    code, out, err = tester.rehearse("fails_on_rank_2", "--gpus", "4", "--rank", "all")
    text = " ".join(out.split())
    tester.check(code == 3 and "rank 2 could not be run" in text and "2 not played" in text, f"{code} {out}{err}")
    tester.check("Rank 2 may need more: The script raised ValueError: rank 2 has no data" in text, f"No reason: {out}")
    report = json.loads(tester.rehearse("fails_on_rank_2", "--gpus", "4", "--rank", "all", "--json")[1])["rehearsal"]
    tester.check([r["rank"] for r in report["ranks"]] == [0, 1, 3] and report["unplayed_ranks"][0]["rank"] == 2,
                 f"The ranks are {report['ranks']}, without {report.get('unplayed_ranks')}.")
    code, out, err = tester.rehearse("fails_on_rank_2", "--gpus", "4", "--rank", "2")
    tester.check(code == 3 and out == "" and "rank 2: The script raised ValueError" in err, f"Alone: {code} {out}{err}")
    # Two that fail end those that still run, which then have neither a status nor a record.
    code, out, err = tester.rehearse("raises", "--nodes", "8", "--gpus", "8", "--rank", "all")
    tester.check(code == 3 and out == "" and err.count("The script raised") == 1, f"All fail: {code} {out}{err}")


def test_find_batch(tester):
    """2 GiB, 1.5 GiB a sample and the context."""
    words = ["--mem", "40G", "--find-batch", "--batch-size {}"]
    code, out, err = tester.rehearse("batch", *words, "--json")
    report = json.loads(out)
    budget = report["memory"]["budget_bytes"]
    context = sum(t["bytes"] for t in report["memory"]["device_terms"] if t["name"] == "CUDA context")
    largest = (budget - context - 2 * GIB) // (3 * GIB // 2)
    tester.check(code == 0 and report["largest_batch"] == largest > 8, f"The largest batch is {report['largest_batch']}: {err}")
    tried = {each["batch"]: each["fits"] for each in report["batches"]}
    tester.check(tried[largest] and not tried[largest + 1] and list(tried) == sorted(tried), f"Tried: {tried}")
    tester.check(report["memory"]["reserved_peak_bytes"] == 2 * GIB + 3 * GIB // 2 * largest, "Another batch is reported.")
    tester.check(f"batch {largest}: fits, device peak" in err, f"No word of a batch: {err}")
    code, out, err = tester.rehearse("batch", *words)
    tester.check(code == 0 and f"{largest} is the largest batch that fits; {largest + 1} does not" in " ".join(out.split()),
                 f"The screen: {out}")
    code, out, err = tester.rehearse("batch", "--mem", "3G", "--find-batch", "--batch-size {}", "--context-bytes", "0.5G")
    tester.check(code == 1 and "No batch fits, not even 1" in out, f"None fits: {code} {out}{err}")
    done = tester.run("rehearse", "--mem", "40G", "--find-batch", "--refuse --batch-size {}", "--", "./train.py", "batch")
    tester.check(done[0] == 0 and "8 is the largest batch that fits; 9 could not be rehearsed" in " ".join(done[1].split()),
                 f"A refused batch: {done}")
    for first, said, expected in ((4, "3 is the largest batch that fits; 4 could not be rehearsed", 0),
                                  (1, "No batch is known to fit; 1 could not be rehearsed", 3)):
        done = tester.run("rehearse", "--gpus", "2", "--rank", "all", "--find-batch", f"--lose {first} --batch-size {{}}", "--",
                          "./train.py", "batch")
        tester.check(done[0] == expected and said in " ".join(done[1].split()), f"A rank that is lost from {first} on: {done}")
    code, out, err = tester.rehearse("fits", "--find-batch", "--batch-size", "--snapshot", "x")
    tester.check(code == 2 and "has no {} where the number goes" in err and "--snapshot" in err, f"Mistakes: {code} {err}")


class Page(html.parser.HTMLParser):
    """Sees that every element is closed, and keeps the text and what is loaded from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.loaded = [], "", []

    def handle_starttag(self, tag, attributes):
        self.loaded += [value for name, value in attributes if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data + " "


def test_page(tester):
    code, out, err = tester.rehearse("fits", "--gpus", "4", "--html", "out.html")
    text = (tester.folder / "out.html").read_text()
    page = Page()
    page.feed(text)
    tester.check(code == 0 and page.open == [] and page.loaded == [] and "url(" not in text, f"The page: {err} {page.open}")
    for words in ("FITS", "peak 10.7 GiB of 79.2 GiB", "train.py:41 main", "activations 5.00 GiB (50 %)", "backward"):
        tester.check(words in page.text, f"The page has no {words!r}: {page.text}")
    tester.check(text.count("<svg") == 2 and "prefers-color-scheme: dark" in text, "The page lacks its pictures.")
    tester.rehearse("fits", "--gpus", "4", "--html", "again.html")
    again = (tester.folder / "again.html").read_text()

    def strip(page: str) -> str:
        return re.sub(r"took [0-9.]+ m?s", "took", page).replace("again.html", "out.html")

    tester.check(strip(again) == strip(text), "Two runs give two pages.")
    tester.rehearse("batch", "--mem", "20G", "--find-batch", "--batch-size {}", "--html", "batch.html")
    text = (tester.folder / "batch.html").read_text()
    places = [text.find(words) for words in ("BATCH</h1>", "then out of memory", ">FITS</h2>", "<svg", "<h2>ran</h2>")]
    tester.check(-1 not in places and places == sorted(places), f"The page of batches is out of order: {places}")
    code, out, err = tester.rehearse("fits", "--html", "out.html")
    tester.check(code == 2 and "The file exists." in err, f"A page is written over: {err}")


def test_first_rank_reveals_the_number_of_ranks(tester):
    """accelerate may read its number of processes from a file of its own: the first rank says how many there are."""
    (tester.folder / "accelerate").symlink_to(tester.folder / "train.py")
    _, out, err = tester.run("rehearse", "--rank", "all", "--json", "--", "./accelerate", "uneven", FAKE_WORLD="3")
    report = json.loads(out or "{}")
    tester.check(out != "" and [r["rank"] for r in report["rehearsal"]["ranks"]] == [0, 1, 2], f"Unknown world: {err}")


def test_launcher_inside_a_script(tester):
    """Nobody knows what a shell script starts: any rank may be asked for, and communicators are charged by their size."""
    script = tester.folder / "run.sh"
    script.write_text("#!/bin/sh\nexec ./train.py environment\n")
    script.chmod(0o755)
    code, _, err = tester.run("rehearse", "--rank", "3", "--", "./run.sh")
    shown = shown_environment(tester, 3)
    sizes = dict(entry.split(":") for entry in shown["STUB_GPU_NCCL_BYTES"].split(","))
    tester.check(code == 0 and "STUB_GPU_COUNT" not in shown, f"A launcher in a script: {err}")
    tester.check(list(sizes) == ["1", "2", "4", "8", "*"] and 0 < int(sizes["2"]) < int(sizes["8"]), f"NCCL: {sizes}")
    _, out, _ = tester.run("rehearse", "--", "./accelerate", "fits", "--num-processes", "gpu")
    tester.check("--num-processes gpu starts one process per GPU of the machine; their number was not given, so it is 1."
                 in " ".join(out.split()), f"As many as there are: {out}")


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
    code, _, err = tester.rehearse("files", "--gpus", "2", "--rank", "all", "--snapshot", "out.pickle", "--allocator-trace", "t.txt")
    texts = [(tester.folder / name).read_text() for name in ("out.pickle", "t.txt")]
    tester.check(code == 0 and texts == ["SNAPSHOT of rank 1", "TRACE of rank 1"], f"Files of the worst rank: {texts} {err}")
    code, _, err = tester.rehearse("files", "--snapshot", "out.pickle")
    tester.check(code == 2 and "out.pickle: The file exists." in err, f"A file is overwritten: {err}")


def test_output_of_the_script(tester):
    _, out, err = tester.rehearse("loud")
    tester.check("xxx" not in out + err, "The script's output is shown.")
    _, out, err = tester.rehearse("loud", "--verbose")
    tester.check(err.count("x" * 99 + "\n") == 20000, "--verbose does not show all of the script's output.")


def test_equal_lines_are_printed_once(tester):
    code, out, err = tester.rehearse("untidy")
    tester.check(code == 0 and "no wrapper of Linear (2), Head\n" in out and out.count("no wrapper") == 1, f"Plain models: {out}{err}")
    tester.check("2.00 GiB      4  …/projects/train.py:9 main  _init_group\n" in out and out.count("_init_group") == 1,
                 f"Lines that read the same: {out}")
    tester.check("\npeak     backward of step 2" in out, f"The peak of a script that caught an error: {out}")
    tester.check("first step" not in out and "after it" in out, f"A run without a step: {out}")


def test_comparison(tester):
    tester.rehearse("fits", "--gpus", "4", "-o", "fits.json")
    tester.rehearse("uneven", "--gpus", "4", "--rank", "2", "-o", "uneven.json")
    code, out, _ = tester.run("compare", "fits.json", "fits.json", "--tolerance", "0%")
    tester.check(code == 0 and out.startswith("WITHIN"), f"A report differs from itself: {out}")
    code, out, _ = tester.run("compare", "fits.json", "uneven.json", "--tolerance", "2%")
    tester.check(code == 1 and out.startswith("OUTSIDE"), f"Reports that differ: {code} {out}")
    tester.check("term" in out and "fits.json  uneven.json" in " ".join(out.split("term")[1].split("\n")[0].split("   "))
                 and "predicted" not in out, f"Two rehearsals are called a prediction and a measurement: {out}")
    comparison = json.loads(tester.run("compare", "fits.json", "uneven.json", "--json")[1])["comparison"]
    worst = comparison["terms"][0]
    tester.check(worst["relative"] == worst["difference"] / worst["measured"] < -0.16, f"The worst term is {worst}.")
    code, out, _ = tester.rehearse("uneven", "--gpus", "4", "--rank", "2", "--compare-with", "fits.json", "--tolerance", "2%")
    tester.check(code == 1 and "compare" in out and "-16.7 %" in out, f"--compare-with: {code} {out}")
    report = json.loads(tester.rehearse("fits", "--gpus", "4", "--compare-with", "fits.json", "--json")[1])
    tester.check(all(t["difference"] == 0 for t in report["comparison"]["terms"]), "--compare-with itself is not exact.")
    tester.run("qwen3_tts", "--gpus", "4", "--mem", "16G", "-o", "plan.json")
    code, out, err = tester.rehearse("fits", "--gpus", "4", "--mem", "16G", "--compare-with", "plan.json", "--json")
    names = [t["name"] for t in json.loads(out or "{}").get("comparison", {}).get("terms", [])]
    tester.check(code == 0 and "steady step: reserved peak" in names, f"--compare-with a plan: {code} {err}")


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
    tester.check(code == 1, f"A plan cannot be rehearsed, or one that sends something else ends with {code}: {err}")
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
    beyond = report["comparison"]["beyond_tolerance"]
    tester.check("all_gather count" in beyond and "reserved peak" not in beyond, f"What differs is {beyond}.")
    for words in ([], ["--quiet"], ["--tolerance", "1%"], ["--tolerance", "100000%"]):
        code, out, err = rehearse("plan", *words)
        first = out.split("\n", 1)[0]
        tester.check(code == 1 and first.startswith(f"DIFFERS  all_reduce count: {terms['all_reduce count']['predicted']} predicted, 0 measured (none measured) · "),
                     f"A plan that is predicted wrongly ends with {code} and begins with {first!r} {words}. {err}")
    code, out, err = rehearse("plan_oom")
    tester.check(code == 1 and out.startswith("OUT OF MEMORY ") and "none measured" not in out and "all_gather count" not in out
                 and "at peak: " not in out and "The second run ended before its first step did" in " ".join(out.split()),
                 f"A plan that ran out of memory before its first step ended: {code} {out}{err}")
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
        shutil.rmtree(tester.notes)
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
