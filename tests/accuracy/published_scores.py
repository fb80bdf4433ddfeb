"""Figures of predictions beside what was published: how far off, which way, in which order, and inside which band."""

from __future__ import annotations

import collections
import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable

from published_runs import Prediction

LEAST_OF_A_RANK = 3  # Plans of one model on one cluster.


@dataclasses.dataclass(frozen=True)
class Errors:
    """Scores of signed errors: predicted over published, less one."""

    number: int
    mean_absolute: float
    median_absolute: float
    bias: float
    median: float
    least: float
    most: float


def errors(signed: Iterable[float]) -> Errors:
    values = list(signed)
    sizes = [abs(value) for value in values]
    return Errors(len(values), statistics.fmean(sizes), statistics.median(sizes), statistics.fmean(values), statistics.median(values),
                  min(values), max(values))  # fmt: skip


def eager(predictions: list[Prediction]) -> list[Prediction]:
    return [p for p in predictions if p.run.is_eager and p.run.is_timed]


def compiled(predictions: list[Prediction]) -> list[Prediction]:
    return [p for p in predictions if not p.run.is_eager and p.run.is_timed]


def with_reserved(predictions: list[Prediction]) -> list[Prediction]:
    """Eager runs whose reserved memory was published, where no limit of the card came between."""
    return [p for p in predictions if p.run.is_eager and p.run.reserved_gib and p.device <= p.budget]


def with_margin(predictions: list[Prediction]) -> list[Prediction]:
    """Eager runs of which it was published what the device or the allocator took, where no limit of the card came between."""
    return [p for p in predictions if p.run.is_eager and (p.run.reserved_gib or p.run.device_gib) and p.device <= p.budget]


def inside_the_margin(predictions: list[Prediction]) -> list[Prediction]:
    """Those of these that took no more than is predicted and kept free."""
    return [p for p in with_margin(predictions) if p.over * p.reserved <= p.margin - p.held]


def quantile(values: list[float], share: float) -> float:
    """The least value that so many are at most."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def with_allocated(predictions: list[Prediction]) -> list[Prediction]:
    return [p for p in predictions if p.run.is_eager and p.run.allocated_gib and not p.run.is_autocast]


def inside(predictions: list[Prediction]) -> float:
    return sum(p.is_inside for p in predictions) / len(predictions)


def grouped(predictions: list[Prediction], key: Callable[[Prediction], str]) -> dict[str, list[Prediction]]:
    groups: dict[str, list[Prediction]] = collections.defaultdict(list)
    for p in predictions:
        groups[key(p)].append(p)
    return dict(sorted(groups.items()))


def _ranks(values: list[float]) -> list[float]:
    """For equal values the mean of their places."""
    places = sorted(values)
    return [places.index(value) + (places.count(value) - 1) / 2 for value in values]


def rank_correlations(predictions: list[Prediction]) -> dict[str, tuple[int, float]]:
    """Spearman's, of tokens a second: plans and figure of each model on each cluster that has enough."""
    groups = grouped(predictions, lambda p: f"{p.run.table}: {p.run.model}, {p.run.gpus} x {p.run.gpu}")
    found = {}
    for name, group in groups.items():
        published = [p.run.tokens_per_second_per_gpu for p in group]
        predicted = [p.run.tokens_per_second_per_gpu * p.ratio for p in group]
        if len(group) >= LEAST_OF_A_RANK and len(set(published)) > 1:
            found[name] = (len(group), statistics.correlation(_ranks(published), _ranks(predicted)))
    return found


def mean_rank_correlation(predictions: list[Prediction]) -> float:
    found = rank_correlations(predictions).values()
    return sum(number * figure for number, figure in found) / sum(number for number, _ in found)


def quantile_band(predictions: list[Prediction]) -> tuple[float, float]:
    """What 19 of 20 published steps, in predicted ones, are above, and what 19 of 20 are below."""
    ratios = sorted(p.ratio for p in predictions)
    cut = len(ratios) // 20
    return ratios[cut], ratios[-1 - cut]


def share_within(predictions: list[Prediction], band: tuple[float, float]) -> float:
    return sum(band[0] <= p.ratio <= band[1] for p in predictions) / len(predictions)


def wrongly_fits(predictions: list[Prediction]) -> list[Prediction]:
    return [p for p in predictions if p.run.outcome == "out of memory" and p.has_room]


def wrongly_refused(predictions: list[Prediction]) -> list[Prediction]:
    return [p for p in predictions if p.run.is_eager and p.run.outcome == "ran" and not p.runs]


def tight(predictions: list[Prediction]) -> list[Prediction]:
    """Eager runs that ran and are said to run without room to spare."""
    return [p for p in predictions if p.run.is_eager and p.run.outcome == "ran" and p.tight]
