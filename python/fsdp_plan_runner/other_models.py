"""Models beside the trained one: held by units of their own, and run without gradients in each micro-batch.

TRL calls fully_shard once for its reference model under FSDP2 (models/utils.py, prepare_fsdp), wraps its blocks under FSDP1, and leaves
it as it is under DDP. The plan file's key "also" says how each is held: MODEL, then ,wrap=root|blocks|none ,offload=yes ,dtype=bf16
,turn=before.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch

from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.plan import Plan

if TYPE_CHECKING:
    from fsdp_plan_runner.micro_batch import Batch
    from fsdp_plan_runner.modules import PlannedModule

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_DEFAULT_WRAPS = {"pytorch-fsdp2": "root", "pytorch-fsdp1": "blocks", "pytorch-ddp": "none"}


@dataclasses.dataclass(frozen=True)
class Options:
    wrap: str
    offload: bool
    dtype: str | None  # None for the checkpoint's.
    is_before: bool  # Its forward comes before the trained model's.


def options_of(text: str, runtime: str) -> Options:
    given = dict(part.split("=") for part in text.split(",")[1:])
    dtype = given.get("dtype")
    return Options(given.get("wrap", _DEFAULT_WRAPS[runtime]), given.get("offload") == "yes", _DTYPES.get(dtype or "", dtype),
                   given.get("turn") == "before")


def plan_of(options: Options, model: ExpandedModel, trained: dict[str, Any]) -> Plan:
    """The plan file's object of the other model, from that of the trained one. Every unit is resharded after its forward; FSDP1 has
    one strategy for all."""
    runtime = dict(trained.get("runtime", {}))
    is_flat = runtime.get("name") == "pytorch-fsdp1"
    plan: dict[str, Any] = {"model": {}, "runtime": runtime, "parameter_dtype": options.dtype,
                            "initialization": trained.get("initialization", "meta")}
    if options.wrap == "none":
        runtime["name"] = "pytorch-ddp"
        return Plan({**plan, "mesh": {"replicate": 1, "shard": 1}, "units": [{"modules": [""]}]})
    reshard = trained["units"][0].get("reshard_after_forward", "default") if is_flat else True
    blocks = [call.module for call in model.calls if call.repeated] if options.wrap == "blocks" else []
    if options.wrap == "root" and plan["initialization"] == "meta":
        plan["initialization"] = "cpu"
    for key in ("mesh", "mixed_precision", "fsdp1"):
        if key in trained:
            plan[key] = trained[key]
    return Plan({**plan, "cpu_offload": options.offload,
                 "units": [*({"modules": [name], "reshard_after_forward": reshard} for name in blocks),
                           {"modules": [""], "reshard_after_forward": "default" if is_flat else reshard}]})


def held(model: ExpandedModel) -> ExpandedModel:
    """All of it has requires_grad, as a model that was loaded, and no dropout."""
    model.parameters = [dataclasses.replace(each, trainable=True) for each in model.parameters]
    for op in model.ops:
        if op.kind in ("dropout", "attention"):
            op.attributes["probability"] = 0.0
    return model


class OtherModel:
    def __init__(self, root: PlannedModule, is_before: bool, tokens: int, places: list[int], device: torch.device) -> None:
        self._root, self.is_before, self._tokens, self._places, self._device = root, is_before, tokens, places, device
        (root.wrapper[0] if root.wrapper else root).eval()
        root.context.training = False

    def log_probabilities(self, batch: Batch) -> torch.Tensor:
        """Runs its forward on the trained model's batch. One number for each token is left."""
        from fsdp_plan_runner.micro_batch import run_forward

        with torch.no_grad():
            result = run_forward(self._root, [batch.values[place] for place in self._places])
            del result
            return torch.empty(self._tokens, dtype=torch.float32, device=self._device)


def places_of(model: ExpandedModel, trained: ExpandedModel) -> list[int]:
    """Where each input of the other model is in the trained model's batch."""
    names = [trained.tensors[tensor].name for tensor in trained.inputs]
    return [names.index(model.tensors[tensor].name) for tensor in model.inputs]


def tokens_of(model: ExpandedModel) -> int:
    return int(model.dimensions["batch"] * model.dimensions.get("seq", 1))
