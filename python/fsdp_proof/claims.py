"""The stub GPU's claims about a card's behavior: the same questions are put to the card and to the stub.

Each answer is a number of bytes or a word. If a PyTorch cannot answer a question, the answer is the error's class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_BACKENDS = {-1: "error", 0: "math", 1: "flash", 2: "memory efficient", 3: "cuDNN", 4: "overrideable"}
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_MIB = 1 << 20


def facts(device: torch.device) -> dict[str, Any]:
    """The card, in the words of the stub's options (rehearsal/options.h)."""
    card = torch.cuda.get_device_properties(device)
    return {"NAME": card.name, "COMPUTE_CAPABILITY": card.major * 10 + card.minor, "SMS": card.multi_processor_count,
            "L2_BYTES": card.L2_cache_size, "BYTES": card.total_memory,
            "THREADS_PER_SM": card.max_threads_per_multi_processor,
            "SHARED_PER_BLOCK_BYTES": card.shared_memory_per_block_optin,
            "SHARED_PER_SM_BYTES": card.shared_memory_per_multiprocessor}


def attention(dtype: torch.dtype, head: int, length: int, causal: bool, device: torch.device) -> str:
    query = torch.empty(1, 8, length, head, dtype=dtype, device=device, requires_grad=True)
    return _BACKENDS.get(int(torch._fused_sdp_choice(query, query, query, None, 0.0, causal)), "unknown")


def kept_bytes(work: Callable[[], object]) -> int:
    """Memory still allocated after some work whose results are freed: workspaces of libraries."""
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated() - before


def product(dtype: torch.dtype, bias: bool, device: torch.device) -> None:
    left = torch.zeros(256, 256, dtype=dtype, device=device)
    torch.nn.functional.linear(left, left, left[0] if bias else None)


def convolution_bytes(dtype: torch.dtype, device: torch.device) -> int:
    """A convolution's memory besides its result."""
    image = torch.zeros(2, 64, 128, 128, dtype=dtype, device=device)
    kernel = torch.zeros(64, 64, 3, 3, dtype=dtype, device=device)
    torch.nn.functional.conv2d(image, kernel, padding=1)  # The first call allocates the permanent memory.
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = torch.nn.functional.conv2d(image, kernel, padding=1)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before - result.numel() * result.element_size()


def ask(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except (RuntimeError, AttributeError, TypeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def claims(device: torch.device) -> dict[str, Any]:
    """REQUIRES: there is a context, and no product has run yet."""
    found: dict[str, Any] = {}
    for bias in (False, True):
        found[f"workspace kept by {'a linear with bias' if bias else 'a product'}"] = ask(
            lambda bias=bias: kept_bytes(lambda: product(torch.bfloat16, bias, device)))
    for name, dtype in _DTYPES.items():
        for head, length in ((64, 128), (128, 2048)):
            for causal in (False, True):
                found[f"attention of {name}, head {head}, {length} tokens{', causal' if causal else ''}"] = ask(
                    lambda d=dtype, h=head, n=length, c=causal: attention(d, h, n, c, device))
    for name in ("fp32", "bf16"):
        found[f"workspace of a 3 x 3 convolution, {name}"] = ask(lambda d=_DTYPES[name]: convolution_bytes(d, device))
    torch.cuda.empty_cache()
    return found


def in_a_process_alone() -> None:
    """Prints the answers of the card that this process sees as JSON."""
    import json

    device = torch.device("cuda", 0)
    torch.zeros(1, device=device)
    print(json.dumps(claims(device)))


if __name__ == "__main__":
    in_a_process_alone()
