"""The record's environment: versions of what was imported."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import sys
from typing import Any

from fsdp_rehearsal import groups

_PACKAGES = {
    "accelerate": "accelerate",
    "apex": "apex",
    "bitsandbytes": "bitsandbytes",
    "datasets": "datasets",
    "deepspeed": "deepspeed",
    "flash_attn": "flash-attn",
    "lightning": "lightning",
    "numpy": "numpy",
    "peft": "peft",
    "pytorch_lightning": "pytorch-lightning",
    "torchao": "torchao",
    "torchtitan": "torchtitan",
    "torchtune": "torchtune",
    "torchvision": "torchvision",
    "transformer_engine": "transformer-engine",
    "transformers": "transformers",
    "triton": "triton",
    "trl": "trl",
    "xformers": "xformers",
}


def describe() -> dict[str, Any]:
    """The "environment" part of the record."""
    torch = sys.modules.get("torch")
    version = getattr(torch, "__version__", None)
    return {
        "python": platform.python_version(),
        "torch": str(version) if version else None,
        "cuda": getattr(getattr(torch, "version", None), "cuda", None),
        "packages": {name: _version(package) for name, package in _PACKAGES.items() if name in sys.modules},
        "torch_imported": version is not None,
        "cuda_initialized": bool(version and torch.cuda.is_initialized()),
    }


def job(one_process: bool) -> dict[str, Any]:
    """The "job" part of the record. `one_process`: the program drives all GPUs itself (nn.DataParallel), so there are no
    ranks, whatever its environment contains."""

    def number(name: str, otherwise: int) -> int:
        text = os.environ.get(name, "")
        return int(text) if text.isdigit() else otherwise

    members = groups.members()
    if members is None and one_process:
        return {"argv": sys.orig_argv, "rank": 0, "world_size": 1, "local_rank": 0, "local_world_size": 1, "backends": []}
    rank, world = members or (number("RANK", 0), number("WORLD_SIZE", 1))
    local_world = number("LOCAL_WORLD_SIZE", number("STUB_GPU_COUNT", 1) if world > 1 else 1)
    return {
        "argv": sys.orig_argv,
        "rank": rank,
        "world_size": world,
        "local_rank": number("LOCAL_RANK", rank % max(1, local_world)),
        "local_world_size": local_world,
        "backends": groups.backends,
    }


def gpu(device: int) -> dict[str, Any]:
    """The record's GPU. Its memory is initialized."""
    properties = sys.modules["torch"].cuda.get_device_properties(device)
    return {"name": properties.name, "total_bytes": properties.total_memory}


def host_peak_bytes() -> int:
    """The largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
