"""Cases drawn at random: a model, a plan and a mesh for it, and a rank. The same seed and number give the same case."""

from __future__ import annotations

import pathlib
import random
from typing import Any

from command import Refused
from draw_models import draw_ends, draw_model
from predict import Case, Prediction, expand, predict


def draw_case(program: pathlib.Path, seed: int, number: int) -> tuple[Case, Prediction]:
    """The first drawn plan that fsdp-plan does not refuse. A refusal is right where a tie crosses units, say; that it
    is not the rule is asserted."""
    rng = random.Random(f"{seed}/{number}")
    spec = draw_model(rng)
    modules = expand(program, spec)
    # Another sequence, so that what is drawn from the first one stays the same.
    ends = random.Random(f"{seed}/{number}/ends")
    draw_ends(ends, spec)
    refusals = []
    for _ in range(12):
        case = Case(f"drawn_{seed}_{number}", spec, _with_ends(ends, _plan(rng, modules)))
        case.frozen = _frozen(rng, modules)
        case.rank = rng.choice((0, case.world_size - 1, rng.randrange(case.world_size)))
        try:
            prediction = predict(program, case)
        except Refused as refused:
            refusals.append(str(refused))
            continue
        if any(p["trainable"] for p in prediction.model["parameters"]):
            return case, prediction
    raise AssertionError(f"{case.name}: all plans are refused, such as {refusals[-1]}")


def _plan(rng: random.Random, model: dict[str, Any]) -> dict[str, Any]:
    shard = rng.choice((1, 2, 2, 3, 4, 4, 5, 8, 16, 64))
    precision = rng.choice(_PRECISIONS)
    accumulation = rng.choice((1, 1, 1, 2, 3))
    plan: dict[str, Any] = {
        "mesh": {"replicate": rng.choice((1, 1, 1, 2, 3)), "shard": shard},
        "units": _units(rng, model, shard),
        "mixed_precision": precision,
        "forward_prefetch": rng.choice((0, 0, 0, 1, 2)),
        "backward_prefetch": rng.choice((1, 1, 1, 2, 3)),
        "accumulation": accumulation,
        "sync_every_micro_batch": rng.random() < 0.5,
        "optimizer": _optimizer(rng),
        "initialization": rng.choice(("meta", "meta", "cpu", "device")),
        "runtime": {"flavor": rng.choice(("transformers", "transformers", "torchtitan"))},
    }
    if precision.get("param_dtype") and rng.random() < 0.7:
        plan["parameter_dtype"] = "float32"
    blocks = list(dict.fromkeys(call["module"] for call in model["calls"] if call["repeated"]))
    if blocks and rng.random() < 0.5:
        plan["activation_checkpointing"] = _checkpointing(rng, blocks)
    return plan


def _with_ends(rng: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    """What happens to inputs before the root's forward, and to the logits after it."""
    if rng.random() < 0.2:
        plan["mixed_precision"] = {**plan["mixed_precision"], "cast_forward_inputs": False}
    if rng.random() < 0.3:
        plan["runtime"]["implementations"] = {"keep_logits": True}
    return plan


_PRECISIONS: tuple[dict[str, Any], ...] = (
    {}, {}, {"param_dtype": "bfloat16", "reduce_dtype": "float32"}, {"param_dtype": "bfloat16", "reduce_dtype": "float32"},
    {"param_dtype": "bfloat16"}, {"param_dtype": "float16", "reduce_dtype": "float32"}, {"param_dtype": "float16"},
    {"reduce_dtype": "bfloat16"}, {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"})


def _units(rng: random.Random, model: dict[str, Any], shard: int) -> list[dict[str, Any]]:
    """Modules with a forward, nested or not; neighbors of one parent in one unit now and then; the root last."""
    owners = {name.rpartition(".")[0] for name in (p["name"] for p in model["parameters"])}
    fit = [m["name"] for m in model["modules"] if m["called"] and m["name"]
           and any(owner == m["name"] or owner.startswith(m["name"] + ".") for owner in owners)]
    blocks = list(dict.fromkeys(call["module"] for call in model["calls"] if call["repeated"]))
    style = rng.choice(("blocks", "blocks", "some", "deep", "groups"))
    chosen = {"blocks": blocks or fit, "groups": blocks or fit, "deep": rng.sample(fit, min(len(fit), 9)),
              "some": [name for name in fit if rng.random() < 0.3]}[style]
    units: list[list[str]] = [[name] for name in chosen]
    if style == "groups":
        size = rng.randint(2, 3)
        units = [chosen[i:i + size] for i in range(0, len(chosen), size)]
    elif style == "blocks" and rng.random() < 0.4:
        extra = [name for name in fit if not any(_nested(name, other) for other in chosen)]
        units += [[name] for name in rng.sample(extra, min(len(extra), 1))]
    order = {m["name"]: i for i, m in enumerate(model["modules"])}
    units.sort(key=lambda unit: (-max(name.count(".") for name in unit), order[unit[0]]))
    rows = [{"modules": unit, "reshard_after_forward": _reshard(rng, shard)} for unit in units]
    return [*rows, {"modules": [""], "reshard_after_forward": _reshard(rng, shard)}]


def _nested(one: str, other: str) -> bool:
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


def _reshard(rng: random.Random, shard: int) -> Any:
    divisors = [size for size in range(2, shard) if shard % size == 0]
    return rng.choice(["default", "default", True, False, *(divisors if rng.random() < 0.5 else [])])


def _optimizer(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": rng.choice(("adamw", "adamw", "adam", "sgd")),
                            "implementation": rng.choice(("foreach", "foreach", "fused", "for_loop")),
                            "weight_decay": rng.choice((0.0, 0.01))}
    if made["kind"] == "sgd":
        made["momentum"] = rng.choice((0.0, 0.9))
        if made["implementation"] == "fused":
            made["implementation"] = "foreach"  # PyTorch 2.11 has no fused SGD for DTensors.
    if rng.random() < 0.5:
        made["clip_grad_norm"] = 1.0
    return made


def _checkpointing(rng: random.Random, blocks: list[str]) -> dict[str, Any]:
    return {"modules": [{"module": name, "mode": rng.choice(("full", "full", "selective", "none"))} for name in blocks],
            "early_stop": rng.random() < 0.6, "every_second_linear": rng.random() < 0.5}


def _frozen(rng: random.Random, model: dict[str, Any]) -> list[str]:
    if rng.random() < 0.65:
        return []
    stacks = list(dict.fromkeys(call["module"].rpartition(".")[0] for call in model["calls"] if call["repeated"]))
    if stacks and rng.random() < 0.4:  # A trunk, of which a head or what comes first is trained.
        return stacks
    modules = [m["name"] for m in model["modules"] if m["name"]]
    names = [p["name"] for p in model["parameters"]]
    patterns = rng.sample(modules, min(len(modules), rng.randint(1, 3))) if rng.random() < 0.6 else \
        rng.sample(names, min(len(names), rng.randint(1, len(names))))
    return sorted(patterns)
