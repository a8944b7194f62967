"""From the figures of rounds to medians and ratios; pure.

Law: a ratio is of two figures of one round, so that what else the machine does befalls both;
the median of the ratios is told with the least and the most. A side that was not measured has
no figure.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Column → tokens per second, of one side in one round.
Speeds = Mapping[str, float]
# Side → its figures. A side that failed in a round is not in it.
Round = Mapping[str, Speeds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio over rounds."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f})"


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Ratio | None:
    """Divide the first of each pair by the second; None when there is no pair.

    >>> str(ratio_of([(3.0, 1.0), (2.0, 2.0), (4.0, 2.0)]))
    '2.00 (1.00 to 3.00)'
    """
    if not pairs:
        return None
    ratios = [one / other for one, other in pairs]
    return Ratio(median=statistics.median(ratios), least=min(ratios), most=max(ratios))


def ratio_in(rounds: Sequence[Round], column: str, *, over: str, under: str) -> Ratio | None:
    """Compare two sides in a column, over the rounds that have both."""
    return ratio_of(
        [
            (one[over][column], one[under][column])
            for one in rounds
            if column in one.get(over, {}) and column in one.get(under, {})
        ]
    )


def median_in(rounds: Sequence[Round], column: str, side: str) -> float | None:
    """Return the median of a side in a column; None when it was never measured."""
    found = [one[side][column] for one in rounds if column in one.get(side, {})]
    return statistics.median(found) if found else None


def fastest(rounds: Sequence[Round], column: str, sides: Sequence[str]) -> str | None:
    """Name the side with the highest median in a column; None when none was measured."""
    medians = {side: median_in(rounds, column, side) for side in sides}
    measured = {side: median for side, median in medians.items() if median is not None}
    return max(measured, key=measured.__getitem__) if measured else None


def reached(ratio: float, column: str, goals: Mapping[str, Mapping[str, float]]) -> str:
    """Name the highest goal that a ratio reaches; a dash below the first.

    >>> reached(2.5, "x", {"must": {"x": 2.0}, "goal": {"x": 3.0}})
    'must'
    """
    return next((name for name in reversed(list(goals)) if ratio >= goals[name][column]), "-")
