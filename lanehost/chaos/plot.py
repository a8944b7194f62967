"""A chaos run as a picture: tokens a second, recoveries, and what the master holds."""

from pathlib import Path

from lanehost.bench.plot import Points
from lanehost.chaos.laws import recoveries_s
from lanehost.chaos.seen import Seen


def plot_chaos(seen: Seen, path: Path) -> None:
    """Write an SVG; `lanehost.bench.plot.check_can_plot` has seen that it can be drawn.

    Raises:
        OSError: The file cannot be written.
    """
    # Late, because it is an extra.
    import leather  # noqa: PLC0415

    grid = leather.Grid()
    for title, unit, points in charts(seen):
        if len(points) < 2:  # noqa: PLR2004 - a line has two ends
            continue
        chart = leather.Chart(title)
        chart.add_x_axis(name="s" if unit != "s" else "recovery")
        chart.add_y_axis(name=unit)
        chart.add_x_scale(0, max(x for x, _ in points))
        chart.add_y_scale(0, max(1.0, *(y for _, y in points)))
        chart.add_line(points)
        grid.add_one(chart)
    grid.to_svg(str(path))


def charts(seen: Seen) -> list[tuple[str, str, Points]]:
    """Give title, unit of the values, and points of each chart."""
    begin_s = seen.loaded_s
    counts: dict[int, int] = {}
    for at_s in seen.arrivals_s:
        if at_s >= begin_s:
            counts[int(at_s - begin_s)] = counts.get(int(at_s - begin_s), 0) + 1
    last = max(counts, default=-1)
    recoveries = enumerate(recoveries_s(seen), start=1)
    return [
        ("Events of streams per second", "1/s",
         [(float(second), float(counts.get(second, 0))) for second in range(last + 1)]),
        ("Recoveries, in the order of their faults", "s",
         [(float(number), took_s) for number, took_s in recoveries]),
        ("Memory of the master", "MiB",
         [(at_s - begin_s, one.usages["master"].rss_bytes / (1 << 20))
          for at_s, one in seen.samples if "master" in one.usages]),
    ]  # fmt: skip
