import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.bench.spread import percentile, spread_of

values = st.lists(st.floats(0, 1e6), min_size=1, max_size=200)


@given(values, st.integers(1, 100))
def test_a_percentile_is_the_least_measured_value_that_so_many_do_not_exceed(measured, percent):
    found = percentile(measured, percent)
    assert found in measured
    assert sum(one <= found for one in measured) * 100 >= percent * len(measured)
    less = [one for one in measured if one < found]
    assert len(less) * 100 < percent * len(measured)


@pytest.mark.parametrize(("percent", "expected"), [(1, 1), (7, 7), (50, 50), (99, 99), (100, 100)])
def test_of_a_hundred_values_the_nth_percentile_is_the_nth(percent, expected):
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_a_spread_tells_count_mean_percentiles_and_most():
    found = spread_of([4.0, 1.0, 2.0, 3.0])
    assert found is not None
    assert (found.count, found.mean, found.most) == (4, 2.5, 4.0)
    assert (found.p50, found.p90, found.p99) == (2.0, 4.0, 4.0)


def test_nothing_measured_has_no_spread():
    assert spread_of([]) is None
