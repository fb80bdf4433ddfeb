"""`--deepspeed FILE`: what the program takes from a file is what the real DeepSpeed's own reader takes from it, and what that
refuses the program refuses.

    import_deepspeed_test.py FSDP_PLAN      run by a Python that has torch and DeepSpeed; exit 77 without DeepSpeed
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
from typing import Any
from unittest import mock

if importlib.util.find_spec("deepspeed") is None:
    print("This needs DeepSpeed. Write: ./scripts/rehearsal_env deepspeed, and have PYTHONPATH lead there.", file=sys.stderr)
    sys.exit(77)

sys.dont_write_bytecode = True
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
Config = dict[str, Any]
QUANTIZED = ("quantized_weights", "quantized_gradients")

# As they stand in the documentation of DeepSpeed and of transformers, and in users' repositories, but for sizes.
FILES: dict[str, Config] = {
    "least": {"train_batch_size": 8, "zero_optimization": {"stage": 1}},
    "tutorial": {"train_batch_size": 16, "gradient_accumulation_steps": 2, "steps_per_print": 2000,
                 "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}},
                 "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.001, "warmup_num_steps": 1000}},
                 "gradient_clipping": 0.7, "prescale_gradients": False, "bf16": {"enabled": True}, "wall_clock_breakdown": False,
                 "zero_optimization": {"stage": 2, "allgather_partitions": True, "allgather_bucket_size": 5e8, "overlap_comm": True,
                                       "reduce_scatter": True, "contiguous_gradients": True, "reduce_bucket_size": 5e7}},
    "stage3": {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "gradient_clipping": 0,
               "zero_optimization": {"stage": 3, "overlap_comm": True, "contiguous_gradients": True, "sub_group_size": 1e9,
                                     "reduce_bucket_size": 4194304, "stage3_prefetch_bucket_size": 3774873,
                                     "stage3_param_persistence_threshold": 20480, "stage3_max_live_parameters": 1e9,
                                     "stage3_max_reuse_distance": 1e8, "stage3_gather_16bit_weights_on_model_save": True}},
    "trainer": {"fp16": {"enabled": False, "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
                         "min_loss_scale": 1},
                "bf16": {"enabled": True}, "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,
                "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none", "pin_memory": True},
                                      "offload_param": {"device": "none", "pin_memory": True}}},
    "offload": {"train_batch_size": 8, "bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
                "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 5e7}},
    "offload_all": {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
                    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": False, "ratio": 0.25},
                                          "offload_param": {"device": "cpu", "pin_memory": False}}},
    "infinity": {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
                 "aio": {"block_size": 2097152, "queue_depth": 32, "intra_op_parallelism": 2, "single_submit": False},
                 "zero_optimization": {"stage": 3, "sub_group_size": 1e8,
                                       "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme", "buffer_count": 13,
                                                             "pipeline_read": True, "pipeline_write": True},
                                       "offload_param": {"device": "nvme", "nvme_path": "/nvme", "buffer_count": 6,
                                                         "buffer_size": 2e7, "max_in_cpu": 1e6}}},
    "all_three": {"train_batch_size": 24, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2,
                  "zero_optimization": {"stage": 2, "overlap_comm": False}},
    "fp16": {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0,
             "fp16": {"enabled": True, "auto_cast": False, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 200,
                      "hysteresis": 3, "consecutive_hysteresis": True, "min_loss_scale": 2},
             "zero_optimization": {"stage": 2}},
    "plus_plus": {"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": True},
                  "zero_optimization": {"stage": 3, "zero_quantized_weights": True, "zero_quantized_gradients": True}},
    "neighbors": {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
                  "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2}},
    "pure_bf16": {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3},
                  "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}},
    "fp32": {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 1}},
}  # fmt: skip

# One key of the file, and values that DeepSpeed takes or refuses: which, it says itself.
DRAWN: list[tuple[str, list[Any]]] = [
    ("train_batch_size", [8, 12, 16, 32, 7, 0, "8", None]),
    ("train_micro_batch_size_per_gpu", [1, 2, 4, 3, -1, None]),
    ("gradient_accumulation_steps", [1, 2, 4, 3, 0, None]),
    ("gradient_clipping", [0, 0.5, 1, 2.5]),
    ("bf16", [{"enabled": True}, {"enabled": False}, {}, {"enabld": True}]),
    ("fp16", [{"enabled": True}, {"enabled": False, "loss_scale": 3}, {"enabled": True, "loss_scale": 128, "loss_scale_window": 0},
              {"enabled": True, "loss_scale": -1}, {"enabled": True, "min_loss_scale": 0}, {"enabled": True, "hystersis": 2},
              {"enabled": True, "initial_scale_power": 8}]),
    ("steps_per_print", [1, 10]),
    ("zero_optimization/stage", [1, 2, 3, 4, "two"]),
    ("zero_optimization/reduce_bucket_size", [1, 1000, 2e6, 5e8, 0, -4, 1.5, "much"]),
    ("zero_optimization/overlap_comm", [True, False, None]),
    ("zero_optimization/stage3_prefetch_bucket_size", [0, 5000, 3e7, -1]),
    ("zero_optimization/stage3_param_persistence_threshold", [0, 10, 1e5, -1]),
    ("zero_optimization/stage3_max_live_parameters", [0, 1e8, 2000, -1]),
    ("zero_optimization/stage3_max_reuse_distance", [0, 1e8, 2000, -1]),
    ("zero_optimization/sub_group_size", [1000, 1e9, -1]),
    ("zero_optimization/offload_optimizer", [{"device": "cpu"}, {"device": "none"}, {"device": "cpu", "ratio": 2}, {}, {"device": "disk"}, {"divice": "cpu"}, None]),
    ("zero_optimization/zero_hpz_partition_size", [0, 1, -1]),
    ("zero_optimization/mics_shard_size", [2]),
    ("zero_optimization/overlapcomm", [True]),
    ("elasticity", [{"enabled": True}]),
]


def real(config: Config, world: int) -> DeepSpeedConfig | None:
    """What DeepSpeed makes of it; None: it refuses it."""
    with mock.patch.object(comm, "get_world_size", lambda *_: world), mock.patch.object(comm, "get_rank", lambda *_: 0):
        try:
            return DeepSpeedConfig(copy.deepcopy(config))
        except Exception:  # Exceptions of many kinds, assertions among them.
            return None


def ours(config: Config, world: int, folder: pathlib.Path) -> Config | str:
    """The plan, or what is said in its place."""
    (folder / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    # DeepSpeed quantizes what each GPU can have in eights.
    is_quantized = config["zero_optimization"].get("zero_quantized_weights", False)
    words = [*(("llama3_2_1b", "--seq", "128") if is_quantized else ("mlp",)), "--deepspeed", str(folder / "ds.json"), "--gpus", str(world), "--gpu", "H100 SXM", "--json"]
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=600)
    return done.stderr if done.returncode == 2 else json.loads(done.stdout)["plan"]


def is_on_host(part: Any) -> bool:
    return part is not None and part.device in ("cpu", "nvme")


def on_drive_by(config: DeepSpeedConfig) -> Config:
    optimizer, param = config.zero_config.offload_optimizer, config.zero_config.offload_param
    said: Config = {}
    if optimizer.device == "nvme":
        said |= {"path": str(optimizer.nvme_path), "optimizer": True,
                 **{key: getattr(optimizer, key) for key in ("buffer_count", "pipeline_read", "pipeline_write")}}
    if param is not None and param.device == "nvme":
        said |= {"path": str(param.nvme_path), "parameters": True, "param_buffer_count": param.buffer_count,
                 "param_buffer_size": param.buffer_size, "max_in_cpu": param.max_in_cpu}
    return {**said, **{key: config.aio_config[key] for key in ("block_size", "intra_op_parallelism") if said}}


def said_by(config: DeepSpeedConfig) -> Config:
    zero = config.zero_config
    said = {"batch": config.train_micro_batch_size_per_gpu, "accumulation": config.gradient_accumulation_steps,
            "clip": config.gradient_clipping or None, "bf16": config.bfloat16_config.enabled, "stage": int(zero.stage),
            "pure": config.bfloat16_config.bf16_optimizer_states, "fp16": config.float16_config.enabled,
            "reduce_bucket_size": zero.reduce_bucket_size, "overlap_comm": zero.overlap_comm,
            **({"pin_memory": zero.offload_optimizer.pin_memory} if is_on_host(zero.offload_optimizer) else {})}  # fmt: skip
    if config.float16_config.enabled:
        said["scaling"] = config.float16_config.model_dump(exclude={"enabled", "fp16_master_weights_and_grads"})
        if config.float16_config.loss_scale:  # The others say nothing then.
            said["scaling"] = {key: said["scaling"][key] for key in ("auto_cast", "loss_scale")}
    if zero.stage == 3:
        said |= {key: getattr(zero, key) for key in ("prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters",
                                                     "max_reuse_distance", "sub_group_size")}  # fmt: skip
        said["hpz_partition_size"] = max(zero.zero_hpz_partition_size, 1)
        said |= {key: getattr(zero, f"zero_{key}") for key in QUANTIZED}
        if is_on_host(zero.offload_optimizer):
            said["offload_param"] = is_on_host(zero.offload_param)
            said["offload_ratio"] = zero.offload_optimizer.ratio
            said["nvme"] = on_drive_by(config)
    return said


def said_in(plan: Config) -> Config:
    stage = int(plan["runtime"]["name"][-1])
    said = {"batch": plan["model"]["dimensions"]["batch"], "accumulation": plan["accumulation"],
            "clip": plan["optimizer"]["clip_grad_norm"], "stage": stage,
            "bf16": "bfloat16" in (plan["mixed_precision"]["param_dtype"], plan["parameter_dtype"]),
            "pure": plan["parameter_dtype"] == "bfloat16", "fp16": plan["mixed_precision"]["param_dtype"] == "float16",
            "reduce_bucket_size": plan["zero"]["reduce_bucket_size"], "overlap_comm": plan["zero"]["overlap_comm"],
            **{key: plan["zero"][key] for key in ("pin_memory", "offload_param", "offload_ratio") if plan["cpu_offload"] and key in plan["zero"]}}  # fmt: skip
    if "fp16" in plan["zero"]:
        said["scaling"] = plan["zero"]["fp16"]
        if said["scaling"]["loss_scale"]:
            said["scaling"] = {key: said["scaling"][key] for key in ("auto_cast", "loss_scale")}
    if stage == 3 and plan["cpu_offload"]:
        said["nvme"] = plan["zero"].get("nvme", {})
    if stage == 3:
        said |= {key: plan["zero"][key] for key in ("prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters",
                                                    "max_reuse_distance", "sub_group_size", "hpz_partition_size")}  # fmt: skip
        said |= {key: plan["zero"].get(key, False) for key in QUANTIZED}
    return said


class ConfigurationsOfDeepSpeed(unittest.TestCase):
    def test_files_are_read_as_deepspeed_reads_them(self) -> None:
        for name, config in FILES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                theirs = real(config, 4)
                plan = ours(config, 4, pathlib.Path(folder))
                self.assertIsNotNone(theirs)
                self.assertIsInstance(plan, dict, plan)
                self.assertEqual(said_in(plan), said_by(theirs))

    def test_changed_files_are_accepted_and_refused_alike(self) -> None:
        draw = random.Random(19)
        taken = refused = 0
        for number in range(150):
            # What DeepSpeed takes of offload_param and ZeRO++ and does nothing with is refused here.
            config = copy.deepcopy(draw.choice([file for name, file in FILES.items() if name not in ("offload_all", "infinity", "neighbors", "plus_plus")]))
            world = draw.choice([1, 2, 4])
            for key, values in draw.sample(DRAWN, 2):
                part = config if "/" not in key else config["zero_optimization"]
                value = draw.choice(values)
                name = key.rsplit("/", maxsplit=1)[-1]
                if value is None:
                    part.pop(name, None)
                else:
                    part[name] = value
            # A file without a size of a batch is one that DeepSpeed does not take, and here the batch is planned.
            if not {"train_batch_size", "train_micro_batch_size_per_gpu"} & set(config):
                continue
            with self.subTest(number), tempfile.TemporaryDirectory() as folder:
                theirs, plan = real(config, world), ours(config, world, pathlib.Path(folder))
                self.assertEqual(theirs is None, isinstance(plan, str), f"{config} on {world}: {plan}")
                if theirs is None:
                    refused += 1
                    continue
                taken += 1
                self.assertEqual(said_in(plan), said_by(theirs), config)
        print(f"{taken} files are read alike, and {refused} are refused by both.", flush=True)
        self.assertGreater(min(taken, refused), 20)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
