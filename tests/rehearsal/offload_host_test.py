"""What the real DeepSpeed keeps in host memory with offload: the tensors on the CPU that are alive after its second step, pinned and
not, are those of the prediction.

    offload_host_test.py STUB FSDP_PLAN      run by a Python that has torch and DeepSpeed; exit 77 without DeepSpeed
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest

if importlib.util.find_spec("deepspeed") is None:
    print("This needs DeepSpeed. Write: ./scripts/rehearsal_env deepspeed, and have PYTHONPATH lead there.", file=sys.stderr)
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[1] / "support")]
import plan_runner_test as plans  # noqa: E402
from plan_cases import Case, write_case  # noqa: E402
from plan_cases_offload import OFFLOAD_CASES, OFFLOAD_MORE_CASES  # noqa: E402

# The runner, which writes down after two steps what storages there are on the CPU.
THEN_COUNT = '''
import gc, json, runpy, sys

import torch
from fsdp_plan_runner import training

target = sys.argv.pop(1)
run = training.run_engine_step
steps = 0


def run_and_count(root, batch, plan):
    global steps
    run(root, batch, plan)
    steps += 1
    if steps != 2:
        return
    storages = {}
    for tensor in gc.get_objects():
        if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = (storage.nbytes(), tensor.is_pinned())
    with open(target, "w", encoding="utf-8") as file:
        json.dump([row for row in storages.values() if row[0] > 0], file)


training.run_engine_step = run_and_count
runpy.run_module("fsdp_plan_runner", run_name="__main__", alter_sys=True)
'''

WANTED = ("zero2_offload_gpt2", "zero1_offload_sgd", "zero3_offload_all_frozen", "zero2_offload_pure", "zero3_offload_pure")
CASES = [case for case in [*OFFLOAD_CASES, *OFFLOAD_MORE_CASES] if case.name in WANTED]
NUMBERS = 1 << 16  # Bytes of single numbers: norms, seeds, step counts.


def block(size: int) -> int:
    return 1 << (size - 1).bit_length()


class HostMemoryOfDeepSpeed(unittest.TestCase):
    def check(self, case: Case) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            spec_file, plan_file = write_case(case, plans.LIBRARY, folder)
            predicted = plans.predict(case, plan_file)
            job_file = plans.write_job(case, predicted, spec_file, folder)
            counted = folder / "counted.json"
            plans.rehearse(job_file, folder / "record.json", case.rank, case.shard, ("-c", THEN_COUNT, str(counted)))
            storages = json.loads(counted.read_text(encoding="utf-8"))
        terms = {term["name"]: (term["bytes"], term["source"]) for term in predicted["memory"]["host"]["terms"]}
        # Temporaries are gone by then.
        loose = sum(size for name, (size, source) in terms.items() if source == "not pinned" and name != "temporaries") // case.shard
        measured = sum(size for size, is_pinned in storages if not is_pinned)
        print(f"{case.name:28} not pinned {measured:12} {measured - loose:+}", flush=True)
        self.assertTrue(0 <= measured - loose <= NUMBERS, f"{measured} bytes are there, and {loose} are predicted: {storages}")
        # For parameters by themselves the blocks are left, and no tensors but those of frozen ones.
        if case.plan["zero"].get("offload_param"):
            return
        pinned = sum(block(size) for size, is_pinned in storages if is_pinned)
        self.assertEqual(pinned, predicted["memory"]["host_pinned_bytes"])


for _case in CASES:
    setattr(HostMemoryOfDeepSpeed, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
