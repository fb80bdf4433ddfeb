"""What a training step must communicate and hold, by closed formulas over the shapes of a model.

Sources: the FSDP2 and FSDP1 semantics of PyTorch 2.11 (a unit is gathered for forward and again for backward, except the root,
which stays; each unit is reduced once); DistributedDataParallel (every gradient once, in its own type); the ZeRO paper,
arXiv:1910.02054, table 1, for bytes per parameter.
"""

from __future__ import annotations

import dataclasses

from shapes import Model, elements, padded

# (kind, dtype) -> (count, elements); a count of None is not compared: buckets decide it.
Traffic = dict[tuple[str, str], tuple[int | None, int]]

ADAM_FLOAT32 = 16  # parameter, gradient and two moments
H100_WORKSPACES = 2 * (32 << 20)  # cuBLAS keeps 32 MiB for the main thread and for autograd's


@dataclasses.dataclass
class Figure:
    """A number of the report, as its keys joined by dots, and what it must be."""

    key: str
    value: float
    low: float  # differences that are right: value + low <= measured <= value + high
    high: float
    source: str


def near(key: str, value: float, share: float, source: str) -> Figure:
    return Figure(key, value, -share * value, share * value, source)


def held(value: float, above: float, source: str) -> Figure:
    """Live when the last step has ended: `value` for the states, and workspaces, batches and losses `above` it."""
    return Figure("rehearsal.at_end_requested_bytes", value, 0, above, source)


def fsdp2(model: Model, ranks: int, reduce: str = "float32", root_again: bool = False) -> Traffic:
    root, units = padded(model.root, ranks), [padded(unit, ranks) for unit in model.units]
    frozen = padded(model.frozen, ranks)
    again = sum(units) + root * root_again
    return {
        ("all_gather", "bfloat16"): (2 * len(units) + 1 + root_again, root + sum(units) + again),
        ("reduce_scatter", reduce): (len(units) + 1, root - frozen + sum(units)),
    }


def fsdp1(model: Model, ranks: int, reduce: str = "bfloat16") -> Traffic:
    """Each unit is one flat parameter, filled up to a multiple of the ranks."""
    flat = [-(-elements(unit) // ranks) * ranks for unit in model.units]
    root = -(-elements(model.root) // ranks) * ranks
    return {
        ("all_gather", "bfloat16"): (2 * len(flat) + 1, root + 2 * sum(flat)),
        ("reduce_scatter", reduce): (len(flat) + 1, root + sum(flat)),
    }


def ddp(model: Model) -> Traffic:
    return {("all_reduce", "float32"): (None, model.trainable)}


def fsdp_states(model: Model, ranks: int, above: float) -> Figure:
    """FSDP2 fills up the last shard, so no rank holds more than its padded part."""
    shard = padded(model.root, ranks) + sum(padded(unit, ranks) for unit in model.units)
    return held(ADAM_FLOAT32 * shard / ranks, above, "16 bytes a parameter over the ranks, and workspaces")


def whole_states(model: Model, above: float) -> Figure:
    frozen = elements(model.frozen)
    return held(ADAM_FLOAT32 * model.trainable + 4 * frozen, above, "16 bytes a parameter, and workspaces")
