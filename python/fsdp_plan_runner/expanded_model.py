"""An expanded model as `fsdp-plan models NAME --expanded` writes it. Its keys are described in docs/file_formats.md."""

from __future__ import annotations

import dataclasses
from typing import Any

FORMAT_VERSION = "1.0"

# The defaults of an op's attributes: a model leaves out attributes with these values.
DEFAULT_ATTRIBUTES: dict[str, Any] = {
    "heads": 0, "kv_heads": 0, "head_dim": 0, "causal": False, "window": 0, "softcap": 0.0, "score_scale": 0.0,
    "probability": 0.0, "packed": "none", "documents": (), "rope_theta": 10000.0, "rope_scaling": "none", "rope_factor": 1.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_positions": 8192, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True,
    "attention_factor": 1.0, "eps": 0.0, "momentum": 0.1, "partial_rotary": False, "interleaved": False, "by_halves": False,
    "as_complex": False, "from_cache": False, "of_positions": False, "one_op": False, "in_float": False, "wide": False,
    "unit_offset": False, "brief": False, "wide_weight": False, "as_trained": False, "unless_autocast": False, "approximate": False, "written_out": False, "transposed_weight": False,
    "shift": False, "padding_idx": -1, "reflect": False, "keep_dim": False, "dim": -1, "other_dim": -1, "start": 0,
    "length": 0, "lengths": (), "gate_first": False, "kernel": 1, "stride": 1, "padding": 0, "dilation": 1, "groups": 1, "num_experts": 0,
    "experts_per_token": 0, "norm_topk_prob": True, "sigmoid": False, "top_first": False, "limit": 0.0, "topk_groups": 1, "scale": 1.0, "rounded": False,
    "fill": "value", "value": 0.0, "num_buckets": 0, "max_distance": 0, "bidirectional": False, "dtype": None,
    "out_features": 0, "nested": False, "cloned": False, "fp4": False, "float8": None,
    "gathered_in_float8": False, "liger": False, "in_place": False,
}


@dataclasses.dataclass(frozen=True)
class Module:
    name: str  # Fully qualified; "" is the root.
    class_name: str
    called: bool  # Entered through its own forward.


@dataclasses.dataclass(frozen=True)
class Parameter:
    name: str
    shape: tuple[int, ...]
    dtype: str  # As stored in the checkpoint.
    trainable: bool
    receives_gradient: bool
    tied_to: str | None  # The first name of the same parameter; None if this is the first.
    initial: dict[str, Any]  # "distribution", and its "std" or "value"; "zero_row".


@dataclasses.dataclass(frozen=True)
class Buffer:
    name: str
    shape: tuple[int, ...]
    dtype: str
    persistent: bool
    registered: bool  # False for a plain attribute of its module.


@dataclasses.dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str | None  # None for the precision of the activations.
    requires_grad: bool = False  # Whatever its maker's inputs are.


@dataclasses.dataclass(frozen=True)
class Call:
    module: str
    repeated: bool
    first_op: int
    num_ops: int


@dataclasses.dataclass(frozen=True)
class Local:
    """A variable of a module's forward that refers to a tensor until the op at index `until` has run."""

    tensor: int
    module: str
    until: int


class Op:
    """One op of the forward. `attributes` contains all of them, defaults included."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.kind: str = value["kind"]
        self.module: str = value["module"]
        self.inputs: tuple[int, ...] = tuple(value["inputs"])
        self.outputs: tuple[int, ...] = tuple(value["outputs"])
        self.parameters: tuple[str, ...] = tuple(value["parameters"])
        self.attributes: dict[str, Any] = {**DEFAULT_ATTRIBUTES, **value["attributes"]}


class ExpandedModel:
    """Modules in pre-order, parameters in order of registration, ops in forward order."""

    def __init__(self, value: dict[str, Any]) -> None:
        version = value["format_version"]
        if version.split(".")[0] != FORMAT_VERSION.split(".")[0]:
            raise ValueError(f"the expanded model has version {version}, and {FORMAT_VERSION} is read")
        self.name: str = value["name"]
        self.fingerprint: str = value["fingerprint"]
        self.dimensions: dict[str, float] = value["dimensions"]
        self.modules = [Module(m["name"], m["class"], m["called"]) for m in value["modules"]]
        self.parameters = [Parameter(p["name"], tuple(p["shape"]), p["dtype"], p["trainable"], p["receives_gradient"],
                                     p["tied_to"], p["initial"]) for p in value["parameters"]]
        self.buffers = [Buffer(b["name"], tuple(b["shape"]), b["dtype"], b["persistent"], b.get("registered", True)) for b in value["buffers"]]
        self.tensors = [Tensor(t["name"], tuple(t["shape"]), t["dtype"], t.get("requires_grad", False)) for t in value["tensors"]]
        self.inputs: list[int] = value["inputs"]
        # Inputs that are no arguments of the root's forward.
        self.inputs_beside_root: list[int] = value.get("inputs_beside_root", [])
        # Tensors that live until the forward of the root returns; the second if keys and values are cached.
        self.held: list[int] = value.get("held", [])
        self.held_if_cached: list[int] = value.get("held_if_cached", [])
        self.locals = [Local(each["tensor"], each["module"], each["until"]) for each in value.get("locals", [])]
        self.loss: int = value["loss"]
        # The first op that runs after the forward of the root has returned.
        self.after_root: int = value.get("after_root", len(value["ops"]))
        self.calls = [Call(c["module"], c["repeated"], c["first_op"], c["num_ops"]) for c in value["calls"]]
        self.ops = [Op(op) for op in value["ops"]]


def parent_name(name: str) -> str:
    """The module of a module, a parameter or a buffer; "" is the root."""
    return name.rpartition(".")[0]


def last_part(name: str) -> str:
    return name.rpartition(".")[2]
