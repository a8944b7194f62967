from hypothesis import given
from hypothesis import strategies as st

from lanehost.errors import InvalidRequest, LanehostError, StartupFailed
from lanehost.job import FinishReason, Priority
from lanehost.metrics import tally
from lanehost.metrics.tally import ERRORS, Histogram, Tally
from ranks.plan import RefusalKind

BOUNDS = (0.5, 1, 2.5)
seconds = st.floats(0, 10) | st.sampled_from(BOUNDS)


@given(st.lists(seconds))
def test_a_bound_counts_all_that_is_not_above_it(values):
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    assert dict(histogram.cumulated()) == {
        bound: sum(value <= bound for value in values) for bound in (*BOUNDS, float("inf"))
    }
    assert histogram.total == sum(values)


def test_the_bounds_rise():
    names = [name for name in vars(tally) if name.endswith("_BOUNDS_S")]
    assert len(names) == 5
    for name in names:
        bounds = getattr(tally, name)
        assert list(bounds) == sorted(set(bounds))


def test_what_is_known_to_be_possible_is_there_from_the_start_as_0():
    begun = Tally.of(("a", "b"))
    assert begun.refused == dict.fromkeys(ERRORS, 0)
    assert begun.ended == dict.fromkeys((*(one.value for one in FinishReason), *ERRORS), 0)
    assert begun.steps_refused == dict.fromkeys((kind.value for kind in RefusalKind), 0)
    assert begun.generated_tokens == {"a": 0, "b": 0}
    assert begun.accepted == {(one.value, scope): 0 for one in Priority for scope in "ab"}


def test_every_error_that_a_client_can_get_is_known():
    leaves = {
        one.__name__
        for one in (*LanehostError.__subclasses__(), *InvalidRequest.__subclasses__())
        if one.__module__ == LanehostError.__module__ and one is not StartupFailed
    }
    assert set(ERRORS) == leaves


def test_a_histogram_shows_how_many_and_how_much():
    histogram = Histogram(BOUNDS)
    histogram.observe(0.25)
    assert repr(histogram) == "<Histogram 1 values, 0.25 in all>"
