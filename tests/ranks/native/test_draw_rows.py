"""What the library draws is what torch draws, whatever is kept and whoever is beside it."""

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ranks import sampler
from ranks.noise import DrawnRow
from ranks.plan import Draw
from tests.support.native_kernels import usable_sets
from tests.support.native_models import in_library
from tests.support.tiny_checkpoints import write_gguf
from tests.support.tiny_worlds import load_models

pytestmark = pytest.mark.skipif(not usable_sets(), reason="there is no native library here")
DRAWS = st.builds(
    Draw,
    temperature=st.sampled_from((0.0, 0.01, 0.3, 0.7, 1.0, 2.0, 50.0)),
    top_p=st.sampled_from((0.0, 1e-6, 0.3, 0.9, 0.95, 0.999, 1.0)),
    top_k=st.none() | st.integers(1, 300),
    min_p=st.sampled_from((0.0, 0.0, 1e-6, 0.05, 0.5, 1.0)),
    seed=st.integers(0, 2**64 - 1),
)
SPREADS = st.sampled_from((0.0, 1e-30, 0.01, 1.0, 4.0, 1e30))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_gguf(path, GGMLQuantizationType.Q4_1)
    return in_library(load_models(path, 1, torch.int8)[0], usable_sets()[0], num_threads=2)


def make_logits(width, spread, seed, *, num_rows=1, is_coarse=False):
    """Rows of normal logits; coarse ones have many that are equal."""
    values = np.random.default_rng(seed).normal(0, 1, (num_rows, width))
    values = np.round(values) if is_coarse else values
    return torch.from_numpy((values * spread).astype(np.float32))


ROWS = st.builds(
    make_logits,
    st.integers(1, 500),
    SPREADS,
    st.integers(0, 2**32),
    is_coarse=st.booleans(),
)


@settings(max_examples=300)
@given(logits=ROWS, draw=DRAWS, position=st.integers(0, 2**31))
@example(make_logits(500, 1.0, 3, is_coarse=True), Draw(temperature=1.0, top_k=7), 5)
@example(make_logits(500, 1e30, 3), Draw(temperature=0.01, top_p=0.9), 5)
def test_a_row_draws_what_torch_draws(model, logits, draw, position):
    drawn = [DrawnRow(row=0, draw=draw, position=position)]
    assert model.draw_rows(logits, drawn) == sampler.draw_rows(logits, drawn)


@pytest.mark.parametrize("draw", [
    Draw(temperature=0.7),
    Draw(temperature=0.7, top_p=0.9),
    Draw(temperature=3.0, top_p=0.99),
    Draw(temperature=0.7, top_k=40),
    Draw(temperature=1.0, top_k=40, top_p=0.9, min_p=0.02),
])  # fmt: skip
def test_many_rows_of_a_large_vocabulary_draw_what_torch_draws(model, draw):
    logits = make_logits(49_152, 3.0, 1, num_rows=12)
    drawn = [
        DrawnRow(row=row, draw=draw, position=at) for at, row in enumerate((3, 0, 11, 5, 4, 9, 8))
    ]
    together = model.draw_rows(logits, drawn)
    assert together == sampler.draw_rows(logits, drawn)
    assert len(set(together)) > 1
    assert [model.draw_rows(logits, [one])[0] for one in drawn] == together


def test_noise_is_that_of_torch_for_every_token(model):
    """With equal logits the noise alone decides."""
    logits = torch.zeros(1, 5_000)
    seen = set()
    for position in range(60):
        drawn = [DrawnRow(row=0, draw=Draw(temperature=1.0, seed=9), position=position)]
        noise = sampler.gumbel_noise(torch.arange(5_000), seed=9, position=position)
        (token_id,) = model.draw_rows(logits, drawn)
        assert token_id == int(noise.argmax())
        seen.add(token_id)
    assert len(seen) > 40


@settings(max_examples=200)
@given(
    width=st.integers(1, 1_200),
    seed=st.integers(0, 2**32),
    wrong=st.lists(st.sampled_from((np.nan, np.inf, -np.inf)), max_size=2),
    is_coarse=st.booleans(),
)
def test_a_row_that_is_not_finite_draws_nothing_and_of_equal_ones_the_first_is_likeliest(
    model, width, seed, wrong, is_coarse
):
    logits = make_logits(width, 4.0, seed, num_rows=3, is_coarse=is_coarse)
    at = np.random.default_rng(seed).integers(0, width, len(wrong))
    for where, value in zip(at, wrong, strict=True):
        logits[1, where] = value
    draws = (Draw(), Draw(temperature=seed % 2), Draw(temperature=0.7, top_p=0.9))
    drawn = [DrawnRow(row=row, draw=draw, position=7) for row, draw in enumerate(draws)]
    found = model.draw_rows(logits, drawn)
    assert found == sampler.draw_rows(logits, drawn)
    assert (found[1] == sampler.NOT_FINITE) == bool(wrong)
    assert found[0] == int(logits[0].argmax())
