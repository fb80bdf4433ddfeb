"""The object of a plan file with its rows of names unfolded and its defaults filled in (core/plan/plan.h)."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

_RANGE = re.compile(r"^([^{}]*)\{(\d+)\.\.(\d+)(?:\.\.(\d+))?\}([^{}]*)$")


def unfold(text: str) -> list[str]:
    """The names of a row: "layers.{0..2}" is layers.0, layers.1, layers.2; a third number is the step."""
    if "{" not in text and "}" not in text:
        return [text]
    match = _RANGE.match(text)
    if not match:
        raise ValueError(f'"{text}" is not a row of names such as "model.layers.{{0..27}}"')
    before, first, last, step, after = match.groups()
    if int(last) < int(first) or step == "0":
        raise ValueError(f'"{text}" is a range that does not rise')
    return [f"{before}{number}{after}" for number in range(int(first), int(last) + 1, int(step or 1))]


@dataclasses.dataclass(frozen=True)
class Unit:
    modules: tuple[str, ...]
    reshard_after_forward: bool | int | None  # None for FSDP2's default.


@dataclasses.dataclass(frozen=True)
class MixedPrecision:
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    output_dtype: str | None = None
    cast_forward_inputs: bool = True
    autocast: str | None = None
    float_outputs: bool = False


@dataclasses.dataclass(frozen=True)
class Optimizer:
    kind: str = "adamw"
    implementation: str = "foreach"
    states: str = "as_parameter"
    weight_decay: float = 0.01
    momentum: float = 0.0
    clip_grad_norm: float | None = None
    muon: dict[str, Any] | None = None  # Only for captured scripts, which have their own.


@dataclasses.dataclass(frozen=True)
class Ddp:
    bucket_cap_mb: int | None = None  # None for PyTorch's own.
    gradient_as_bucket_view: bool = False
    broadcast_buffers: bool = True
    find_unused_parameters: bool = False


@dataclasses.dataclass(frozen=True)
class Fsdp1:
    backward_prefetch: str = "pre"
    forward_prefetch: bool = False
    limit_all_gathers: bool = True
    use_orig_params: bool = False
    buffer_dtype: str | None = None
    cast_root_forward_inputs: bool = True


@dataclasses.dataclass(frozen=True)
class Nvme:
    """Keys of "offload_optimizer", "offload_param" and "aio" that concern a drive."""

    path: str = "/local_nvme"
    optimizer: bool = False
    buffer_count: int = 4
    pipeline_read: bool = False
    pipeline_write: bool = False
    parameters: bool = False
    param_buffer_count: int = 5
    param_buffer_size: int = 100_000_000
    max_in_cpu: int = 1_000_000_000
    block_size: int = 1 << 20
    intra_op_parallelism: int = 1


@dataclasses.dataclass(frozen=True)
class Zero:
    """Keys of DeepSpeed's "zero_optimization", and its section "fp16". None for DeepSpeed's own."""

    reduce_bucket_size: int | None = None
    overlap_comm: bool | None = None
    sub_group_size: int | None = None
    prefetch_bucket_size: int | None = None
    param_persistence_threshold: int | None = None
    model_persistence_threshold: int | None = None
    max_live_parameters: int | None = None
    max_reuse_distance: int | None = None
    hpz_partition_size: int | None = None  # DeepSpeed prefixes these with "zero_".
    quantized_weights: bool | None = None
    quantized_gradients: bool | None = None
    pin_memory: bool | None = None  # These two apply with cpu_offload, and have other places in DeepSpeed's configuration.
    offload_param: bool | None = None
    offload_ratio: float | None = None
    nvme: Nvme | None = None
    fp16: dict[str, Any] | None = None


# Keys of ZeRO-3 only. DeepSpeed prefixes all but the first and those of ZeRO++ with "stage3_".
ZERO3_KEYS = ("sub_group_size", "prefetch_bucket_size", "param_persistence_threshold", "model_persistence_threshold",
              "max_live_parameters", "max_reuse_distance", "hpz_partition_size", "quantized_weights", "quantized_gradients")
# Keys of ZeRO++.
PLUS_KEYS = ("hpz_partition_size", "quantized_weights", "quantized_gradients")
# Keys of cpu_offload that are no keys of "zero_optimization" itself.
OFFLOAD_KEYS = ("pin_memory", "offload_param", "offload_ratio", "nvme")


@dataclasses.dataclass(frozen=True)
class Implementations:
    rms_norm: str = "written_out"
    rotary: str = "halves"
    attention: str = "automatic"
    loss: str = "pytorch"
    loss_chunks: int = 0  # 0 for the library's own number.
    repeat_kv: bool = False
    upcast_logits: bool = True
    keep_logits: bool = False
    float_logits: bool = False  # The expanded model already contains both of these:
    loss_after_root: bool = False  # a cast, and "after_root".
    use_cache: bool = True
    titan_attention: bool = False  # The expanded model has it,
    automodel_decoders: bool = False  # this,
    lora_in_one_op: bool = False  # and this.
    norm_in_float64: bool = False
    padding_mask: bool = False  # So does this: a value of the model.
    prefer_cudnn_attention: bool = False
    cudnn_allow_tf32: bool = True
    matmul_allow_tf32: bool = False


# The implementations that a flavor sets (core/plan/runtime.cpp). A plan file has them all; one written by hand may not.
FLAVORS: dict[str, dict[str, Any]] = {
    "transformers": {},
    "transformers-repeat-kv": {"repeat_kv": True},
    "torchtitan": {"rms_norm": "fused", "rotary": "complex", "use_cache": False, "loss_after_root": True},
    "torchtitan-0.3": {"rms_norm": "fused", "rotary": "complex", "titan_attention": True, "use_cache": False, "loss_after_root": True},
    "automodel": {"automodel_decoders": True, "lora_in_one_op": True, "norm_in_float64": True, "loss_after_root": True},
    "automodel-hf": {"lora_in_one_op": True, "norm_in_float64": True, "loss_after_root": True},
}

# The real PyTorch's behavior, for which a plan may request a different prediction.
QUIRKS: dict[str, Any] = {
    "forward_all_gather_output_kept": True, "last_gradient_kept_in_reduce": True, "all_reduce_output_kept": True,
    "clip_reduces_each_norm": True, "skip_collectives_of_one": True, "cublaslt_workspace_bytes": 1 << 20,
}
# Differences of releases (core/plan/torch_version.cpp).
QUIRKS_OF: dict[str, dict[str, Any]] = {
    "2.8": {"clip_reduces_each_norm": False, "skip_collectives_of_one": False},
    "2.9": {"clip_reduces_each_norm": False},
    "2.15": {"forward_all_gather_output_kept": False, "last_gradient_kept_in_reduce": False},
}


def minor_of(version: str) -> str:
    """"2.13" for "2.13.0": a patch release changes nothing that is predicted."""
    return ".".join(version.split(".")[:2])


def quirks_of(version: str) -> dict[str, Any]:
    """The quirks of a release of PyTorch."""
    return {**QUIRKS, **QUIRKS_OF.get(minor_of(version), {})}


class Plan:
    """The contents of a plan file. Raises ValueError for invalid rows of names, KeyError for a missing required key."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.fingerprint: str = value["model"].get("fingerprint", "")
        self.replicate: int = value["mesh"]["replicate"]
        self.shard: int = value["mesh"]["shard"]
        self.expert_parallel: int = value["mesh"].get("ep", 1)
        self.units = [unit for row in value["units"] for unit in _units(row)]
        self.parameter_dtype: str | None = value.get("parameter_dtype")
        self.mixed_precision = MixedPrecision(**value.get("mixed_precision", {}))
        checkpointing = value.get("activation_checkpointing", {})
        self.checkpointed: dict[str, str] = {
            name: row["mode"] for row in checkpointing.get("modules", []) for name in unfold(row["module"])
            if row["mode"] != "none"}
        self.selective_keep: list[str] = checkpointing.get("selective_keep", ["attention", "linear"])
        self.every_second_linear: bool = checkpointing.get("every_second_linear", True)
        self.early_stop: bool = checkpointing.get("early_stop", True)
        self.offload_inputs: bool = checkpointing.get("offload_inputs", False)
        self.cpu_offload: bool = value.get("cpu_offload", False)
        self.forward_prefetch: int = value.get("forward_prefetch", 0)
        self.backward_prefetch: int = value.get("backward_prefetch", 1)
        self.reduce_scatter_buffers: int = value.get("reduce_scatter_buffers", 1)
        self.separate_reduce_scatter_group: bool = value.get("separate_reduce_scatter_group", False)
        self.cuda_graphs: bool = value.get("cuda_graphs", False)
        # For weights that are gathered in 8 bits.
        self.precomputes_scales: bool = "precompute" in value["model"].get("float8", "").split(",")
        self.accumulation: int = value.get("accumulation", 1)
        self.sync_every_micro_batch: bool = value.get("sync_every_micro_batch", True)
        self.optimizer = Optimizer(**value.get("optimizer", {}))
        self.initialization: str = value.get("initialization", value.get("initialisation", "meta"))
        runtime = value.get("runtime", {})
        self.runtime_name: str = runtime.get("name", "pytorch-fsdp2")
        self.ddp = Ddp(**value.get("ddp", {}))
        self.fsdp1 = Fsdp1(**value.get("fsdp1", {}))
        zero = value.get("zero", {})
        self.zero = Zero(**{**zero, "nvme": Nvme(**zero["nvme"]) if "nvme" in zero else None})
        self.runtime_version: str = runtime.get("version", "2.11.0")
        self.flavor: str = runtime.get("flavor", runtime.get("flavour", "transformers"))
        self.allocator_settings: str = runtime.get("allocator_settings", "")
        self.implementations = Implementations(
            **{**FLAVORS.get(self.flavor, {}), **_renamed(runtime.get("implementations", {}))})
        if self.checkpointed:
            self.implementations = dataclasses.replace(self.implementations, use_cache=False)
        self.quirks: dict[str, Any] = {**quirks_of(self.runtime_version), **runtime.get("quirks", {})}

    @property
    def world_size(self) -> int:
        return self.replicate * self.shard

    @property
    def is_simple_fsdp(self) -> bool:
        return self.runtime_name == "torchtitan-simple-fsdp"

    @property
    def zero_stage(self) -> int:
        """DeepSpeed's stage; 0 for every other framework."""
        return int(self.runtime_name[-1]) if self.runtime_name.startswith("deepspeed-zero") else 0


def _renamed(implementations: dict[str, Any]) -> dict[str, Any]:
    """With the names of this version."""
    return {"loss" if key == "cross_entropy" else key: value for key, value in implementations.items()}


def _units(row: dict[str, Any]) -> list[Unit]:
    """An entry of `units`: one unit, or a row of them with `modules_per_unit` modules each."""
    names = [name for text in row["modules"] for name in unfold(text)]
    reshard = row.get("reshard_after_forward", "default")
    size = row.get("modules_per_unit", len(names))
    return [Unit(tuple(names[i:i + size]), None if reshard == "default" else reshard)
            for i in range(0, len(names), size)]
