#!/usr/bin/env python3
"""`fsdp-plan clock`: times of single collectives and kernels, beside logs of nccl-tests.

usage: cli_clock_test.py PROJECT_ROOT BINARY

The logs of tests/golden/nccl/logs have the figures of published runs; tests/golden/nccl/README.md names them. After a change that is
meant, run the test with FSDP_UPDATE_GOLDEN=1 and read the diff.
"""

import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
from cli_test import Tester  # noqa: E402

SCREENS = {
    "one": "clock all_gather 256M --gpus 8 --gpu H100",
    "sizes": "clock all_reduce --cluster 'DGX H100' --nodes 2",
    "matmul": "clock matmul 4096x4096x4096 --gpu H100",
    "attention": "clock attention 1x32x4096x128 --causal --gpu H100",
    "h100_8_all_gather": "clock all_gather --gpu 'H100 SXM' --gpus 8 --compare-with h100_8_all_gather.log",
    "h100_4_all_reduce": "clock all-reduce --gpu 'H100 SXM' --gpus 4 --compare-with h100_4_all_reduce.log",
    "h100_2x8_all_reduce": "clock all_reduce --cluster 'AWS p5.48xlarge' --nodes 2 --compare-with h100_2x8_all_reduce.log",
    "a100_2x8_all_gather": "clock all_gather --cluster 'DGX A100' --nodes 2 --compare-with a100_2x8_all_gather.log",
}

# Each ends with exit code 2 and says all that is wrong.
MISTAKES = """
clock
clock all_gathr 256M
clock all_to_all 256M --gpu H100 --gpus 8
clock all_gather 256 --gpu H101 --causal --dtype bf16
clock all_gather 0B --gpu H100
clock all_gather 256M --gpu H100 --gpus 8 --compare-with h100_8_all_gather.log
clock all_reduce --gpu H100 --gpus 8 --compare-with h100_8_all_gather.log
clock all_gather --gpu H100 --gpus 8 --compare-with missing.log
clock all_gather --gpu H100 --gpus 8 --compare-with cut.log
clock all_gather --gpu H100 --gpus 8 --compare-with no.log
clock all_gather --gpu H100 --gpus 4 --compare-with ranks.log
clock matmul --gpu H100
clock matmul 4096x0x4096 --gpu T4 --compare-with x.log --causal
clock matmul 4096x4096 --gpu H100 --dtype fp8
clock matmul 1x1x1 --gpu V100 --dtype bf16
clock attention 1x32x4096 --gpu H100
clock attention 1x32x4096x128 --gpu H100 --dtype fp32
clock matmul 1x1x1 --gpu H100 --mem 16G
"""


def errors_of(answer):
    return [abs(row["relative_error"]) for row in answer["times"]]


def main(root, binary):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tester = Tester(root, binary, folder)
        for log in sorted((root / "tests" / "golden" / "nccl" / "logs").glob("*.log")):
            (folder / log.name).write_bytes(log.read_bytes())
        (folder / "cut.log").write_text("1024 256 float sum -1 10.5\n2048 512 float sum -1 x 1 1 0\n", encoding="utf-8")
        (folder / "no.log").write_text("nothing\n", encoding="utf-8")
        (folder / "ranks.log").write_text("#  Rank  7 Group  0 Pid 1 on a device  7 [0x1] H100\n1024 256 float none -1 10 1 1 0\n", encoding="utf-8")
        for screen, words in SCREENS.items():
            code, out, err = tester.run(words)
            tester.compare(f"clock_{screen}.txt", out)
            tester.check(code == 0 and not err, f"{words}: {code} {err}")
            code, out, _ = tester.run(words + " --json")
            tester.check(code == 0 and json.loads(out)["kind"] == "clock", f"{words} --json")
        transcript = ""
        for words in MISTAKES.strip().splitlines():
            code, out, err = tester.run(words)
            transcript += f"$ fsdp-plan {words}\n{err}\n"
            tester.check(code == 2 and not out, f"{words}: exit {code}")
        tester.compare("clock_mistakes.txt", transcript)

        answer = json.loads(tester.run(SCREENS["h100_8_all_gather"] + " --json")[1])
        tester.check(max(errors_of(answer)) < 0.03, "The measured table is further from another owner's than it was.")
        rows = tester.run("clock all_gather --gpu H100 --gpus 8 --format csv")[1].splitlines()
        tester.check(len(rows) == 16 and rows[0].startswith("table,bytes,time_seconds"), f"CSV: {rows[:2]}")
        tester.check(len(tester.run("clock matmul 64x64x64 --gpu A100 --quiet")[1].splitlines()) <= 2, "--quiet")
        for problem in tester.problems:
            print(problem)
        return 1 if tester.problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
