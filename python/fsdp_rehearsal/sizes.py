"""Counts the parameters of a model under any kind of sharding."""

from __future__ import annotations

import math
import sys
from typing import Any


class Total:
    """Counts the parameters of several models, each parameter once."""

    def __init__(self) -> None:
        self.parameters = 0
        self.trainable = 0
        self.dtypes: dict[str, int] = {}
        self._seen: set[int] = set()

    def add(self, root: Any) -> None:
        """Counts the parameters below `root`."""
        self._flat(root)
        packed = _packed_weights(root)
        for parameter in root.parameters():
            state = packed.get(id(parameter))
            self._count(parameter, elements_of(parameter, state), parameter.requires_grad, state)

    def _count(self, parameter: Any, elements: int, trainable: bool, state: Any = None) -> None:
        if id(parameter) in self._seen:
            return
        self._seen.add(id(parameter))
        self.parameters += elements
        self.trainable += elements if trainable else 0
        packed = getattr(parameter, "quant_state", None) or state
        dtype = str(getattr(packed, "quant_type", None) or parameter.dtype)
        self.dtypes[dtype] = self.dtypes.get(dtype, 0) + elements

    def _flat(self, root: Any) -> None:
        """FSDP1: the flat parameters know the sizes of the original ones, and hide them."""
        api = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
        if api is None:
            return
        for module in root.modules():
            handle = getattr(module, "_handle", None) if isinstance(module, api.FullyShardedDataParallel) else None
            if handle is None:
                continue
            flat = handle.flat_param
            sizes = [_unpacked(info, elements) for info, elements in zip(flat._param_infos, flat._numels)]
            if flat._params is None:
                self._count(flat, sum(sizes), flat.requires_grad)
                continue
            self._seen.add(id(flat))
            for parameter, elements in zip(flat._params, sizes):
                self._count(parameter, elements, parameter.requires_grad)


def _unpacked(info: Any, elements: int) -> int:
    """The numbers of an original of a flat parameter: those that its elements pack."""
    shape = getattr(getattr(info.module, "quant_state", None), "shape", None) if info.param_name == "weight" else None
    return elements if shape is None else math.prod(shape)


def _packed_weights(root: Any) -> dict[int, Any]:
    """The states of quantization by weight. A weight that FSDP2 has made a DTensor has lost its own; the module still has it
    (bitsandbytes, fix_4bit_weight_quant_state_from_module)."""
    states = ((module, getattr(module, "quant_state", None)) for module in root.modules())
    return {
        id(weight): state
        for module, state in states
        if state is not None and (weight := getattr(module, "weight", None)) is not None
    }


def elements_of(parameter: Any, state: Any = None) -> int:
    """Elements of the unsharded parameter. A DTensor's are global already; ZeRO-3 stores them separately; bitsandbytes packs
    two 4-bit numbers into a byte, and the state of the quantization has their shape. `state` is that state if the parameter
    has none."""
    shape = getattr(getattr(parameter, "quant_state", None) or state, "shape", None)
    if shape is not None:
        return math.prod(shape)
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())
