"""Changes of a script's model for a plan, and for a recording of a plan's work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def turn_off_caches(root: Any) -> bool:
    """Turns off the caching of keys and values (use_cache), as transformers does with checkpointing: a second forward would
    add to the cache. Returns whether any was on."""
    configs = {id(c): c for m in root.modules() if getattr(c := getattr(m, "config", None), "use_cache", False) is True}
    for config in configs.values():
        config.use_cache = False
    return bool(configs)


def turn_off_checkpointing(root: Any) -> bool:
    """Turns off transformers' own recomputation of layers. Returns whether it was on."""
    switched = [m for m in root.modules() if getattr(m, "gradient_checkpointing", False) is True]
    for module in switched:
        module.gradient_checkpointing = False
    return bool(switched)


def convert(root: Any, dtype: Any) -> int:
    """Converts parameters to another dtype, as FSDP2's mixed precision does; buffers do not change. Returns the number of
    converted ones."""
    wrong = [p for p in root.parameters() if p.is_floating_point() and p.dtype != dtype]
    for parameter in wrong:
        parameter.data = parameter.data.to(dtype)
    return len(wrong)


def casting_to(dtype: Any) -> Callable[[Any, Any, Any], Any]:
    """A forward pre-hook that casts the arguments of a module, as FSDP2's mixed precision does."""
    from torch import Tensor
    from torch.utils._pytree import tree_map

    def cast(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

    return lambda module, args, kwargs: tree_map(cast, (args, kwargs))


def scalar_parameters(root: Any) -> list[str]:
    """Names of parameters without dimensions."""
    return [name for name, parameter in root.named_parameters() if parameter.dim() == 0]


def give_dimensions(root: Any) -> list[str]:
    """FSDP shards parameters by their first dimension, and refuses those without dimensions: gives them one. Returns their
    names."""
    names = scalar_parameters(root)
    for name in names:
        parameter = root.get_parameter(name)
        parameter.data = parameter.data.reshape(1)
    return names
