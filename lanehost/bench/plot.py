"""A run as a picture: shares of TTFT, ITL and latency, and tokens per second over the time.

Drawn with leather, which is small and makes SVG itself; it comes with `lanehost[plot]`.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lanehost.bench.long_prompt import gaps_before, gaps_during
from lanehost.bench.reply_times import ReplyTimes
from lanehost.bench.scenarios import Served
from lanehost.errors import StartupFailed

_MAX_POINTS = 400

Points = list[tuple[float, float]]


def check_can_plot() -> None:
    """See that what draws is there, before a long run.

    Raises:
        StartupFailed: It is not.
    """
    try:
        # Late, because it is an extra.
        import leather  # noqa: F401, PLC0415
    except ImportError as err:
        raise StartupFailed(
            "--plot needs the package leather: pip install 'lanehost[plot]'"
        ) from err


def plot_run(served: Served, path: Path) -> None:
    """Write an SVG of four charts.

    Raises:
        OSError: The file cannot be written.
    """
    # Late, because it is an extra; `check_can_plot` has seen that it is there.
    import leather  # noqa: PLC0415

    grid = leather.Grid()
    for title, unit, lines in _charts(served):
        drawn = {name: points for name, points in lines.items() if len(points) > 1}
        if not drawn:
            continue
        chart = leather.Chart(title)
        chart.add_x_axis(name=unit[0])
        chart.add_y_axis(name=unit[1])
        chart.add_x_scale(0, max(x for points in drawn.values() for x, _ in points))
        chart.add_y_scale(0, max(y for points in drawn.values() for _, y in points))
        for name, points in drawn.items():
            chart.add_line(points, name=name or None)
        grid.add_one(chart)
    grid.to_svg(str(path))


def _charts(served: Served) -> list[tuple[str, tuple[str, str], dict[str, Points]]]:
    ended = [reply for reply in served.replies if reply.failure is None]
    share = ("ms", "% of them within")
    if served.rounds:
        before = [gap.length_s for one in served.rounds for gap in gaps_before(one)]
        rounds = [one for one in served.rounds if one.long.arrivals]
        during = [gap.length_s for one in rounds for gap in gaps_during(one)]
        itl = {"before the long prompt": shares(before), "during it": shares(during)}
    else:
        itl = {"": shares([gap.length_s for reply in ended for gap in reply.gaps])}
    ttft = [reply.ttft_s for reply in ended if reply.ttft_s is not None]
    return [
        ("TTFT", share, {"": shares(ttft)}),
        ("ITL", share, itl),
        ("Latency", share, {"": shares([reply.latency_s for reply in ended])}),
        ("Tokens per second", ("s", "tokens/s"), {"": token_rate(ended)}),
    ]


def shares(seconds: Sequence[float]) -> Points:
    """Return points (milliseconds, percent of all values that are no longer)."""
    ordered = sorted(seconds)
    every = max(1, len(ordered) // _MAX_POINTS)
    points = [
        (value * 1e3, 100 * (number + 1) / len(ordered))
        for number, value in enumerate(ordered)
        if number % every == 0 or number + 1 == len(ordered)
    ]
    return [(0.0, 0.0), *points] if points else []


def token_rate(replies: Sequence[ReplyTimes]) -> Points:
    """Return points (whole seconds since the first was due, tokens that came in that second)."""
    if not replies:
        return []
    begin_s = min(reply.due_s for reply in replies)
    counts: Counter[int] = Counter()
    for reply in replies:
        for arrival in reply.arrivals:
            counts[int(arrival.at_s - begin_s)] += arrival.num_tokens
    return [(float(second), float(counts[second])) for second in range(max(counts, default=-1) + 1)]
