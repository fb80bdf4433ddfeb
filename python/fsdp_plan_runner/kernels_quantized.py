"""Linear layers of bitsandbytes: its own product, on the packed weight of the module and on the tensors beside it.

Source: bitsandbytes/nn/modules.py (Linear4bit.forward) of bitsandbytes 0.50.2.
"""

from __future__ import annotations

import torch

from fsdp_plan_runner.expanded_model import Op
from fsdp_plan_runner.kernel_table import KernelContext, Tensors, dtype_of, kernel

RELEASE = "0.50.2"


@kernel("linear_4bit")
def linear_4bit(op: Op, context: KernelContext, inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    import bitsandbytes as bnb
    from bitsandbytes.functional import QuantState

    def beside(name: str) -> torch.Tensor:
        return context.buffer(f"{op.module}.{name}")

    nested = None
    if op.attributes["nested"]:
        nested = QuantState(absmax=beside("nested_absmax"), code=beside("nested_quant_map"), blocksize=256, dtype=torch.float32)
    state = QuantState(absmax=beside("absmax"), shape=torch.Size((op.attributes["out_features"], inputs[0].shape[-1])),
                       code=beside("quant_map"), blocksize=64, quant_type="fp4" if op.attributes["fp4"] else "nf4",
                       dtype=dtype_of(op.attributes["dtype"]), offset=beside("nested_offset") if nested else None, state2=nested)
    result = bnb.matmul_4bit(inputs[0], parameters[0], bias=parameters[1] if len(parameters) > 1 else None, quant_state=state)
    return result.clone() if op.attributes["cloned"] else result
