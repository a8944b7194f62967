"""The speeds of all sides as bars, one chart a column; drawn with leather, which is an extra."""

from collections.abc import Sequence
from pathlib import Path

from bench.peers.ratios import Round, median_in


def plot_speeds(
    rounds: Sequence[Round], columns: Sequence[str], sides: Sequence[str], path: Path
) -> None:
    """Write an SVG; a side that was not measured has no bar.

    Raises:
        OSError: The file cannot be written.
    """
    # Late, because it is an extra; the command has seen that it is there.
    import leather  # noqa: PLC0415

    grid = leather.Grid()
    for column in columns:
        bars = bars_of(rounds, column, sides)
        if bars:
            chart = leather.Chart(f"{column}: tokens per second")
            chart.add_x_scale(0, max(value for value, _ in bars))
            chart.add_bars(bars)
            grid.add_one(chart)
    grid.to_svg(str(path))


def bars_of(rounds: Sequence[Round], column: str, sides: Sequence[str]) -> list[tuple[float, str]]:
    """Return the median of each side that has one."""
    medians = [(median_in(rounds, column, side), side) for side in sides]
    return [(median, side) for median, side in medians if median is not None]
