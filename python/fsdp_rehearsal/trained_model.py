"""Finds the model that an optimizer trains: the module that contains its parameters, or several of them as one."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

from fsdp_rehearsal.modules import class_name, held


def outermost() -> list[Any]:
    """All modules that no other module contains."""
    from torch.nn import Module

    alive = [o for o in gc.get_objects() if issubclass(type(o), Module) and "_modules" in o.__dict__]
    below = {id(child) for module in alive for child in module._modules.values()}
    return [module for module in alive if id(module) not in below]


def roots_of(parameters: list[Any]) -> list[Any]:
    """The outermost modules that contain one of these parameters, in the order of the parameters."""
    place: dict[int, int] = {}
    for parameter in parameters:
        place.setdefault(id(parameter), len(place))
    found = []
    for module in outermost():
        held_here = [place[id(p)] for p in module.parameters() if id(p) in place]
        if held_here:
            found.append((min(held_here), module))
    return [module for _, module in sorted(found, key=lambda pair: pair[0])]


def smallest_above(root: Any, modules: Iterable[Any], parameters: Iterable[Any]) -> Any:
    """The innermost module of `root` that contains all of these modules and parameters; None if `root` does not."""
    wanted = {id(m) for m in modules} | {id(p) for p in parameters}

    def has_all(module: Any) -> bool:
        return wanted <= {id(m) for m in module.modules()} | {id(p) for p in module.parameters()}

    if not has_all(root):
        return None
    while True:
        inner = next((child for child in root.children() if has_all(child)), None)
        if inner is None:
            return root
        root = inner


def group_of(roots: list[Any]) -> Any:
    """Several models that one optimizer trains, as one that is never called: each is a part of it, named after its class."""
    from torch.nn import Module

    models = [held(root) for root in roots]
    kinds = [class_name(model) for model in models]
    group = type("+".join(kinds), (Module,), {})()
    for place, (kind, model) in enumerate(zip(kinds, models)):
        count = kinds[:place].count(kind)
        group.add_module(f"{kind}_{count + 1}" if count else kind, model)
    return group
