"""The file of a job: an expanded model, a plan and a number of steps. Nothing here imports torch, whose allocator reads its settings once."""

from __future__ import annotations

import json
import os
from typing import Any

from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.plan import Plan, minor_of

JOB_FORMAT_VERSION = "1.0"


class Refused(Exception):
    """The job cannot be run; the arguments are the reasons."""


def load(path: str) -> Any:
    """The JSON in a file, of any form."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}") from None


def check_job(path: str, job: dict[str, Any]) -> None:
    missing = [key for key in ("format_version", "model", "plan", "steps") if key not in job]
    if missing:
        raise Refused(*[f'{path}: the key "{key}" is missing.' for key in missing])
    if job["format_version"].split(".")[0] != JOB_FORMAT_VERSION.split(".")[0]:
        raise Refused(f"{path}: the format has version {job['format_version']}, and {JOB_FORMAT_VERSION} is read.")


def read_job(path: str) -> dict[str, Any]:
    job = load(path)
    check_job(path, job)
    return job


def read_parts(path: str, job: dict[str, Any]) -> tuple[ExpandedModel, Plan]:
    reasons = []
    parts: list[Any] = []
    for key, kind in (("model", ExpandedModel), ("plan", Plan)):
        try:
            parts.append(kind(job[key]))
        except KeyError as error:
            reasons.append(f"{path}: {key}: the key {error} is missing.")
        except (TypeError, ValueError) as error:
            reasons.append(f"{path}: {key}: {error}.")
    if reasons:
        raise Refused(*reasons)
    return parts[0], parts[1]


def read_others(path: str, job: dict[str, Any]) -> list[tuple[Any, ExpandedModel, Plan]]:
    """The models beside the trained one: the expanded ones of "also", held as the plan's "also" says."""
    from fsdp_plan_runner.other_models import options_of, plan_of

    texts = job["plan"]["model"].get("also", [])
    models = job.get("also", [])
    if len(texts) != len(models):
        raise Refused(f"{path}: the plan has {len(texts)} other models, and the job has {len(models)}.")
    others = []
    for text, value in zip(texts, models, strict=True):
        options = options_of(text, job["plan"].get("runtime", {}).get("name", "pytorch-fsdp2"))
        model = ExpandedModel(value)
        others.append((options, model, plan_of(options, model, job["plan"])))
    return others


def set_allocator(settings: str, version: str) -> None:
    """Call this before torch is imported, which reads the settings once. REQUIRES: torch is not imported yet."""
    if not settings:
        return
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        given = os.environ.get(name)
        if given is not None and given != settings:
            raise Refused(f'plan/runtime/allocator_settings: the plan says "{settings}", and {name} is "{given}". '
                          "Unset the variable, or write the same into the plan.")
    os.environ["PYTORCH_CUDA_ALLOC_CONF" if minor_of(version) in ("2.8", "2.9") else "PYTORCH_ALLOC_CONF"] = settings
