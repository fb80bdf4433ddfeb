"""Refusals and failures of fsdp-exec and fsdp-plan execute, and whether their messages name the fault.

    refusals_test.py FSDP_EXEC FSDP_PLAN      run by a Python that has torch
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest
import zlib

sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from plain_model import SEQ, SPEC, Files  # noqa: E402
from ranks import LIMIT_SECONDS, InAFolder, clean_environment, parameters_of, run_executor, started  # noqa: E402
from small_models import small_spec  # noqa: E402

EXECUTOR, PLANNER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
EXIT_INPUT, EXIT_RUN = 2, 3
PATIENT = ["--timeout", str(4 * LIMIT_SECONDS)]


def write_index(step: pathlib.Path, index: dict[str, object]) -> None:
    """Writes the right checksum, as anybody can."""
    index.pop("crc32_of_text_before", None)
    text = json.dumps(index)[:-1] + ", "
    text += f'"crc32_of_text_before": {zlib.crc32(text.encode())}}}'
    (step / "checkpoint.json").write_text(text, encoding="utf-8")


def save_npy(path: pathlib.Path, ids: list[int]) -> None:
    """Writes the format of numpy.save; NumPy may be missing."""
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(ids)},), }}".ljust(117).encode() + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(ids)}i", *ids))


class Refusals(InAFolder):
    def setUp(self) -> None:
        super().setUp()
        self.files = Files(self.folder)

    def run_ranks(self, plan: pathlib.Path, count: int, *options: str) -> tuple[list[int], list[str]]:
        with started(EXECUTOR, count, [plan], self.folder, list(options)) as ranks:
            return [rank.wait() for rank in ranks], [rank.printed for rank in ranks]

    def expect(self, code: int, said: str, *options: str, plan: pathlib.Path | None = None, count: int = 1) -> None:
        codes, printed = self.run_ranks(plan or self.files.plan(count, 4), count, *options)
        self.assertEqual(codes, [code] * count, printed)
        for text in printed:
            self.assertRegex(text, said)

    def test_nonfinite_loss_stops_all_ranks_without_a_checkpoint(self) -> None:
        checkpoints, report = self.folder / "c", self.folder / "report"
        plan = self.files.plan(2, 4, optimizer={"kind": "sgd", "weight_decay": 0.0})
        options = ["--lr", "1e30", "--steps", "9", "--checkpoint-dir", str(checkpoints), "--checkpoint-every", "1", "--report",
                   str(report), *PATIENT]
        codes, printed = self.run_ranks(plan, 2, *options)
        self.assertEqual(codes, [EXIT_RUN] * 2, printed)
        for rank, text in enumerate(printed):
            self.assertRegex(text, rf"error: rank {rank}: step [23]: The loss is -?(nan|inf)\. .*--nonfinite-loss continue")
        names = {path.name for path in checkpoints.iterdir()}
        self.assertLessEqual(names, {"step-00000001", "step-00000002"})
        self.assertFalse(report.exists())
        codes, printed = self.run_ranks(plan, 2, "--lr", "1e30", "--steps", "4", "--nonfinite-loss", "continue")
        self.assertEqual(codes, [0, 0], printed)
        self.assertRegex(printed[0], r"step 4: loss -?nan")

    def test_unwritable_output_ends_all_ranks_at_once(self) -> None:
        for option in "--save-parameters", "--report":
            place = str(self.folder / ("x" * 300))  # Longer than a name may be.
            codes, printed = self.run_ranks(self.files.plan(2, 4), 2, option, place, "--steps", "1", *PATIENT)
            self.assertEqual(codes, [EXIT_RUN] * 2, printed)
            for text in printed:
                self.assertRegex(text, r"error: rank 0: .*xxx")
                self.assertNotIn(" -o", text)

    def test_missing_output_folder_is_reported_before_training(self) -> None:
        (self.folder / "taken").mkdir()
        (self.folder / "file").write_text("", encoding="utf-8")
        codes, printed = self.run_ranks(
            self.files.plan(1, 4), 1, "--report", str(self.folder / "no" / "where"), "--save-parameters",
            str(self.folder / "file" / "parameters"), "--chrome-trace", str(self.folder / "taken"))
        self.assertEqual(codes, [EXIT_INPUT])
        self.assertRegex(printed[0], r"error: --report: .*/no is not a folder\.")
        self.assertRegex(printed[0], r"error: --save-parameters: .*/file is not a folder\.")
        self.assertRegex(printed[0], r"error: --chrome-trace: .*/taken is a folder\.")
        self.assertNotIn("step 1", printed[0])

    def test_numbers_out_of_range(self) -> None:
        plan = self.files.plan(2, 4)
        for rank in "7", "-3":
            self.expect(EXIT_INPUT, rf"--stand-in: The plan has no rank {rank}\. Its ranks are 0 to 1", "--stand-in", rank,
                        plan=plan)
        for timeout in "nan", "inf", "0", "-1":
            self.expect(EXIT_INPUT, "--timeout", "--timeout", timeout)

    def test_every_error_of_a_command_line_is_reported(self) -> None:
        wrong = ["--lr", "nan", "--betas", "0.9", "--schedule", "slow", "--warmup", "-1", "--steps=none", "--checkpoint-keep", "3",
                 "--stepps", "7", "--device", "cuda", "--mem", "3x", "--workspaces", "here", "--labels", "there"]
        codes, printed = self.run_ranks(self.files.plan(1, 4), 1, *wrong)
        self.assertEqual(codes, [EXIT_INPUT])
        places = re.findall(r"^error: (\S+): ", printed[0], re.MULTILINE)
        self.assertEqual(sorted(places), sorted(["--lr", "--betas", "--schedule", "--warmup", "--steps", "--checkpoint-keep", "--stepps",
                                                 "--mem", "--workspaces", "--labels"]), printed[0])
        self.assertIn("Did you mean --steps?", printed[0])
        self.assertIn("--checkpoint-keep: It needs --checkpoint-dir.", printed[0])
        self.assertIn("slow not in {constant,linear,cosine}", printed[0])

    def test_collectives_of_another_pytorch_are_refused(self) -> None:
        quirks = {"clip_reduces_each_norm": False, "skip_collectives_of_one": False, "forward_all_gather_output_kept": False}
        plan = self.files.plan(1, 4, runtime={"quirks": quirks}, optimizer={"clip_grad_norm": 1.0})
        codes, printed = self.run_ranks(plan, 1)
        self.assertEqual(codes, [EXIT_INPUT], printed)
        self.assertRegex(printed[0], r"clip_reduces_each_norm: The norms of all parameters are reduced one by one")
        self.assertRegex(printed[0], r"skip_collectives_of_one: A shard group of one rank calls no collective")
        self.assertEqual(printed[0].count("error: "), 2, printed)
        # Neither changes anything here.
        plan = self.files.plan(2, 4, runtime={"quirks": quirks}, optimizer={"clip_grad_norm": None})
        codes, printed = self.run_ranks(plan, 2, "--steps", "1")
        self.assertEqual(codes, [0] * 2, printed)

    def test_plan_of_another_framework_is_refused(self) -> None:
        for name in ("pytorch-ddp", "pytorch-fsdp1", "deepspeed-zero3", "torchtitan-simple-fsdp"):
            with self.subTest(name):
                plan = self.files.plan(2, 4, runtime={"name": name})
                self.expect(EXIT_INPUT, f"/runtime/name: fsdp-exec trains plans of FSDP2, but this one is for {name}. Write: fsdp-plan execute",
                            plan=plan, count=2)

    def test_members_that_no_plan_can_have_are_refused(self) -> None:
        for member in "keep_low_precision_grads", "autocast":
            with self.subTest(member):
                unknown = self.files.plan(2, 4, runtime={"name": "pytorch-fsdp1"}, fsdp1={member: True})
                self.expect(EXIT_INPUT, member, plan=unknown, count=2)

    def test_plan_from_a_pipe_is_refused(self) -> None:
        pipe = self.folder / "pipe.json"
        os.mkfifo(pipe)
        self.expect(EXIT_INPUT, r"pipe\.json: This is a pipe, and every rank reads the plan", plan=pipe)

    def test_names_cannot_control_the_terminal(self) -> None:
        spec = self.folder / "named.json"
        inputs = {**SPEC["inputs"], "more": {"shape": ["batch"], "dtype": "int64"}}
        spec.write_text(json.dumps({**SPEC, "name": "M\x1b]0;pwned\x07", "inputs": inputs}), encoding="utf-8")
        plan = self.folder / "named.plan.json"
        plan.write_text(json.dumps({"format_version": "1.0", "model": {"name": "M", "file": str(spec)},
                                    "mesh": {"replicate": 1, "shard": 1}, "units": [{"modules": [""]}]}), encoding="utf-8")
        _, printed = self.run_ranks(plan, 1, "--tokens", str(self.files.tokens))
        self.assertIn("pwned", printed[0])
        self.assertEqual([c for c in printed[0] if ord(c) < 32 and c != "\n"], [])

    def test_checkpoint_of_another_model_or_without_moments_is_refused(self) -> None:
        plan, folder = self.files.plan(1, 4), self.folder / "c"
        codes, printed = self.run_ranks(plan, 1, "--steps", "2", "--checkpoint", str(folder), "--every", "1", "--keep", "2", "--reduce", "direct")
        self.assertEqual(codes, [0], printed)
        self.assertTrue((folder / "step-00000001").exists())
        for old, now in (("--checkpoint", "--checkpoint-dir"), ("--every", "--checkpoint-every"), ("--keep", "--checkpoint-keep"),
                         ("--reduce", "--reduction")):
            self.assertEqual(printed[0].count(f"note: {old} is now {now}; the next version takes only that."), 1)
        step = folder / "step-00000002"
        index = json.loads((step / "checkpoint.json").read_text(encoding="utf-8"))
        resume = ["--resume", str(step), "--steps", "3"]
        cases = {
            "no optimizer moments in any file": {"files": [file for file in index["files"] if file["name"].startswith("model/")]},
            'is for the model "Other"': {"model": "Other", "model_fingerprint": "0123456789abcdef"},
            "model_fingerprint": {"model_fingerprint": None},
            "does not name the checkpoint's model": {"model": "", "model_fingerprint": ""},
        }
        for said, change in cases.items():
            with self.subTest(said):
                write_index(step, {**index, **change})
                self.expect(EXIT_INPUT, said, *resume, plan=plan)
        write_index(step, index)
        self.expect(0, "resuming after step 2", *resume, plan=plan)

    def test_missing_network_interface_is_reported(self) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "nosuch0"
        self.addCleanup(os.environ.pop, "GLOO_SOCKET_IFNAME")
        self.expect(EXIT_RUN, r'GLOO_SOCKET_IFNAME names "nosuch0".*It has .*lo')

    # ---- fsdp-plan execute

    def execute(self, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(PLANNER), "execute", str(self.files.plan(2, 4)), "--quiet", *options],
                              env={**clean_environment(), **variables}, capture_output=True, text=True,
                              timeout=LIMIT_SECONDS, check=False)

    def test_execute_has_every_option_of_a_run(self) -> None:
        names = {}
        for words in ([str(EXECUTOR), "--help"], [str(PLANNER), "execute", "--help-all"]):
            help_text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            names[words[0]] = set(re.findall(r"^  (?:-\w,\s*)?(--[a-z-]+)", help_text, re.MULTILINE))
        missing = names[str(EXECUTOR)] - names[str(PLANNER)]
        # For one rank, or set by execute and calibrate themselves.
        self.assertEqual(missing, {"--report", "--allocation-trace", "--workspaces", "--threads", "--stand-in", "--nccl-alone",
                                   "--heartbeat", "--save-logits", "--measure", "--measure-collectives"})

    def test_execute_passes_on_training_options(self) -> None:
        saved, run, metrics = (self.folder / name for name in ("parameters", "run", "metrics"))
        ids = [str(self.folder / name) for name in ("first.npy", "second", "held-out")]
        save_npy(pathlib.Path(ids[0]), self.files.ids[:7 * SEQ])
        for path in ids[1:]:
            pathlib.Path(path).write_bytes(struct.pack(f"<{9 * SEQ}i", *self.files.ids[7 * SEQ:16 * SEQ]))
        how = ["--steps", "2", "--lr", "0.5", "--schedule", "linear", "--betas", "0.5", "0.6", "--no-decay", "norms,biases",
               "--tokens", *ids[:2], "--labels", *ids[:2], "--token-dtype", "int32", "--shuffle", "3", "--document-end", "2",
               "--evaluate", ids[2], "--evaluate-every", "1", "--evaluate-samples", "8", "--seed", "5", "--reduction", "parity"]
        done = self.execute(*how, "--save-parameters", str(saved), "--run-dir", str(run), "--metrics", str(metrics))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        self.assertEqual([line["evaluation_samples"] for line in lines if "evaluation_loss" in line], [8, 8])
        alone = run_executor(EXECUTOR, self.files.plan(2, 4), 2, self.folder, "alone", how)
        self.assertEqual(parameters_of(saved), alone["parameters"])
        for rank, steps in enumerate(alone["steps"]):
            ours = json.loads((run / f"report-{rank}.json").read_text(encoding="utf-8"))["steps"]
            self.assertEqual([(step["loss"], step["learning_rate"]) for step in ours],
                             [(step["loss"], step["learning_rate"]) for step in steps])

    def test_execute_refuses_what_a_rank_refuses(self) -> None:
        refused = self.execute("--lr", "nan", "--warmup", "many", "--evaluate-every", "3")
        self.assertEqual(refused.returncode, EXIT_INPUT)
        for option in "--lr", "--warmup", "--evaluate-every":
            self.assertEqual(len(re.findall(f"^error: {option}: ", refused.stderr, re.MULTILINE)), 1, refused.stderr)
        proof = self.execute("--proof", "--lr", "1", "--metrics", "here", "--tokens", "there")
        self.assertEqual((proof.returncode, proof.stderr.count("A proof has no use for it")), (EXIT_INPUT, 3), proof.stderr)

    def test_execute_refuses_unpredictable_plans_before_training(self) -> None:
        spec, plan, run = (self.folder / name for name in ("small.json", "cannot.json", "run"))
        spec.write_text(json.dumps(small_spec("llama3_2_1b")), encoding="utf-8")
        run.mkdir()
        for attention, code, said in (("flash", 0, ""), ("memory_efficient", EXIT_INPUT, "PyTorch refuses memory_efficient for float32")):
            plan.write_text(json.dumps({
                "format_version": "1.0", "model": {"name": "Llama-3.2-1B", "file": str(spec)}, "mesh": {"replicate": 1, "shard": 1},
                "units": [{"modules": [""]}], "parameter_dtype": "float32", "runtime": {"implementations": {"attention": attention}},
            }), encoding="utf-8")
            into = self.folder / "trained" if code == 0 else run
            done = subprocess.run([str(PLANNER), "execute", str(plan), "--quiet", "--steps", "1", "--device", "cpu", "--run-dir", str(into)],
                                  env=clean_environment(), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(said, done.stderr)
        self.assertEqual(list(run.iterdir()), [])

    def test_execute_ends_when_its_reader_closes_the_pipe(self) -> None:
        """As with `fsdp-plan execute ... 2>&1 | head -1`."""
        words = [str(PLANNER), "execute", str(self.files.plan(2, 4)), "--steps", "1000000"]
        with subprocess.Popen(words, env={**clean_environment(), "TMPDIR": str(self.folder)}, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as process:
            self.assertTrue(process.stderr.readline())
            process.stderr.close()
            self.assertEqual(process.wait(LIMIT_SECONDS), -signal.SIGPIPE)
        self.assertEqual([path for path in self.folder.iterdir() if path.name.startswith("fsdp-plan")], [])

    def test_shrinking_token_file_ends_all_ranks_and_is_named(self) -> None:
        tokens = self.folder / "shrinks"
        tokens.write_bytes(struct.pack(f"<{64 * SEQ}i", *(self.files.ids[:8 * SEQ] * 8)))
        options = ["--tokens", str(tokens), "--token-dtype", "int32", "--steps", "1000000"]
        with started(EXECUTOR, 2, [self.files.plan(2, 4)], self.folder, options) as ranks:
            time.sleep(3)  # At any point of the run.
            os.truncate(tokens, 100)
            codes = [rank.wait() for rank in ranks]
            printed = "".join(rank.printed for rank in ranks)
        self.assertEqual(codes, [EXIT_RUN] * 2, printed)
        self.assertRegex(printed, r"shrinks: the file has become shorter: it had \d+ ids, and now ends before id \d+")
        tokens.write_bytes(b"\0" * 4001)
        self.expect(EXIT_INPUT, "shrinks: It has 4001 bytes of ids, which is no whole number of int32, 4 bytes each.",
                    "--tokens", str(tokens), "--token-dtype", "int32")

    def test_execute_reports_why_it_cannot_make_its_folder(self) -> None:
        (self.folder / "file").write_text("", encoding="utf-8")
        done = self.execute("--run-dir", str(self.folder / "file" / "run"))
        self.assertEqual(done.returncode, EXIT_INPUT)
        self.assertRegex(done.stderr, r"--run-dir: The folder .*file/run cannot be made: Not a directory")

    def test_execute_reports_a_full_disk_of_logs(self) -> None:
        small = self.folder / "small"
        small.mkdir()
        mount = shutil.which("mount")
        if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)],
                                           capture_output=True, check=False).returncode != 0:
            self.skipTest("only root can make a small disk")
        try:
            filler = os.open(small / "filler", os.O_WRONLY | os.O_CREAT)
            with self.assertRaises(OSError):
                while True:
                    os.write(filler, b"x" * 4096)
            os.close(filler)
            done = self.execute(TMPDIR=str(small))
            self.assertIn(done.returncode, (EXIT_INPUT, EXIT_RUN))
            self.assertRegex(done.stderr, "(is full|No space left)")
            # Room for logs, but not for the trace.
            os.truncate(small / "filler", 40_000)
            done = self.execute("--run-dir", str(small / "run"))
            self.assertEqual(done.returncode, EXIT_RUN, done.stderr)
            self.assertRegex(done.stderr, r"error: rank \d: .*/run/(trace|report)-\d\.json: The file cannot be written: No space left"
                                          r".* The steps are done")
        finally:
            time.sleep(0.1)
            subprocess.run(["umount", "-l", str(small)], check=True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
