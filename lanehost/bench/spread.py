"""How measured values are spread: percentiles, mean, most; pure.

Law: a percentile is a value that was measured, never one between two.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Values in a few numbers."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    most: float


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the least value that `percent` of all values do not exceed (nearest rank).

    >>> percentile([4.0, 1.0, 3.0, 2.0], 50), percentile([4.0, 1.0, 3.0, 2.0], 99)
    (2.0, 4.0)
    """
    ordered = sorted(values)
    rank = -(-percent * len(ordered) // 100)  # whole numbers: 7 % of 100 values is the 7th
    return ordered[max(1, rank) - 1]


def spread_of(values: Sequence[float]) -> Spread | None:
    """Return the spread of values, or None when there are none."""
    if not values:
        return None
    return Spread(
        count=len(values),
        mean=sum(values) / len(values),
        p50=percentile(values, 50),
        p90=percentile(values, 90),
        p99=percentile(values, 99),
        most=max(values),
    )
