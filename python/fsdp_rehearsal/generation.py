"""transformers' `generate` with beams, which may stop early depending on scores. Scores are not computed, so it continues to
its maximum length, as a real run may. Greedy and sampled generation need no change: their end is followed (known_rules.py)."""

from __future__ import annotations

import functools
import inspect
from types import ModuleType

from fsdp_rehearsal.guard import guarded

_HITS = "next_token_hits_stopping_criteria"


@guarded("Generation with beams")
def install(module: ModuleType) -> None:
    """After transformers.generation.utils."""
    mixin = module.GenerationMixin
    real = getattr(mixin, "_beam_search_has_unfinished_sequences", None)
    signature = inspect.signature(real) if real is not None else None
    if signature is None or _HITS not in signature.parameters:
        return

    @functools.wraps(real)
    def has_unfinished(*args, **kwargs):
        return ~signature.bind(*args, **kwargs).arguments[_HITS].all()

    # In some versions it is a method: then `self` is among the bound arguments.
    is_static = isinstance(inspect.getattr_static(mixin, real.__name__), staticmethod)
    mixin._beam_search_has_unfinished_sequences = staticmethod(has_unfinished) if is_static else has_unfinished
