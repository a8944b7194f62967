"""Every kernel of every set of instructions gives the bits of the reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks.native import reference
from ranks.native.build import LIBRARY
from ranks.native.library import NoLibrary, open_library
from ranks.native.packing import PACKABLE
from ranks.native.reference import KeysValues, ReferenceMatrix
from tests.support.native_kernels import Kernels, PagedHead, random_matrix, usable_sets

SETS = usable_sets()
pytestmark = pytest.mark.skipif(not SETS, reason="there is no native library on this machine")


@pytest.fixture(params=SETS)
def kernels(request):
    return Kernels(request.param)


@pytest.fixture
def random():
    return np.random.default_rng(7)


def wild_rows(random, rows, width):
    """Rows with outliers, groups of zeros, and the smallest and greatest numbers."""
    x = random.normal(0, 1, (rows, width)).astype(np.float32)
    x *= random.choice(np.float32([1e-3, 1, 1, 40]), (rows, width))
    x[0, :32] = 0
    x[-1, :32] = 1e-38
    x[-1, 32:64] = 3e38
    return x


def assert_same_bits(a, b):
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    whole = np.uint32 if a.itemsize == 4 else np.uint16
    different = (a.view(whole) != b.view(whole)) & ~(np.isnan(a) & np.isnan(b))
    assert not different.any()


def test_the_library_runs_the_widest_set_that_the_processor_has():
    assert open_library().instruction_set == SETS[0]


def test_a_set_that_the_processor_lacks_is_refused():
    with pytest.raises(NoLibrary, match="none of sse9"):
        open_library("sse9")


def test_a_library_of_other_sources_is_refused(tmp_path):
    stale = tmp_path / "stale.so"
    sources = open_library().sources().encode()
    stale.write_bytes(LIBRARY.read_bytes().replace(sources, b"0" * len(sources)))
    with pytest.raises(NoLibrary, match="other sources"):
        open_library(path=stale)


def test_what_is_no_library_is_refused(tmp_path):
    with pytest.raises(NoLibrary, match="not built"):
        open_library(path=tmp_path / "absent.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(NoLibrary, match="cannot be loaded"):
        open_library(path=tmp_path / "text.so")


def test_quantized_rows_are_those_of_the_reference(kernels, random):
    x = wild_rows(random, 19, 576)
    values, scales, weighted_sums = kernels.quantize(x).rows()
    expected = reference.quantize(x)
    assert np.array_equal(values, expected.values)
    assert_same_bits(scales, expected.scales)
    assert_same_bits(weighted_sums, expected.weighted_sums)


def test_rows_in_fifteen_bits_are_those_of_the_reference(kernels, random):
    x = wild_rows(random, 19, 576)
    fine, expected = kernels.quantize_finely(x), reference.quantize_finely(x)
    assert np.array_equal(fine.values, expected.values)
    assert_same_bits(fine.scales, expected.scales)
    assert_same_bits(fine.weighted_sums, expected.weighted_sums)


def test_fifteen_bits_are_finer_than_seven(random):
    x = random.normal(0, 1, (5, 64)).astype(np.float32)
    fine = reference.quantize_finely(x)
    restored = fine.values * fine.scales.repeat(32, axis=1)
    assert np.abs(restored - x).max() <= np.abs(x).max() / 16383


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so_and_stays_in_its_row(kernels, random, bad):
    x = random.normal(0, 1, (3, 64)).astype(np.float32)
    x[1, 40] = bad
    weight = random_matrix("Q4_1", 16, 64, random)
    for y in (kernels.product(weight, x), kernels.product_finely(weight, x)):
        assert np.isnan(y[1]).all()
        assert np.isfinite(y[[0, 2]]).all()


@pytest.mark.parametrize("kind_name", PACKABLE)
@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(1, 16, 32), (13, 80, 576), (33, 48, 224)])
def test_a_product_is_that_of_the_reference(kernels, random, kind_name, rows, outputs, inputs):
    weight = random_matrix(kind_name, outputs, inputs, random)
    x = wild_rows(random, rows, inputs)
    expected = ReferenceMatrix(weight).product(reference.quantize(x))
    assert_same_bits(kernels.product(weight, x), expected)
    finely = ReferenceMatrix(weight).product_finely(reference.quantize_finely(x))
    assert_same_bits(kernels.product_finely(weight, x), finely)


@pytest.mark.parametrize("kind_name", PACKABLE)
@pytest.mark.parametrize("quant", [0x00, 0x0F, 0x7F, 0x80, 0xFF])
def test_no_sum_overflows(kernels, random, kind_name, quant):
    weight = random_matrix(kind_name, 16, 64, random)
    start = 64 if kind_name == "Q8_0" else 0
    weight.data[:, start : start + 256] = quant
    for sign in (1, -1):
        x = np.full((5, 64), sign, np.float32)
        expected = ReferenceMatrix(weight).product(reference.quantize(x))
        assert_same_bits(kernels.product(weight, x), expected)
        finely = ReferenceMatrix(weight).product_finely(reference.quantize_finely(x))
        assert_same_bits(kernels.product_finely(weight, x), finely)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_row_of_a_product_has_the_same_bits_in_any_batch(data):
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    kernels = Kernels(data.draw(st.sampled_from(SETS)))
    weight = random_matrix(data.draw(st.sampled_from(sorted(PACKABLE))), 32, 96, random)
    pool = wild_rows(random, 12, 96)
    chosen = data.draw(st.lists(st.integers(0, 11), min_size=1, max_size=70))
    for product in (kernels.product, kernels.product_finely):
        alone = np.concatenate([product(weight, row[None]) for row in pool])
        assert_same_bits(product(weight, pool[chosen]), alone[chosen])


@pytest.mark.parametrize("width", [16, 64, 576])
def test_a_norm_is_that_of_the_reference(kernels, random, width):
    x = random.normal(0, 3, (5, width)).astype(np.float32)
    weight = random.normal(1, 0.2, width).astype(np.float32)
    assert_same_bits(kernels.norm(x, weight, 1e-5), reference.norm(x, weight, 1e-5))


@pytest.mark.parametrize("head_dim", [16, 32, 64, 80, 128])
def test_a_rotation_is_that_of_the_reference(kernels, random, head_dim):
    heads = random.normal(0, 1, (3, 2, head_dim)).astype(np.float32)
    angles = random.uniform(0, 6, (3, head_dim // 2))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    expected = reference.rotate(heads, cos, sin, 0.125)
    assert_same_bits(kernels.rotate(heads, cos, sin, 0.125), expected)


def test_gates_are_those_of_the_reference(kernels, random):
    gates = random.normal(0, 20, 4096).astype(np.float32)
    gates[:6] = [0, -0.0, 1000, -1000, np.inf, np.nan]
    ups = random.normal(0, 2, 4096).astype(np.float32)
    gated = kernels.gate(gates, ups)
    assert_same_bits(gated, reference.gate(gates, ups))
    assert np.isnan(gated[5])
    wide = gates[6:].astype(np.float64)
    with np.errstate(over="ignore"):
        exact = wide / (1 + np.exp(-wide)) * ups[6:]
    np.testing.assert_allclose(gated[6:], exact, rtol=1e-6, atol=1e-30)


def test_every_half_is_rounded_as_the_standard_says(kernels, random):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[np.isfinite(halves)]
    between = np.nextafter(halves, np.float32(np.inf))
    middles = ((halves[:-1].astype(np.float64) + halves[1:]) / 2).astype(np.float32)
    x = np.concatenate((halves, between, middles, np.float32([65519, 65520, 1e9, np.inf, -np.inf])))
    x = np.pad(x, (0, -len(x) % 16))
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    assert_same_bits(kernels.to_half(x), expected)


def lane(random, positions, head_dim):
    keys, values = random.normal(0, 1, (2, positions, head_dim)).astype(np.float16)
    return keys, values


@pytest.mark.parametrize("block_size", [1, 8, 16, 64])
@pytest.mark.parametrize("head_dim", [16, 64, 80])
@pytest.mark.parametrize("num_queries", [1, 3, 7])
def test_attention_is_that_of_the_reference(kernels, random, block_size, head_dim, num_queries):
    keys, values = lane(random, 117, head_dim)
    queries = random.normal(0, 0.5, (num_queries, head_dim)).astype(np.float32)
    stops = np.sort(random.integers(1, 118, num_queries))
    starts = np.maximum(0, stops - random.integers(1, 118, num_queries))
    bounds = np.stack((starts, stops), axis=1).astype(np.int32)
    table = random.permutation(-(-117 // block_size)).astype(np.int64)
    cache = PagedHead.holding(keys, values, block_size, table)
    seen = KeysValues(keys=keys.astype(np.float32), values=values.astype(np.float32))
    expected = [
        reference.attend(query[None], seen, start, stop)
        for query, (start, stop) in zip(queries, bounds, strict=True)
    ]
    assert_same_bits(kernels.attend(queries, cache, bounds), np.concatenate(expected))


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_a_query_has_the_same_bits_beside_any_others(data):
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    kernels = Kernels(data.draw(st.sampled_from(SETS)))
    keys, values = lane(random, 60, 32)
    cache = PagedHead.holding(keys, values, 16, random.permutation(4).astype(np.int64))
    queries = random.normal(0, 0.5, (9, 32)).astype(np.float32)
    stops = random.integers(1, 61, 9)
    bounds = np.stack((stops // 3, stops), axis=1).astype(np.int32)
    alone = np.concatenate(
        [kernels.attend(queries[i : i + 1], cache, bounds[i : i + 1]) for i in range(9)]
    )
    chosen = data.draw(st.lists(st.integers(0, 8), min_size=1, max_size=20))
    together = kernels.attend(queries[chosen], cache, np.ascontiguousarray(bounds[chosen]))
    assert_same_bits(together, alone[chosen])
