"""`export PLAN --to deepspeed`: the real DeepSpeed is given the file and nothing else of the plan's configuration, and trains on
the stub GPU. Its collectives and peaks are those of the plan.

    export_deepspeed_test.py STUB FSDP_PLAN      run by a Python that has torch and DeepSpeed; exit 77 without DeepSpeed
"""

from __future__ import annotations

import importlib.util
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
from command import run  # noqa: E402
from plan_cases import Case, checkpointed, write_case  # noqa: E402
from plan_cases_zero import BF16, CLIP, FP16, FP32, PLAIN_SGD, PURE_BF16, SMALL, TWICE, VIT, buckets, zero_case  # noqa: E402

# The runner, with the file in the place of what it makes of the plan itself. The norm is computed whether or not anything is
# clipped, so that neither bytes nor collectives show the limit: the engine is asked.
WITH_THE_FILE = '''
import json, runpy, sys
from fsdp_plan_runner import zero

with open(sys.argv.pop(1), encoding="utf-8") as file:
    exported = json.load(file)
zero.configuration_of = lambda plan: exported
start = zero.start_engine


def start_engine(root, optimizer, plan):
    start(root, optimizer, plan)
    limit = root.wrapper[0].gradient_clipping()
    if limit != (plan.optimizer.clip_grad_norm or 0):
        sys.exit(f"The plan clips at {plan.optimizer.clip_grad_norm}, and the engine at {limit}.")
    # Nor do they show by how much a loss is scaled.
    scaling = root.wrapper[0]._config.float16_config
    wrong = {key: value for key, value in (plan.zero.fp16 or {}).items() if getattr(scaling, key) != value}
    if wrong:
        sys.exit(f"The plan scales by {wrong}, and the engine by {scaling}.")


zero.start_engine = start_engine
runpy.run_module("fsdp_plan_runner", run_name="__main__", alter_sys=True)
'''

CASES = [
    zero_case(1, "clipped", "gpt2", 4, {**BF16, **CLIP, **TWICE}, SMALL),
    # Nothing is clipped, which the file has to say.
    zero_case(1, "plain", "vit_b_16", 4, {**FP32, **PLAIN_SGD}, VIT, buckets(4_000_000), layers=4),
    zero_case(2, "overlapped", "gpt2", 3, {**BF16, **CLIP, **TWICE}, SMALL, buckets(5_000_000, overlap=True), rank=2),
    zero_case(2, "checkpointed", "llama3_2_1b", 4,
              {**BF16, "initialization": "meta", "activation_checkpointing": checkpointed("full"),
               "optimizer": {"implementation": "fused"}}, {"batch": 1, "seq": 1024}, buckets(50_000_000)),
    zero_case(2, "offloaded", "gpt2", 4, {**BF16, **CLIP, **TWICE, "cpu_offload": True}, SMALL),
    zero_case(3, "all_offloaded", "vit_b_16", 4, {**FP32, **PLAIN_SGD, "initialization": "meta", "cpu_offload": True}, VIT,
              {"offload_param": True, "reduce_bucket_size": 4_000_000}, layers=4, requested=0.00001, allocated=0.006),
    zero_case(3, "half_offloaded", "gpt2", 2, {**BF16, "initialization": "meta", "cpu_offload": True}, SMALL,
              {"sub_group_size": 1_000_000, "offload_ratio": 0.5}),
    zero_case(3, "on_a_drive", "gpt2", 2, {**BF16, "initialization": "meta", "cpu_offload": True}, SMALL,
              {"offload_param": True, "max_reuse_distance": 0, "prefetch_bucket_size": 0, "sub_group_size": 20_000_000,
               "nvme": {"path": f"{tempfile.gettempdir()}/fsdp-plan-nvme", "optimizer": True, "buffer_count": 8, "pipeline_read": True,
                        "parameters": True, "param_buffer_count": 3, "param_buffer_size": 30_000_000, "max_in_cpu": 1_000_000,
                        "block_size": 2 << 20, "intra_op_parallelism": 2}}),
    zero_case(2, "scaled", "gpt2", 2, {**FP16, **CLIP}, SMALL,
              {"fp16": {"loss_scale": 128.0, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 3,
                        "consecutive_hysteresis": True, "min_loss_scale": 4}}),
    zero_case(2, "pure", "gpt2", 3, {**PURE_BF16, **CLIP}, SMALL, buckets(5_000_000)),
    # Every threshold is another one than DeepSpeed's own.
    zero_case(3, "sharded", "llama3_2_1b", 4, {**BF16, **CLIP, **TWICE, "initialization": "meta"}, SMALL,
              {"reduce_bucket_size": 40_000_000, "prefetch_bucket_size": 20_000_000, "param_persistence_threshold": 3000,
               "max_live_parameters": 100_000_000, "max_reuse_distance": 5_000_000, "sub_group_size": 30_000_000,
               "hpz_partition_size": 2, "quantized_weights": True}),
]


class ExportedPlansUnderDeepSpeed(unittest.TestCase):
    compare_memory = plans.PlansUnderTheRealPyTorch.compare_memory  # Not its base: that one has tests of its own.

    def check(self, case: Case) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            spec_file, plan_file = write_case(case, plans.LIBRARY, folder)
            predicted = plans.predict(case, plan_file)
            exported = folder / "ds_config.json"
            run(plans.PROGRAM, "export", plan_file, "--gpu", case.gpu, "--gpus", str(case.shard), "--to", "deepspeed", "-o", exported)
            job_file = plans.write_job(case, predicted, spec_file, folder)
            measured = plans.rehearse(job_file, folder / "record.json", case.rank, case.shard,
                                      ("-c", WITH_THE_FILE, str(exported)))
        self.assertEqual(plans.collectives_of(measured["collectives"]["steady_step"]),
                         plans.collectives_of(predicted["traffic"]["collectives"]))
        self.compare_memory(case, measured["memory"], predicted["memory"])


for _case in CASES:
    setattr(ExportedPlansUnderDeepSpeed, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
