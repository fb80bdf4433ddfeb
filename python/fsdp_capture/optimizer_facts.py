"""The facts of the script's optimizers for a plan. Refuses an optimizer whose states are neither known nor as large as those
of its substitute. torch.optim.Muon, which updates some of the matrices, may accompany an optimizer of the rest.
"""

from __future__ import annotations

from typing import Any, Optional


def refusal(torch: Any, optimizers: list[Any]) -> str:
    """Why a step of these optimizers cannot be predicted, in sentences. Empty if it can."""
    if len({_way_of_muon(group) for o in optimizers if is_muon(torch, o) for group in o.param_groups if _trains(group)}) > 1:
        return "The script gives Muon groups of parameters that differ in nesterov or ns_steps, and a plan has one way for all of them."
    optimizers = [o for o in optimizers if not is_muon(torch, o)]
    ways = {_way(torch, o, group) for o in optimizers for group in o.param_groups if _trains(group)}
    names = sorted({type(o).__name__ for o in optimizers})
    if len({way[0] for way in ways}) > 1:
        return f"The script trains with {' and '.join(names)}, and a plan has one optimizer for all parameters."
    if len(ways) > 1:
        return (
            f"The script gives {names[0]} groups of parameters that differ in foreach, fused, amsgrad or whether there is momentum, "
            "and a plan has one way for all parameters."
        )
    if any(group.get("amsgrad") for o in optimizers for group in o.param_groups):
        return f"The script's {names[0]} keeps a third state of each parameter (amsgrad=True), which is not predicted."
    for optimizer in optimizers:
        if kind_of(torch, optimizer) is None:
            why = _other_states(torch, optimizer)
            if why:
                return why
    return ""


def kind_of(torch: Any, optimizer: Any) -> Optional[str]:
    """The name that plans use for it (core/plan/optimizer_table.h). None for one that no plan has, or has in another way."""
    kinds = {torch.optim.AdamW: "adamw", torch.optim.Adam: "adam", torch.optim.SGD: "sgd"}
    if type(optimizer) in kinds:
        return kinds[type(optimizer)]
    package, name = type(optimizer).__module__.partition(".")[0], type(optimizer).__name__
    groups = optimizer.param_groups
    if package == "bitsandbytes":
        return _bitsandbytes_kind(optimizer, name)
    if package == "transformers" and name == "Adafactor" and all(group["beta1"] is None for group in groups):
        return "adafactor"
    if package == "torch" and name == "Adafactor" and not any(group.get("foreach") for group in groups):
        return "adafactor_torch"
    if package == "schedulefree" and name == "AdamWScheduleFree" and all(group["foreach"] for group in groups):
        return "schedule_free_adamw"
    return None


def _bitsandbytes_kind(optimizer: Any, name: str) -> Optional[str]:
    """`name`: of its class. transformers makes AdamW and Lion with `optim_bits` and `is_paged`."""
    settings = optimizer.args
    base = name.removeprefix("Paged").removesuffix("8bit").removesuffix("32bit")
    has_overrides = bool(optimizer.mng.module_weight_config_triple or optimizer.mng.pid2config or optimizer.mng.index2config)
    if base not in ("AdamW", "Adam", "Lion") or settings.min_8bit_size != 4096 or settings.max_unorm > 0 or has_overrides:
        return None
    kind = f"{'paged_' if optimizer.is_paged else ''}{base.lower()}_{settings.optim_bits}bit"
    return kind if kind in _OF_BITSANDBYTES else None


_OF_BITSANDBYTES = ("adamw_8bit", "adam_8bit", "lion_8bit", "lion_32bit", "paged_adamw_8bit", "paged_adamw_32bit", "paged_lion_8bit",
                    "paged_lion_32bit")


def is_muon(torch: Any, optimizer: Any) -> bool:
    kind = getattr(torch.optim, "Muon", None)  # since PyTorch 2.9
    return kind is not None and type(optimizer) is kind


def muon_parameters(torch: Any, optimizers: list[Any]) -> set[int]:
    """The ids of the parameters that Muon updates."""
    return {id(p) for o in optimizers if is_muon(torch, o) for group in o.param_groups for p in group["params"]}


def facts_of(torch: Any, optimizers: list[Any]) -> dict[str, Any]:
    """The optimizer of a captured model. `optimizers`: those that have stepped, in that order."""
    others = [o for o in optimizers if not is_muon(torch, o)]
    optimizer = next(iter(others), None)
    group = optimizer.param_groups[0] if optimizer is not None and optimizer.param_groups else {}
    muon = next((o for o in optimizers if is_muon(torch, o)), None)
    facts = {
        # With Muon alone there are no parameters for another optimizer.
        "kind": kind_of(torch, optimizer) if optimizer is not None or muon is None else "adamw",
        "class": type(optimizer if optimizer is not None else muon).__name__,
        # PyTorch's default for parameters on a GPU.
        "foreach": group.get("foreach") is not False and not group.get("fused"),
        "fused": bool(group.get("fused")),
        "weight_decay": float(group.get("weight_decay", 0) or 0),
        "momentum": group.get("momentum", 0) or 0,
    }
    if muon is not None:
        nesterov, ns_steps = _way_of_muon(muon.param_groups[0])
        facts["muon"] = {"nesterov": nesterov, "ns_steps": ns_steps, "steps_last": optimizers[0] is not muon}
    return facts


def _way_of_muon(group: dict[str, Any]) -> tuple[bool, int]:
    return bool(group["nesterov"]), int(group["ns_steps"])


def _trains(group: dict[str, Any]) -> bool:
    return any(p.requires_grad for p in group["params"])


def _way(torch: Any, optimizer: Any, group: dict[str, Any]) -> tuple[Any, ...]:
    is_fused = bool(group.get("fused"))
    is_foreach = group.get("foreach") is not False and not is_fused
    name = kind_of(torch, optimizer)
    if name is None:  # its states determine its memory; only the optimizer itself knows the meaning of its groups
        return (type(optimizer).__name__,)
    return name, is_foreach, is_fused, bool(group.get("amsgrad")), bool(group.get("momentum"))


def _other_states(torch: Any, optimizer: Any) -> str:
    """AdamW stands in for an unknown optimizer if its states are as large for each parameter."""
    kept = wanted = 0
    differs = False
    for parameter, state in optimizer.state.items():
        if not isinstance(parameter, torch.Tensor) or not isinstance(state, dict):
            continue
        if parameter.numel() <= 1:  # its state is as large as a count of steps
            continue
        size = sum(_bytes(torch, value) for value in state.values())
        of_adamw = 2 * parameter.numel() * parameter.element_size()
        kept, wanted = kept + size, wanted + of_adamw
        differs = differs or size != of_adamw
    if wanted and not differs:
        return ""
    kind = type(optimizer)
    return (
        f"The script's optimizer, {kind.__name__} of {kind.__module__.partition('.')[0]}, keeps states of {kept:,} bytes, where AdamW "
        f"would keep {wanted:,}: they are not predicted. Capture the script with torch.optim.AdamW, and plan with --optimizer."
    )


def _bytes(torch: Any, value: Any) -> int:
    """Bytes of a state: 0 for a count of steps; for a tensor that wraps others, the sum of their bytes."""
    if isinstance(value, (list, tuple)):
        return sum(_bytes(torch, each) for each in value)
    if not isinstance(value, torch.Tensor) or value.numel() <= 1:
        return 0
    if hasattr(type(value), "__tensor_flatten__"):
        names, _ = value.__tensor_flatten__()
        return sum(_bytes(torch, getattr(value, name)) for name in names)
    return int(value.numel() * value.element_size())
