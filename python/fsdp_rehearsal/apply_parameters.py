"""Puts the parameters that fully_shard makes wherever the script has the old ones.

`fully_shard` replaces the parameters of modules. A script that sharded its model itself would make its lists and groups of
parameters afterwards; here they exist already. We map an optimizer's arguments by identity, and change lists and dicts with
old parameters in place, so that a later clip_grad_norm_(parameters) sees the new ones. A parameter in two units becomes two;
both replace it.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

from fsdp_rehearsal.guard import guarded, warn


class Replaced:
    def __init__(self) -> None:
        self._new: dict[int, tuple[Any, list[Any]]] = {}  # id of an old parameter -> weak reference to it, its replacements
        self._root: Any = None  # during its sharding
        self._now: dict[str, Any] = {}  # name -> weak reference to the parameter
        self._holders: list[Any] = []  # lists and dicts with parameters in them
        self._warned = False

    @staticmethod
    def listed(params: Any) -> Any:
        """The arguments of an optimizer; a generator becomes a list, lists and dicts stay the same objects."""
        if _is_tensor(params):
            return params  # the optimizer reports the error
        groups = params if isinstance(params, list) else list(params)
        for group in groups:
            if isinstance(group, dict) and "params" in group and not _is_tensor(group["params"]):
                if not isinstance(group["params"], (list, tuple, set)):
                    group["params"] = list(group["params"])
        return groups

    @staticmethod
    def tensors(groups: Any) -> list[Any]:
        """All parameters of groups."""
        found = []
        for group in [groups] if _is_tensor(groups) else groups:
            members = group.get("params", []) if isinstance(group, dict) else [group]
            for member in [members] if _is_tensor(members) else members:
                found.append(member[1] if isinstance(member, tuple) else member)
        return [t for t in found if _is_tensor(t)]

    def begin(self, root: Any) -> None:
        """Call this before the parameters below `root` change. It stores no strong references, so the script can still free
        them."""
        self._root = root
        parameters = [p for _, p in _named(root)]
        tables = {id(module._parameters) for module in root.modules()}
        holders = [h for h in gc.get_referrers(*parameters) if h is not parameters and id(h) not in tables]
        pairs = [h for h in holders if type(h) is tuple and len(h) == 2]  # of named_parameters()
        holders += [
            h for h in (gc.get_referrers(*pairs) if pairs else []) if type(h) is list and h is not pairs and h is not holders
        ]
        self._holders = [h for h in holders if type(h) in (list, dict)]
        self._now = {name: weakref.ref(p) for name, p in _named(root)}

    def after_unit(self) -> None:
        """A unit has new parameters: they replace the old ones at once, since those may fill the device."""
        changed = False
        for name, new in _named(self._root):
            old = self._now[name]()
            if old is new:
                continue
            changed = True
            self._now[name] = weakref.ref(new)
            if old is not None:  # otherwise nobody else had it
                _, news = self._new.setdefault(id(old), (weakref.ref(old), []))
                if not any(new is each for each in news):
                    news.append(new)
        old = new = None
        for holder in self._holders if changed else ():
            self._change(holder)

    def end(self) -> None:
        self._root, self._now, self._holders = None, {}, []

    def _change(self, holder: Any) -> None:
        if type(holder) is list:
            holder[:] = [new for each in holder for new in self._of_member(each)]
            return
        for key, value in list(holder.items()):
            news = self._of(value)
            if news[0] is not value:
                holder[key] = news[0]

    def _of(self, value: Any) -> list[Any]:
        """The replacement of a value, or itself if there is none."""
        reference, news = self._new.get(id(value), (None, []))
        return news if news and reference is not None and reference() is value else [value]

    def of_groups(self, groups: Any) -> Any:
        """The optimizer's parameters in place of the script's."""
        if not self._new or _is_tensor(groups):
            return groups
        return [
            self._of_group(group) if isinstance(group, dict) else each for group in groups for each in self._of_member(group)
        ]

    def _of_group(self, group: dict[str, Any]) -> dict[str, Any]:
        members = group.get("params", [])
        if isinstance(members, set) or _is_tensor(members):
            members = self._of(members) if _is_tensor(members) else members
        else:
            members = [each for member in members for each in self._of_member(member)]
        return {**group, "params": members}

    def _of_member(self, member: Any) -> list[Any]:
        if type(member) is tuple and len(member) == 2:
            news = self._of(member[1])
            return [member] if news[0] is member[1] else [(member[0], new) for new in news]
        return [member] if isinstance(member, dict) else self._of(member)

    @guarded("The parameters that the script still holds")
    def warn_of_held(self) -> None:
        """Call this after the optimizer is made: old parameters that are still referenced use memory."""
        held = [old for old in (reference() for reference, news in self._new.values() if news) if old is not None]
        if held and not self._warned:
            self._warned = True
            size = sum(p.numel() * p.element_size() for p in held)
            warn(
                "plan_in_place",
                f"The script still holds {len(held)} parameters of {size:,} bytes from before the plan was applied.",
            )


def _named(root: Any) -> Iterator[tuple[str, Any]]:
    """The parameters below a root; a shared one under all of its names."""
    return root.named_parameters(remove_duplicate=False)


def _is_tensor(value: Any) -> bool:
    from torch import Tensor

    return isinstance(value, Tensor)
