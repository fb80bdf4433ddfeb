"""Weights that were tied and are no longer, and weights that the model's config calls tied but are not.

`to_empty` makes new parameters module by module, so one tied parameter becomes two; wrappers that replace parameters can do
the same. Ties are recorded before such a call and checked when the record is written, because a script may tie them again.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from fsdp_rehearsal import frames
from fsdp_rehearsal.guard import guarded, warn
from fsdp_rehearsal.modules import class_name


_MARK = "_rehearsal_wrapped"
Place = tuple[Any, str]  # weak reference to a module, name of a parameter below it


class Ties:
    def __init__(self) -> None:
        self._seen: list[tuple[Place, Place, str, dict[str, Any]]] = []
        self._wrapped: dict[int, Place] = {}  # id of a parameter that FSDP2 replaced -> its place

    @guarded("Tied weights")
    def install(self, torch: Any) -> None:
        self._wrap(torch.nn.Module, "to_empty", "to_empty")
        self._wrap(torch.nn.parallel.DistributedDataParallel, "__init__", "DistributedDataParallel", argument=1)

    @guarded("Tied weights")
    def install_fsdp1(self, module: Any) -> None:
        self._wrap(module.FullyShardedDataParallel, "__init__", "FullyShardedDataParallel", argument=1)

    @guarded("Tied weights")
    def install_fsdp2(self, module: Any) -> None:
        """FSDP2 replaces a unit's parameters at once, so the other module of a tie may be wrapped with the old one."""
        group = module.FSDPParamGroup
        real = group.__init__

        @functools.wraps(real)
        def __init__(unit, params, modules, *args, **kwargs):
            for owner in modules if isinstance(modules, (tuple, list)) else (modules,):
                self._note_unit(owner)
            real(unit, params, modules, *args, **kwargs)

        group.__init__ = __init__

    @guarded("Tied weights")
    def _note_unit(self, owner: Any) -> None:
        self.note(owner, "fully_shard")
        for name, parameter in owner.named_parameters():
            # A mark, since ids are reused; not a weak reference: PyTorch cannot swap a tensor that has one.
            place = self._wrapped.get(id(parameter)) if getattr(parameter, _MARK, False) is True else None
            if place is not None:
                here = (weakref.ref(owner), name)
                self._seen.append((place, here, "fully_shard took it in two units", frames.user_frame() or {}))
            else:
                setattr(parameter, _MARK, True)
                self._wrapped[id(parameter)] = (weakref.ref(owner), name)

    def _wrap(self, owner: Any, name: str, what: str, argument: int = 0) -> None:
        real = getattr(owner, name)

        @functools.wraps(real)
        def call(*args, **kwargs):
            if len(args) > argument:
                self.note(args[argument], what)
            return real(*args, **kwargs)

        setattr(owner, name, call)

    @guarded("Tied weights")
    def note(self, root: Any, what: str) -> None:
        """Stores the ties below `root`, and the line that is about to do `what`."""
        names: dict[int, list[str]] = {}
        for name, parameter in root.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
        frame = frames.user_frame() or {}
        reference = weakref.ref(root)
        for first, *others in names.values():
            for other in others:
                self._seen.append(((reference, first), (reference, other), what, frame))

    @guarded("Tied weights")
    def check(self, roots: list[Any]) -> None:
        """Warns about lost ties."""
        told: set[tuple[int, ...]] = set()
        for first, second, what, frame in self._seen:
            one, two = _lookup(first), _lookup(second)
            if one is None or two is None or one is two or not _both_parameters(one, two) or (id(one), id(two)) in told:
                continue
            told.add((id(one), id(two)))
            names = " and ".join(_name(place) for place in (first, second))
            warn(
                "untied_weights",
                f"{names} were one parameter before {what}, and are two now: their memory is held twice, and they are "
                "trained apart.",
                frame.get("file"),
                frame.get("line"),
            )
        for root in roots:
            self._check_config(root, bool(told))

    def _check_config(self, root: Any, told: bool) -> None:
        for module in root.modules():
            config = getattr(module, "config", None)
            if not getattr(config, "tie_word_embeddings", False) or not hasattr(module, "get_output_embeddings"):
                continue
            try:
                ends = (module.get_input_embeddings(), module.get_output_embeddings())
            except (AttributeError, NotImplementedError):  # a model that does not list them
                return
            weights = [getattr(end, "weight", None) for end in ends]
            if not told and None not in weights and weights[0] is not weights[1] and _both_parameters(*weights):
                warn(
                    "untied_weights",
                    f"The config of {type(module).__name__} has tie_word_embeddings, but the input and the output embedding "
                    "are two parameters.",
                )
            return


def _lookup(place: Place) -> Any:
    at = place[0]()
    for part in place[1].split("."):
        at = getattr(at, part, None)
    return at


def _name(place: Place) -> str:
    owner = place[0]()
    return place[1] if owner is None or "." in place[1] else f"{class_name(owner)}.{place[1]}"


def _both_parameters(one: Any, two: Any) -> bool:
    """FSDP1 without original parameters puts plain tensors, views of its flat one, into the modules."""
    from torch.nn import Parameter

    return isinstance(one, Parameter) and isinstance(two, Parameter)
