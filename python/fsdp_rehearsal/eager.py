"""Disables torch.compile: a capture, and its prediction, is the model as PyTorch runs it op by op. A compiler fuses ops, and
saves and recomputes other tensors.

Not modeled: code that was compiled earlier, and compilers that are called by other names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def leave_out_compile(torch: Any, note: Callable[[], None]) -> None:
    """`note` is called where the script would have run compiled code."""
    module = torch.nn.Module

    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if model is None:  # a decorator with arguments
            return compile
        if isinstance(model, module):
            note()
            return model
        if isinstance(model, type) or not callable(model):
            return model

        @functools.wraps(model)
        def call(*args: Any, **kwargs: Any) -> Any:
            """Libraries compile functions that are never called."""
            note()
            return model(*args, **kwargs)

        return call

    def compile_in_place(model: Any, *args: Any, **kwargs: Any) -> None:
        note()

    torch.compile, module.compile = compile, compile_in_place
