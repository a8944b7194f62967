import pytest
from prometheus_client import CollectorRegistry, generate_latest

from lanehost.metrics.family import Family, Kind, by_one, plain
from lanehost.metrics.tally import Histogram


def lines(family, source):
    class Collector:
        def collect(self):
            yield family.expose(source)

    registry = CollectorRegistry()
    registry.register(Collector())
    return generate_latest(registry).decode().splitlines()


def test_a_counter_and_a_gauge_are_told_under_their_names_with_help_and_type():
    counter = Family(name="x_y_total", kind=Kind.COUNTER, meaning="Ys.", read=plain(len))
    assert lines(counter, "abc") == [
        "# HELP x_y_total Ys.",
        "# TYPE x_y_total counter",
        "x_y_total 3.0",
    ]
    gauge = Family(
        name="x_age_seconds",
        kind=Kind.GAUGE,
        meaning="Age.",
        labels=("scope",),
        read=by_one(lambda ages: ages),
    )
    assert lines(gauge, {"a": 1.5, "b": 0})[1:] == [
        "# TYPE x_age_seconds gauge",
        'x_age_seconds{scope="a"} 1.5',
        'x_age_seconds{scope="b"} 0.0',
    ]


def test_a_histogram_is_told_cumulated_with_its_sum():
    values = Histogram((0.5, 2))
    for value in (0.5, 1, 9):
        values.observe(value)
    family = Family(
        name="x_seconds", kind=Kind.HISTOGRAM, meaning="X.", read=lambda source: [((), source)]
    )
    assert lines(family, values)[2:] == [
        'x_seconds_bucket{le="0.5"} 1.0',
        'x_seconds_bucket{le="2.0"} 2.0',
        'x_seconds_bucket{le="+Inf"} 3.0',
        "x_seconds_count 3.0",
        "x_seconds_sum 10.5",
    ]


def test_what_is_only_said_is_told_as_labels_of_a_1():
    family = Family(
        name="x_info",
        kind=Kind.INFO,
        meaning="What.",
        labels=("a", "b"),
        read=lambda source: [(source, 1)],
    )
    assert lines(family, ("1", 'q"'))[1:] == ["# TYPE x_info gauge", 'x_info{a="1",b="q\\""} 1.0']


@pytest.mark.parametrize("kind", [Kind.COUNTER, Kind.GAUGE])
def test_a_histogram_told_as_one_number_is_a_bug(kind):
    family = Family(name="x_total", kind=kind, meaning="X.", read=lambda _: [((), Histogram(()))])
    with pytest.raises(AssertionError):
        family.expose(None)


def test_a_number_told_as_a_histogram_is_a_bug():
    family = Family(name="x", kind=Kind.HISTOGRAM, meaning="X.", read=plain(len))
    with pytest.raises(AssertionError):
        family.expose("")
