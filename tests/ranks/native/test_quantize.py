"""Floats rounded to groups: bounds of the error, what comes back as it was, what is refused."""

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks.native.packing import GROUP, to_floats
from ranks.native.quantize import LARGEST, NotHeld, quantize_eight, quantize_four

BOTH = (quantize_eight, quantize_four)
finite = st.floats(-LARGEST, LARGEST, width=32)
# Groups of numbers of one size, from below the least float16 to the largest.
sizes = st.sampled_from([1e-44, 1e-39, 1e-9, 1e-7, 1e-5, 1e-3, 1.0, 100.0, LARGEST])


@st.composite
def groups(pick):
    """[1, 32] finite values: a spread of some size around some middle."""
    size, middle = pick(sizes), pick(st.just(0.0) | sizes)
    unit = st.floats(-1, 1, width=32)
    values = np.array(pick(st.lists(unit, min_size=GROUP, max_size=GROUP)), dtype=np.float64)
    return np.clip(values * size + middle, -LARGEST, LARGEST).astype(np.float32)[None]


def errors(values, found):
    return np.abs(to_floats(found).astype(np.float64) - values.astype(np.float64))


def least_half_above(value):
    """The least float16 that is not below a value."""
    half = np.float16(value)
    return float(half if float(half) >= value else np.nextafter(half, np.float16(np.inf)))


@given(groups())
@settings(max_examples=300, deadline=None)
def test_eight_bits_err_by_at_most_half_a_scale_and_the_scale_is_that_of_the_greatest(values):
    found = quantize_eight(values)
    scale = float(found.scales[0, 0])
    # Values that lie half way between two quants may land on either, to the last float bit.
    assert errors(values, found).max() <= scale * 0.5 * (1 + 1e-6)
    assert scale <= least_half_above(float(np.abs(values).max()) / 127)
    assert np.abs(found.quants.astype(int)).max() <= 127


@given(groups())
@settings(max_examples=300, deadline=None)
def test_four_bits_err_no_more_than_a_range_that_clips_nothing(values):
    found = quantize_four(values)
    low, high = float(values.min()), float(values.max())
    minimum = -least_half_above(-low)
    half_scale = least_half_above((high - minimum) / 15) / 2
    assert (errors(values, found) ** 2).sum() <= GROUP * half_scale**2 * (1 + 1e-5)
    assert found.quants.max() <= 15
    assert found.scales[0, 0] >= 0


@given(groups())
@settings(max_examples=200, deadline=None)
def test_four_bits_err_no_more_than_a_q4_1_of_the_same_values(values):
    found = (errors(values, quantize_four(values)) ** 2).sum()
    with np.errstate(all="ignore"):
        theirs = dequantize(quantize(values, Kind.Q4_1), Kind.Q4_1)
        expected = ((theirs.astype(np.float64) - values) ** 2).sum()
    # The search compares sums of float32; below its least squares they are all alike.
    assert not found > expected * (1 + 1e-4) + 1e-37


@pytest.mark.parametrize(("quantizer", "kind"), [(quantize_eight, "Q8_0"), (quantize_four, "Q4_1")])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_what_such_groups_hold_comes_back_as_it_was(quantizer, kind, scale):
    values = np.random.default_rng(5).normal(0, scale, (64, 96)).astype(np.float32)
    held = dequantize(quantize(values, Kind[kind]), Kind[kind])
    assert np.array_equal(to_floats(quantizer(held)), held)


@given(finite)
@settings(max_examples=200, deadline=None)
def test_a_group_of_one_value_is_near_it(value):
    values = np.full((1, GROUP), value, dtype=np.float32)
    for quantizer in BOTH:
        # A half has eleven bits, and the smallest of them are 2^-24 apart.
        bound = abs(float(values[0, 0])) / 127 / 2 + 2.0**-25
        assert errors(values, quantizer(values)).max() <= bound * (1 + 1e-6)


@pytest.mark.parametrize("quantizer", BOTH)
def test_zeros_stay_zeros(quantizer):
    found = quantizer(np.zeros((2, 64), dtype=np.float32))
    assert not to_floats(found).any()
    assert not np.signbit(found.scales).any()


def test_the_search_takes_a_fifth_off_the_squared_error_of_the_whole_range():
    values = np.random.default_rng(9).standard_normal((200, 576)).astype(np.float32)
    theirs = dequantize(quantize(values, Kind.Q4_1), Kind.Q4_1)
    found = (errors(values, quantize_four(values)) ** 2).sum()
    assert found < 0.83 * ((theirs - values) ** 2).sum()


@pytest.mark.parametrize("quantizer", BOTH)
def test_a_group_is_its_own_whatever_is_beside_it(quantizer):
    values = np.random.default_rng(2).normal(0, 1, (2100, 64)).astype(np.float32)
    whole = quantizer(values)
    for rows, first in ((range(1), 0), (range(2000, 2100), 1), (range(7, 9), 1)):
        part = quantizer(np.ascontiguousarray(values[rows.start : rows.stop, first * 32 :]))
        assert np.array_equal(part.quants, whole.quants[rows.start : rows.stop, first * 32 :])
        assert np.array_equal(part.scales, whole.scales[rows.start : rows.stop, first:])


@pytest.mark.parametrize("quantizer", BOTH)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 65505.0, -1e30])
def test_what_groups_cannot_hold_is_refused_with_value_and_limit(quantizer, value):
    values = np.zeros((3, 64), dtype=np.float32)
    values[1, 40] = value
    with pytest.raises(NotHeld, match=r"allowed are finite values up to 65504") as failed:
        quantizer(values)
    assert str(failed.value).startswith(f"{np.float32(value):g},")
