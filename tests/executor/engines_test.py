"""The same plan, trained by ranks that different engines have started, ends with the same parameters.

    engines_test.py FSDP_EXEC [TORCHRUN [PYTHON_WITH_RAY [--verbose]]]

mpirun and Slurm are those of the machine; a test without its engine is skipped.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from parity_cases import Case  # noqa: E402
from ranks import LIMIT_SECONDS, ROOT, clean_environment, free_port, parameters_of, started  # noqa: E402
from slurm_cluster import slurm_cluster, why_not  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
TORCHRUN = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
RAY = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
CASE = Case("engines", "llama3_2_1b", 2, {"optimizer": {"clip_grad_norm": 1.0}})
SEED = "5"


def by_hand(port: int | None = None, seed: str = SEED, steps: str = "2") -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        options = ["--steps", steps, "--seed", seed, "--save-parameters", str(folder / "out")]
        with started(EXECUTOR, CASE.ranks, [CASE.write(folder)], folder, options, port=port) as ranks:
            codes = [rank.wait() for rank in ranks]
            if any(codes):
                raise AssertionError(f"exit {codes}\n" + "".join(rank.printed for rank in ranks))
        return parameters_of(folder / "out")


through_a_file = functools.cache(by_hand)


def by_engine(words: list[str], **environment: str) -> tuple[dict[str, Any], str]:
    """The report and the output of `words` followed by fsdp-exec."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        command = [*words, str(EXECUTOR), str(CASE.write(folder)), "--threads", "1", "--steps", "2", "--seed", SEED,
                   "--save-parameters", str(folder / "out")]
        done = subprocess.run(command, env={**clean_environment(), **environment}, capture_output=True, text=True,
                              timeout=LIMIT_SECONDS)
        if done.returncode != 0:
            raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return parameters_of(folder / "out"), done.stdout + done.stderr


class EnginesGiveTheSameParameters(unittest.TestCase):
    def expect_equal(self, found: dict[str, Any]) -> None:
        expected = through_a_file()
        self.assertEqual(found.keys(), expected.keys())
        self.assertEqual([name for name in expected if found[name] != expected[name]], [])

    def test_store_of_rank_0_instead_of_a_file(self) -> None:
        self.expect_equal(by_hand(free_port()))

    def test_torchrun(self) -> None:
        if TORCHRUN is None or not TORCHRUN.is_file():
            self.skipTest("there is no torchrun")
        found, printed = by_engine([str(TORCHRUN), "--no-python", "--nproc-per-node", str(CASE.ranks), "--master-addr",
                                    "127.0.0.1", "--master-port", str(free_port())])
        self.expect_equal(found)
        self.assertEqual(printed.count("step 2: loss"), 1, printed)

    def test_mpirun(self) -> None:
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            self.skipTest("there is no mpirun")
        words = [mpirun, "-n", str(CASE.ranks), "--oversubscribe", "-x", "MASTER_ADDR", "-x", "MASTER_PORT"]
        words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        found, printed = by_engine(words, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        self.expect_equal(found)
        self.assertEqual(printed.count("step 2: loss"), 1, printed)

    def test_srun(self) -> None:
        reason = why_not()
        if reason is not None:
            self.skipTest(reason)
        with slurm_cluster() as environment:
            words = [shutil.which("srun", path=environment["PATH"]) or "", "-n", str(CASE.ranks), "--overcommit"]
            found, printed = by_engine(words, SLURM_CONF=environment["SLURM_CONF"])
        self.expect_equal(found)
        self.assertEqual(printed.count("step 2: loss"), 1, printed)

    def ray(self, folder: pathlib.Path, *options: str, of_ray: tuple[str, ...] = (), program: pathlib.Path = EXECUTOR,
            **variables: str) -> subprocess.Popen[str]:
        if RAY is None or not RAY.is_file():
            self.skipTest("there is no Ray")
        plan = CASE.write(folder)
        command = [str(RAY), "-m", "fsdp_plan_ray", str(plan), "--program", str(program), "--cpus", "0.5", "--storage",
                   str(folder / "ray"), *of_ray, "--", "--threads", "1", "--seed", SEED, *options]
        environment = {**clean_environment(), "PYTHONPATH": str(ROOT / "python"), "RAY_USAGE_STATS_ENABLED": "0",
                       **variables}
        run = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(run.communicate)
        self.addCleanup(run.kill)
        return run

    def test_ray(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            run = self.ray(pathlib.Path(name), "--steps", "2", "--save-parameters", f"{name}/out")
            printed = run.communicate(timeout=LIMIT_SECONDS)
            self.assertEqual(run.returncode, 0, "".join(printed))
            self.expect_equal(parameters_of(pathlib.Path(name) / "out"))

    def test_failed_rank_under_ray_is_reported(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            run = self.ray(pathlib.Path(name), "--steps", "2", "--mem", "600K")
            printed, errors = run.communicate(timeout=LIMIT_SECONDS)
            self.assertEqual(run.returncode, 3, printed + errors)
            self.assertRegex(errors, r"error: rank \d: .*\d+ bytes were asked for")

    def test_ray_restarts_killed_ranks_from_a_checkpoint(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            checkpoints = pathlib.Path(name) / "checkpoints"
            run = self.ray(pathlib.Path(name), "--steps", "60", "--save-parameters", f"{name}/out", "--checkpoint-dir",
                           str(checkpoints), "--checkpoint-every", "10", "--resume", "latest", of_ray=("--max-failures", "1"))
            while not (checkpoints / "step-00000020").is_dir():
                self.assertIsNone(run.poll(), "it has ended")
                time.sleep(0.02)
            os.kill(self.a_rank_with(str(checkpoints)), signal.SIGKILL)
            printed = "".join(run.communicate(timeout=LIMIT_SECONDS))
            self.assertEqual(run.returncode, 0, printed)
            self.assertRegex(printed, r"resuming after step [2345]0 of")
            found, expected = parameters_of(pathlib.Path(name) / "out"), by_hand(steps="60")
            self.assertEqual([key for key in expected if found[key] != expected[key]], [])

    def test_ray_gives_each_rank_a_gpu_of_its_own(self) -> None:
        """Uses the stub GPU, if it is built: a script plays the driver, which shows a rank the GPU that Ray assigned."""
        cuda, stub = EXECUTOR.with_name("fsdp-exec-cuda"), EXECUTOR.parents[1] / "lib" / "fsdp-plan" / "libfsdp-stub-gpu.so"
        if not cuda.is_file() or not stub.is_file():
            self.skipTest("the stub GPU is not built")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            driver = folder / "driver"
            driver.write_text(f'#!/bin/sh\necho "$RANK $CUDA_VISIBLE_DEVICES" >>{folder}/given\n'
                              f'STUB_GPU_COUNT=1 STUB_GPU_FIRST=$CUDA_VISIBLE_DEVICES LD_PRELOAD={stub} exec {cuda} "$@"\n',
                              encoding="utf-8")
            driver.chmod(0o755)
            count = CASE.ranks
            run = self.ray(folder, "--steps", "2", "--report", f"{name}/report.{{rank}}.json", of_ray=("--gpus",), program=driver,
                           RAY_OVERRIDE_RESOURCES=json.dumps({"CPU": count, "GPU": count}))
            printed = "".join(run.communicate(timeout=LIMIT_SECONDS))
            self.assertEqual(run.returncode, 0, printed)
            given = dict(line.split() for line in (folder / "given").read_text(encoding="utf-8").splitlines())
            self.assertEqual(sorted(given), [str(rank) for rank in range(count)])
            self.assertEqual(sorted(given.values()), [str(gpu) for gpu in range(count)])
            for rank in range(count):
                report = json.loads((folder / f"report.{rank}.json").read_text(encoding="utf-8"))
                self.assertNotIn("shared by several ranks", report["cluster"]["gpu"])
                self.assertEqual(len(report["steps"]), 2)

    def test_ranks_train_on_the_gpus_of_ray(self) -> None:
        from fsdp_plan_ray.__main__ import options_of_rank

        self.assertEqual(options_of_rank(True, ["--steps", "2"]), ["--steps", "2", "--device", "cuda"])
        self.assertEqual(options_of_rank(True, ["--device=cuda"]), ["--device=cuda"])
        self.assertEqual(options_of_rank(False, ["--device", "cpu"]), ["--device", "cpu"])
        for gpus, given in ((True, ["--device", "cpu"]), (False, ["--device=cuda"])):
            with self.assertRaisesRegex(ValueError, "--gpus"):
                options_of_rank(gpus, given)

    def a_rank_with(self, word: str) -> int:
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "exe").resolve() == EXECUTOR and word.encode() in (process / "cmdline").read_bytes():
                    return int(process.name)
        self.fail("there is no such rank")

    def test_another_seed_gives_other_parameters(self) -> None:
        self.assertNotEqual(by_hand(seed="6"), through_a_file())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + [word for word in sys.argv[1:] if word == "--verbose"])
