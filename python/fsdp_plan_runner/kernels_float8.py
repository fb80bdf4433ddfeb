"""Linear layers of torchao: its own Function, on the weight of the module.

Source: torchao/float8/float8_linear.py (Float8Linear.forward), float8_linear_utils.py and fsdp_utils.py of torchao 0.18.0.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch

from fsdp_plan_runner.expanded_model import ExpandedModel, Op, last_part, parent_name

RELEASE = "0.18.0"


@functools.cache
def _settings(recipe: str, is_gathered: bool) -> Any:
    """A layer of such settings, of which only these are used."""
    from torchao.float8 import Float8LinearConfig
    from torchao.float8.float8_linear import Float8Linear

    config = Float8LinearConfig(enable_fsdp_float8_all_gather=True) if is_gathered else Float8LinearConfig.from_recipe_name(recipe)
    with torch.device("meta"):
        return Float8Linear(16, 16, bias=False, config=config)


def linear(op: Op, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    from torchao.float8.float8_linear import Float8Linear

    settings = _settings(op.attributes["float8"], op.attributes["gathered_in_float8"])
    layer = SimpleNamespace(weight=weight, bias=bias, config=settings.config, linear_mm_config=settings.linear_mm_config)
    return Float8Linear.forward(layer, x)  # type: ignore[arg-type]


def _gathered(model: ExpandedModel) -> list[tuple[str, Any]]:
    """The weights that FSDP2 gathers in 8 bits, with the settings of their layers."""
    return [(op.parameters[0], _settings(op.attributes["float8"], True)) for op in model.ops if op.attributes["gathered_in_float8"]]


def wrap_weights(root: torch.nn.Module, model: ExpandedModel) -> None:
    """Replaces these weights as Float8Linear.from_float does, before the model is sharded."""
    for name, layer in _gathered(model):
        from torchao.float8.fsdp_utils import WeightWithDynamicFloat8CastTensor

        owner = root.get_submodule(parent_name(name))
        weight = getattr(owner, last_part(name))
        wrapped = WeightWithDynamicFloat8CastTensor(weight, layer.linear_mm_config, layer.config.cast_config_weight.target_dtype)
        setattr(owner, last_part(name), torch.nn.Parameter(wrapped, requires_grad=weight.requires_grad))


class _Layers(torch.nn.Module):
    """What torchao looks for in a model: Float8Linear modules with the model's own weights."""

    def __init__(self, root: torch.nn.Module, model: ExpandedModel) -> None:
        from torchao.float8.float8_linear import Float8Linear

        super().__init__()
        for number, (name, settings) in enumerate(_gathered(model)):
            with torch.device("meta"):
                layer = Float8Linear(16, 16, bias=False, config=settings.config)
            layer.weight = root.get_parameter(name)
            self.add_module(str(number), layer)


def precompute_scales(root: torch.nn.Module, model: ExpandedModel) -> None:
    from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp

    precompute_float8_dynamic_scale_for_fsdp(_Layers(root, model))
