"""One function for each kind of op: its kernel. The names are those of core/model/op.h."""

from __future__ import annotations

# The families enter their functions into the table when they are imported.
from fsdp_plan_runner import (  # noqa: F401
    kernels_attention,
    kernels_layers,
    kernels_liger,
    kernels_linear_attention,
    kernels_quantized,
    kernels_tensors,
    losses,
)
from fsdp_plan_runner.kernel_table import KERNELS, KernelContext, dtype_of

__all__ = ["KERNELS", "KernelContext", "dtype_of"]
