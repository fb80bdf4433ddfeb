"""The settings that were really applied to the model: wrapper, version, units, parameters, precision, optimizers.

The models are the roots whose forward was called with gradients on; sizes are those of the whole model, not of the shard.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

from fsdp_rehearsal import sizes
from fsdp_rehearsal.guard import failed, warn
from fsdp_rehearsal.modules import Modules, class_name, clean, held
from fsdp_rehearsal.units import ROOT


_STAND_IN = "_rehearsal_stand_in"  # of wrappers that a plan replaces


def describe(modules: Modules, optimizers: list[Any]) -> dict[str, Any]:
    """The "applied" part of the record."""
    roots = [root for root in (reference() for reference in modules.roots) if root is not None]
    wrappers: list[dict[str, Any]] = []
    total = sizes.Total()
    for root in roots:
        try:
            wrappers += _wrappers(root, modules)
            total.add(root)
        except Exception as error:
            failed(f"What was applied to {type(root).__name__}", error)
    for wrapper in wrappers:
        wrapper["autocast"] = sorted(modules.autocast)
        if wrapper["name"] in ("FSDP1", "FSDP2") and len(wrapper["units"]) == 1:
            warn(
                "one_unit",
                f"{wrapper['name']} has one unit only, {wrapper['units'][0]['name']}: all parameters are gathered at once, "
                "so nothing is saved during forward and backward.",
            )
    return {
        "wrappers": wrappers,
        "parameters": total.parameters,
        "trainable_parameters": total.trainable,
        "parameter_dtypes": total.dtypes,
        "optimizers": [_optimizer(o) for o in optimizers],
    }


def _wrappers(root: Any, modules: Modules) -> list[dict[str, Any]]:
    """One entry for each kind of wrapper in the tree of a root; "plain" if there is none."""
    found = [entry for look in (_deepspeed, _ddp, _fsdp1, _fsdp2) if (entry := look(root, modules)) is not None]
    return found or [_entry("plain", "none", type(root).__name__)]


def _entry(name: str, kind: str, model: str) -> dict[str, Any]:
    torch = sys.modules["torch"]
    return {
        "class": kind,
        "name": name,
        "model": model,
        "version": torch.__version__,
        "strategy": None,
        "zero_stage": None,
        "units": [],
        "mixed_precision": None,
        "reshard_after_forward": None,
        "offload": False,
    }


def _precision(policy: Any, buffers: Optional[str] = None) -> Optional[dict[str, Any]]:
    if policy is None:
        return None
    names = ("param_dtype", "reduce_dtype", "buffer_dtype", "output_dtype")
    dtypes = {n: str(v) if (v := getattr(policy, n, None)) is not None else None for n in names}
    return dtypes if any(dtypes.values()) else None


def _fsdp2(root: Any, modules: Modules) -> Optional[dict[str, Any]]:
    api = sys.modules.get("torch.distributed.fsdp._fully_shard._fully_shard")
    root = held(root)
    wrapped = [(n, m) for n, m in root.named_modules() if isinstance(m, api.FSDPModule)] if api else []
    if not wrapped:
        return None
    entry = _entry("FSDP2", "torch.distributed.fsdp.FSDPModule", class_name(root))
    seen: set[int] = set()
    for name, module in wrapped:
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
        for group in groups:
            if group is None or id(group) in seen:
                continue
            seen.add(id(group))
            _fsdp2_unit(entry, modules.shown(modules.numbered(root, clean(name)), ROOT), module, group)
        entry["mixed_precision"] = entry["mixed_precision"] or _precision(state._mp_policy)
    return entry


def _fsdp2_unit(entry: dict[str, Any], name: str, module: Any, group: Any) -> None:
    parameters = group.fsdp_params
    mesh = type(group.mesh_info).__name__
    entry["strategy"] = "HYBRID_SHARD" if mesh.startswith("HSDP") else "FULL_SHARD" if mesh.startswith("FSDP") else mesh
    after = group.post_forward_mesh_info
    # For any unit: backward gathers a root at once, so FSDP2 does not reshard it after forward.
    entry["reshard_after_forward"] = bool(entry["reshard_after_forward"]) or after is not None
    entry["offload"] = entry["offload"] or type(group.offload_policy).__name__ == "CPUOffloadPolicy"
    entry["units"].append(
        {
            "name": name,
            "class": class_name(module),
            "parameters": len(parameters),
            "elements": sum(p.sharded_param.numel() for p in parameters),
            "reshard_after_forward": after is not None,
        }
    )


def _fsdp1(root: Any, modules: Modules) -> Optional[dict[str, Any]]:
    api = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    if api is None or getattr(api.FullyShardedDataParallel, _STAND_IN, False):
        return None
    wrapped = [(n, m) for n, m in root.named_modules() if isinstance(m, api.FullyShardedDataParallel)]
    if not wrapped:
        return None
    entry = _entry("FSDP1", "torch.distributed.fsdp.FullyShardedDataParallel", type(wrapped[0][1].module).__name__)
    for name, module in wrapped:
        handle = module._handle
        entry["strategy"] = entry["strategy"] or module.sharding_strategy.name
        entry["mixed_precision"] = entry["mixed_precision"] or _precision(module.mixed_precision)
        entry["offload"] = entry["offload"] or bool(module.cpu_offload.offload_params)
        entry["use_orig_params"] = bool(module._use_orig_params)
        if handle is not None:
            entry["units"].append(
                {
                    "name": modules.shown(modules.numbered(root, clean(name)), ROOT),
                    "class": class_name(module.module),
                    "parameters": len(handle.flat_param._numels),
                    "elements": sum(handle.flat_param._numels),
                }
            )
    entry["reshard_after_forward"] = entry["strategy"] in ("FULL_SHARD", "HYBRID_SHARD")
    return entry


def _ddp(root: Any, modules: Modules) -> Optional[dict[str, Any]]:
    torch = sys.modules["torch"]
    kind = torch.nn.parallel.DistributedDataParallel
    for _, module in root.named_modules():
        if isinstance(module, kind) and not getattr(kind, _STAND_IN, False):
            entry = _entry("DDP", "torch.nn.parallel.DistributedDataParallel", class_name(module.module))
            logged = module._get_ddp_logging_data()
            sizes_of_buckets = logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or ""
            entry["bucket_bytes"] = [int(s) for s in str(sizes_of_buckets).split(",") if s.strip()]
            entry["mixed_precision"] = _precision(module.mixed_precision)
            return entry
    return None


def _deepspeed(root: Any, modules: Modules) -> Optional[dict[str, Any]]:
    engine_module = sys.modules.get("deepspeed.runtime.engine")
    if engine_module is None or not isinstance(root, engine_module.DeepSpeedEngine):
        return None
    stage = int(root.zero_optimization_stage())
    entry = _entry(f"DeepSpeed ZeRO-{stage}", "deepspeed.DeepSpeedEngine", type(root.module).__name__)
    entry["version"] = sys.modules["deepspeed"].__version__
    entry["zero_stage"] = stage
    offload = root.zero_offload_optimizer() if hasattr(root, "zero_offload_optimizer") else None
    entry["offload"] = offload is not None and str(getattr(offload, "device", "none")).split(".")[-1] not in ("none", "None")
    dtype = "torch.bfloat16" if root.bfloat16_enabled() else "torch.float16" if root.fp16_enabled() else None
    entry["mixed_precision"] = dtype and {"param_dtype": dtype, "reduce_dtype": None, "buffer_dtype": None}
    return entry


def _optimizer(optimizer: Any) -> dict[str, Any]:
    defaults = getattr(optimizer, "defaults", {})
    return {
        "class": f"{type(optimizer).__module__}.{type(optimizer).__qualname__}",
        "foreach": defaults.get("foreach"),
        "fused": defaults.get("fused"),
        "parameters": sum(len(group["params"]) for group in optimizer.param_groups),
    }
