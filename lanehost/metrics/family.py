"""What a metric is: its name, its labels, what it means, and where its values are read.

Names and units follow the conventions of Prometheus: seconds and bytes, `_total` behind
what is counted. A label has few values, and none that a client chose.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import isinf
from typing import Generic, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from lanehost.metrics.tally import Histogram


class Kind(Enum):
    """What may become of the values."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


Labels = tuple[str, ...]
Samples = Iterable[tuple[Labels, float | Histogram]]

_Source = TypeVar("_Source")
_UNITS = ("seconds", "bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(Generic[_Source]):
    """One metric.

    Attributes:
        name: As it is exposed, `_total` and `_info` included.
        kind: What may become of its values.
        meaning: Its HELP text.
        labels: The names of its labels.
        read: Gives the values of the labels, and what is told under them.
    """

    name: str
    kind: Kind
    meaning: str
    labels: Labels = ()
    read: Callable[[_Source], Samples]

    def expose(self, source: _Source) -> Metric:
        """Read the values, in the words of the library."""
        unit = next((unit for unit in _UNITS if self.name.endswith(f"_{unit}")), "")
        match self.kind:
            case Kind.COUNTER:
                counter = CounterMetricFamily(self.name, self.meaning, labels=self.labels)
                return _filled(counter, self.read(source))
            case Kind.GAUGE:
                gauge = GaugeMetricFamily(self.name, self.meaning, labels=self.labels, unit=unit)
                return _filled(gauge, self.read(source))
            case Kind.HISTOGRAM:
                return self._histogram(source, unit)
            case Kind.INFO:
                info = InfoMetricFamily(self.name.removesuffix("_info"), self.meaning)
                for labels, _ in self.read(source):
                    info.add_metric((), dict(zip(self.labels, labels, strict=True)))
                return info

    def _histogram(self, source: _Source, unit: str) -> Metric:
        family = HistogramMetricFamily(self.name, self.meaning, labels=self.labels, unit=unit)
        for labels, values in self.read(source):
            assert isinstance(values, Histogram), f"{self.name} is no histogram"
            buckets = [(_le(bound), count) for bound, count in values.cumulated()]
            family.add_metric(labels, buckets, sum_value=values.total)
        return family


def _filled(family: CounterMetricFamily | GaugeMetricFamily, samples: Samples) -> Metric:
    for labels, value in samples:
        assert not isinstance(value, Histogram), f"{family.name} is one number"
        family.add_metric(labels, value)
    return family


def _le(bound: float) -> str:
    return "+Inf" if isinf(bound) else repr(float(bound))


def plain(read: Callable[[_Source], float]) -> Callable[[_Source], Samples]:
    """Tell one number, without labels."""
    return lambda source: [((), read(source))]


def counter(name: str, meaning: str, read: Callable[[_Source], float]) -> Family[_Source]:
    """Make a counter without labels."""
    return Family(name=name, kind=Kind.COUNTER, meaning=meaning, read=plain(read))


def gauge(name: str, meaning: str, read: Callable[[_Source], float]) -> Family[_Source]:
    """Make a gauge without labels."""
    return Family(name=name, kind=Kind.GAUGE, meaning=meaning, read=plain(read))


def by_one(read: Callable[[_Source], Mapping[str, float]]) -> Callable[[_Source], Samples]:
    """Tell a number for each value of the only label."""
    return lambda source: [((value,), number) for value, number in read(source).items()]
