"""ZeRO-Infinity under the real DeepSpeed: what it keeps on the host and on the drive after its second step, what it reads and
writes in that step, and what it ends with an error for, are those of the prediction.

    nvme_test.py STUB FSDP_PLAN [more]      run by a Python that has torch and DeepSpeed; exit 77 without DeepSpeed
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest
from typing import Any

if importlib.util.find_spec("deepspeed") is None:
    print("This needs DeepSpeed. Write: ./scripts/rehearsal_env deepspeed, and have PYTHONPATH lead there.", file=sys.stderr)
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[1] / "support")]
import plan_runner_test as plans  # noqa: E402
from command import Refused, run  # noqa: E402
from plan_cases import Case, write_case  # noqa: E402
from plan_cases_nvme import NVME_CASES, NVME_MORE_CASES  # noqa: E402

# The runner, which writes down after each step what storages there are on the CPU, and what has gone to the drive.
THEN_COUNT = '''
import gc, json, runpy, sys

import torch
from fsdp_plan_runner import nvme, training

target = sys.argv.pop(1)
run = training.run_engine_step
steps = []


def run_and_count(root, batch, plan):
    run(root, batch, plan)
    storages = {}
    for tensor in gc.get_objects():
        if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
            storage = tensor.untyped_storage()
            kind = "locked" if storage.data_ptr() in nvme.FILES.locked else "pinned" if tensor.is_pinned() else "loose"
            storages[storage.data_ptr()] = (kind, storage.nbytes())
    steps.append({"storages": list(storages.values()), "read": nvme.FILES.traffic.read, "written": nvme.FILES.traffic.written,
                  "kept": sum(nvme.FILES.sizes.values())})
    with open(target, "w", encoding="utf-8") as file:
        json.dump(steps, file)


training.run_engine_step = run_and_count
runpy.run_module("fsdp_plan_runner", run_name="__main__", alter_sys=True)
'''

CASES = [*NVME_CASES, *(NVME_MORE_CASES if "more" in sys.argv[3:] else [])]
NUMBERS = 1 << 16  # Bytes of single numbers: norms, seeds, step counts.


class DriveTraffic(unittest.TestCase):
    def check(self, case: Case) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            spec_file, plan_file = write_case(case, plans.LIBRARY, folder)
            predicted = plans.predict(case, plan_file)
            counted = folder / "counted.json"
            plans.rehearse(plans.write_job(case, predicted, spec_file, folder), folder / "record.json", case.rank, case.shard,
                           ("-c", THEN_COUNT, str(counted)))
            first, second = json.loads(counted.read_text(encoding="utf-8"))[:2]
        drive = predicted["memory"]["drive"]
        # For a node with all ranks, which have files of one size but where a parameter does not divide.
        for key, measured in (("read_bytes", second["read"] - first["read"]), ("written_bytes", second["written"] - first["written"]),
                              ("kept_bytes", second["kept"])):
            print(f"{case.name:28} {key:14} {measured:14} {drive[key] // case.shard - measured:+}", flush=True)
            self.assertEqual(drive[key], case.shard * measured, key)
        self.check_host(case, predicted["memory"]["host"]["terms"], second["storages"])

    def check_host(self, case: Case, terms: list[dict[str, Any]], storages: list[tuple[str, int]]) -> None:
        if any(term["name"] == "model while it is made" for term in terms):
            return  # Then the terms of training are not said.
        measured = {kind: sum(size for each, size in storages if each == kind) for kind in ("locked", "loose")}
        locked = sum(term["bytes"] for term in terms if term["source"].startswith("page-locked")) // case.shard
        # Temporaries are gone by then.
        loose = sum(term["bytes"] for term in terms if term["source"] == "not pinned" and term["name"] != "temporaries") // case.shard
        print(f"{case.name:28} locked {measured['locked']:14} {locked - measured['locked']:+} "
              f"not pinned {measured['loose']:14} {loose - measured['loose']:+}", flush=True)
        self.assertEqual(locked, measured["locked"])
        self.assertTrue(0 <= measured["loose"] - loose <= NUMBERS, f"{measured['loose']} bytes, and {loose} are predicted")


class ErrorsOfDeepSpeed(unittest.TestCase):
    """A plan that is refused is trained all the same, by the job of one that is not."""

    def check(self, name: str, changes: dict[str, Any], words: str, error: str) -> None:
        case = next(each for each in [*NVME_CASES, *NVME_MORE_CASES] if each.name == f"zero3_nvme_{name}")
        with tempfile.TemporaryDirectory() as folder_name:
            folder = pathlib.Path(folder_name)
            spec_file, plan_file = write_case(case, plans.LIBRARY, folder)
            job_file = plans.write_job(case, plans.predict(case, plan_file), spec_file, folder)
            refused = json.loads(plan_file.read_text(encoding="utf-8"))
            job = json.loads(job_file.read_text(encoding="utf-8"))
            for plan in (refused, job["plan"]):
                plan["zero"]["nvme"].update(changes)
            plan_file.write_text(json.dumps(refused), encoding="utf-8")
            job_file.write_text(json.dumps(job), encoding="utf-8")
            with self.assertRaises(Refused) as said:
                run(plans.PROGRAM, "simulate", plan_file, "--gpu", case.gpu, "--gpus", str(case.shard))
            self.assertIn(words, str(said.exception))
            with self.assertRaises(AssertionError) as ended:
                plans.rehearse(job_file, folder / "record.json", case.rank, case.shard)
            self.assertIn(error, str(ended.exception))

    def test_too_few_buffers_of_the_optimizer(self) -> None:
        self.check("opt", {"buffer_count": 3}, "The optimizer needs 4 buffers at once, and there are 3.", "pinned_buffers is not None")

    def test_too_few_for_a_pipeline(self) -> None:
        self.check("pipelined", {"buffer_count": 7}, "The optimizer needs 8 buffers at once, and there are 7.",
                   "ran out of swap buffers")

    def test_too_small_buffers_of_parameters(self) -> None:
        self.check("parameters", {"param_buffer_size": 1_000_000}, "a buffer 1000000", "More elements")

    def test_too_few_buffers_of_parameters(self) -> None:
        self.check("parameters", {"param_buffer_count": 0}, "are in buffers at once, and there are 0", "No swap buffers to allocate")


for _case in CASES:
    setattr(DriveTraffic, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
