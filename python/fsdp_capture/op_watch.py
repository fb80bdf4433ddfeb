"""Observes the work of a forward: dispatched ops, kernels of Triton, and launches that neither accounts for.

The stub GPU counts launches. Launches between two ops come from a library that calls its own kernels. Their work is unknown,
so we report the module that makes them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fsdp_capture.op_costs import Cost, cost_of, cost_of_triton

DISPATCHED = "D|"


@dataclass
class Tensor:
    """The facts of an argument or result of an op."""

    address: int  # of its storage
    bytes: int
    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool


@dataclass
class DispatchedOp:
    name: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    cost: Cost


def _tensors(values: Any) -> Any:
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, (tuple, list)):
        values = (values,)
    for value in values:
        if isinstance(value, (tuple, list, dict)):
            yield from _tensors(value)
        elif getattr(value, "is_cuda", False):
            yield getattr(value, "elem", value)  # of a tensor that a collective may still be filling


def _described(tensors: list[Any]) -> list[Tensor]:
    result = []
    for t in tensors:
        storage = t.untyped_storage()
        result.append(
            Tensor(storage.data_ptr(), t.numel() * t.element_size(), tuple(t.shape), str(t.dtype)[6:], t.requires_grad)
        )
    return result


class OpWatch:
    """One for each recording. Active between `begin` and `end`, in each forward."""

    def __init__(self, torch: Any, launches: Callable[[], int]) -> None:
        """`launches`: returns the number of kernels that the program has launched."""
        self.ops: list[DispatchedOp] = []
        self.without_cost: dict[str, None] = {}  # ops of unknown cost, in order
        self.has_narrow_products = False
        self._torch, self._launches = torch, launches
        self._mode: Any = None
        self._is_inside = False  # inside an op or a kernel, which accounts for its own launches
        self._seen = 0  # launches that are accounted for
        self._modules: list[str] = []  # classes of the running modules

    @property
    def is_on(self) -> bool:
        return self._mode is not None

    def begin(self) -> None:
        self._mode = self._new_mode()
        self._mode.__enter__()
        self._unhook = self._hook_triton()
        self._seen, self._modules = self._launches(), []

    def end(self) -> None:
        self._settle()
        mode, self._mode = self._mode, None
        self._unhook()
        mode.__exit__(None, None, None)

    def enter(self, class_name: str) -> None:
        """A module is called."""
        if self.is_on:
            self._settle()
            self._modules.append(class_name)

    def leave(self) -> None:
        """The module returns."""
        if self.is_on and self._modules:
            self._settle()
            self._modules.pop()

    def _settle(self) -> None:
        """Launches since the last op belong to no op."""
        now = self._launches()
        if now > self._seen and not self._is_inside:
            of = self._modules[-1] if self._modules else "the script"
            self.without_cost.setdefault(f"kernels that {of} launches without PyTorch")
        self._seen = now

    def _run(self, call: Callable[[], Any]) -> Any:
        if self._is_inside:
            return call()
        self._settle()
        self._is_inside = True
        try:
            return call()
        finally:
            self._is_inside, self._seen = False, self._launches()

    def _note(self, name: str, full_name: str, inputs: list[Tensor], outputs: list[Tensor], cost: Cost) -> None:
        with self._torch._C._profiler._RecordFunctionFast(f"{DISPATCHED}{len(self.ops)}"):
            self.ops.append(DispatchedOp(name, inputs, outputs, cost))
        self.has_narrow_products = self.has_narrow_products or cost.is_narrow
        if not cost.is_known:
            self.without_cost.setdefault(full_name)

    def _new_mode(self) -> Any:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils.flop_counter import flop_registry

        watch = self

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                kwargs = kwargs or {}
                result = watch._run(lambda: func(*args, **kwargs))
                given, made = list(_tensors((args, kwargs))), list(_tensors(result))
                if given or made:
                    name = func.overloadpacket.__name__
                    cost = cost_of(func, args, kwargs, given, made, flop_registry.get(func.overloadpacket))
                    watch._note(name, f"{func.namespace}::{name}", _described(given), _described(made), cost)
                return result

        return Watch()

    def _hook_triton(self) -> Callable[[], None]:
        """Kernels of Triton are no ops. We exclude their arguments from the recording, which already knows the reads of
        ops."""
        jit = sys.modules.get("triton.runtime.jit")
        if jit is None:
            return lambda: None
        kind, real = jit.JITFunction, jit.JITFunction.run

        @functools.wraps(real)
        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_inside or kwargs.get("warmup"):
                return real(kernel, *args, **kwargs)
            result = self._run(lambda: real(kernel, *args, **kwargs))
            name = getattr(kernel, "__name__", "") or kernel.fn.__name__
            cost = cost_of_triton(list(_tensors((args, kwargs))), _multiplies(kernel, jit.JITFunction))
            self._note(name, f"the Triton kernel {name}", [], [], cost)
            return result

        kind.run = run

        def unhook() -> None:
            kind.run = real

        return unhook


def _multiplies(kernel: Any, kind: Any, depth: int = 3) -> bool:
    """Whether a kernel of Triton, or one that it calls, multiplies matrices."""
    if "tl.dot" in kernel.src or "tl.dot_scaled" in kernel.src:
        return True
    code = getattr(kernel.fn, "__code__", None)
    names = code.co_names if code is not None and depth > 0 else ()
    called = (kernel.fn.__globals__.get(name) for name in names)
    return any(_multiplies(each, kind, depth - 1) for each in called if isinstance(each, kind))
