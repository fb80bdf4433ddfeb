"""Weights that were tied and are not any more, and weights that the model's config calls tied and that are not.

`to_empty` makes new parameters module by module, so what was one parameter becomes two; wrappers that replace parameters can do
the same. Ties are noted before such a call and looked up again when the record is written: a script may tie them once more.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from fsdp_rehearsal import frames
from fsdp_rehearsal.guard import guarded, warn


class Ties:
    def __init__(self) -> None:
        self._seen: list[tuple[Any, list[tuple[str, str]], str, dict[str, Any]]] = []

    @guarded("Tied weights")
    def install(self, torch: Any) -> None:
        self._wrap(torch.nn.Module, "to_empty", "to_empty")
        self._wrap(torch.nn.parallel.DistributedDataParallel, "__init__", "DistributedDataParallel", argument=1)

    @guarded("Tied weights")
    def install_fsdp1(self, module: Any) -> None:
        self._wrap(module.FullyShardedDataParallel, "__init__", "FullyShardedDataParallel", argument=1)

    @guarded("Tied weights")
    def install_fsdp2(self, module: Any) -> None:
        """FSDP2's function is known under several names; all of them call this one."""
        if hasattr(module, "_init_param_group"):
            real = module._init_param_group

            @functools.wraps(real)
            def _init_param_group(state, params, modules, *args, **kwargs):
                for root in modules:
                    self.note(root, "fully_shard")
                return real(state, params, modules, *args, **kwargs)

            module._init_param_group = _init_param_group

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
        """Keeps the ties below `root`, and the line that is about to do `what`."""
        names: dict[int, list[str]] = {}
        for name, parameter in root.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
        pairs = [(group[0], other) for group in names.values() for other in group[1:]]
        if pairs:
            self._seen.append((weakref.ref(root), pairs, what, frames.user_frame() or {}))

    @guarded("Tied weights")
    def check(self, roots: list[Any]) -> None:
        """Warns about ties that are gone."""
        told: set[tuple[str, str]] = set()
        for reference, pairs, what, frame in self._seen:
            root = reference()
            for pair in pairs:
                if root is None or pair in told or not _untied(root, *pair):
                    continue
                told.add(pair)
                warn(
                    "untied_weights",
                    f"{pair[0]} and {pair[1]} were one parameter before {what}, and are two now: "
                    "their memory is held twice, and they are trained apart.",
                    frame.get("file"),
                    frame.get("line"),
                )
        for root in roots:
            self._check_config(root, bool(told))

    def _check_config(self, root: Any, told: bool) -> None:
        for name, module in root.named_modules():
            config = getattr(module, "config", None)
            if not getattr(config, "tie_word_embeddings", False) or not hasattr(module, "get_output_embeddings"):
                continue
            try:
                ends = (module.get_input_embeddings(), module.get_output_embeddings())
            except (AttributeError, NotImplementedError):  # a model that does not say which they are
                return
            weights = [getattr(end, "weight", None) for end in ends]
            if not told and None not in weights and weights[0] is not weights[1] and _both_parameters(*weights):
                warn(
                    "untied_weights",
                    f"The config of {type(module).__name__} has tie_word_embeddings, but the input and the output embedding "
                    "are two parameters.",
                )
            return


def _untied(root: Any, first: str, second: str) -> bool:
    one, two = (_lookup(root, name) for name in (first, second))
    return one is not None and two is not None and one is not two and _both_parameters(one, two)


def _lookup(root: Any, name: str) -> Any:
    at = root
    for part in name.split("."):
        at = getattr(at, part, None)
        if at is None:
            return None
    return at


def _both_parameters(one: Any, two: Any) -> bool:
    """FSDP1 without original parameters leaves plain tensors, views of its flat one, in the modules."""
    from torch.nn import Parameter

    return isinstance(one, Parameter) and isinstance(two, Parameter)
