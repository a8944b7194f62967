import numpy as np
import pytest

from ranks.native.library import open_library
from ranks.native.speed import measure_products, measure_reading
from tests.support.native_kernels import random_matrix, usable_sets

pytestmark = pytest.mark.skipif(not usable_sets(), reason="there is no native library here")


@pytest.mark.parametrize("num_threads", [1, 2])
def test_reading_and_multiplying_have_a_rate(num_threads):
    library = open_library()
    weight = random_matrix("Q4_1", 32, 64, np.random.default_rng(1))
    assert measure_reading(library, 1 << 20, num_threads) > 0
    assert measure_products(library, weight, num_threads) > 0
