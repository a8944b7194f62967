"""The reference computes what it says: against float64, up to rounding."""

import numpy as np
import pytest

from ranks.native import reference
from ranks.native.packing import PACKABLE, unpack
from ranks.native.reference import KeysValues, ReferenceMatrix
from tests.ranks.native.test_packing import to_values
from tests.support.native_kernels import random_matrix


@pytest.fixture
def random():
    return np.random.default_rng(11)


def test_quants_are_within_half_a_step(random):
    x = random.normal(0, 2, (4, 96)).astype(np.float32)
    quantized = reference.quantize(x)
    steps = np.repeat(quantized.scales, 16, axis=1)
    assert (np.abs(quantized.values * steps - x) <= steps * 0.501).all()
    assert np.abs(quantized.values).max() == 127


@pytest.mark.parametrize("kind_name", PACKABLE)
def test_a_product_is_that_of_the_weights_with_the_quantized_rows(random, kind_name):
    matrix = random_matrix(kind_name, 48, 96, random)
    quantized = reference.quantize(random.normal(0, 1, (5, 96)).astype(np.float32))
    rows = quantized.values * np.repeat(quantized.scales, 16, axis=1).astype(np.float64)
    expected = rows @ to_values(unpack(matrix)).T.astype(np.float64)
    np.testing.assert_allclose(
        ReferenceMatrix(matrix).product(quantized), expected, rtol=1e-4, atol=1e-4
    )


def test_the_exponential_is_exact_to_two_last_bits(random):
    x = random.uniform(-80, 80, 10_000).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(reference.exponential(x) - exact) <= exact * 2.5e-7).all()


def test_attention_is_softmax_times_values(random):
    queries = random.normal(0, 0.3, (3, 32)).astype(np.float32)
    keys, values = random.normal(0, 1, (2, 70, 32)).astype(np.float32)
    attended = reference.attend(queries, KeysValues(keys=keys, values=values), 5, 61)
    shares = np.exp(queries.astype(np.float64) @ keys[5:61].T)
    expected = shares / shares.sum(axis=1, keepdims=True) @ values[5:61]
    np.testing.assert_allclose(attended, expected, rtol=1e-5, atol=1e-6)


def test_a_norm_divides_by_the_root_mean_square(random):
    x, weight = random.normal(0, 1, (2, 3, 48)).astype(np.float32)
    exact = x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(reference.norm(x, weight[0], 1e-5), exact * weight[0], rtol=1e-5)
