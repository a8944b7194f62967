import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks.noise import DrawnRow
from ranks.plan import Draw
from ranks.sampler import NOT_FINITE, _keep_top_p, draw_rows, gumbel_noise

MASK = (1 << 64) - 1


def logits_of(seed, rows=1, vocab=97, scale=3.0):
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * scale


def draw_all(logits, draws, positions):
    each = enumerate(zip(draws, positions, strict=True))
    return draw_rows(logits, [DrawnRow(row=n, draw=one, position=at) for n, (one, at) in each])


def draw_one(logits, draw, position=0):
    (token_id,) = draw_all(logits[None], [draw], [position])
    assert token_id != NOT_FINITE
    return token_id


# A plain reference: integers for the hash, numpy for the filters.
def reference_mix(value):
    value &= MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def reference_noise(seed, position, token_id):
    key = reference_mix(reference_mix(seed) + position * 0x9E3779B97F4A7C15)
    bits = reference_mix(token_id * 0x9E3779B97F4A7C15 + key) >> 12
    return float(np.float32(-math.log(-math.log((bits + 0.5) / 2**52))))


def reference_kept(logits, draw):
    """Ids that the filters keep, from the sorted list of (logit, id)."""
    scores = logits.double().numpy() / draw.temperature
    order = sorted(range(len(scores)), key=lambda token_id: (-scores[token_id], token_id))
    if draw.top_k is not None:
        order = order[: draw.top_k]
    masses = np.exp([scores[token_id] - scores[order[0]] for token_id in order])
    before = np.cumsum(masses) - masses
    order = [
        one for one, mass in zip(order, before, strict=True) if mass < draw.top_p * masses.sum()
    ]
    floor = math.log(draw.min_p) if draw.min_p else -math.inf
    return sorted(one for one in order if scores[one] - scores[order[0]] >= floor)


@given(st.integers(0, MASK), st.integers(0, 1 << 20), st.lists(st.integers(0, 200_000), min_size=1))
def test_noise_is_the_written_hash_of_seed_position_and_token_id(seed, position, token_ids):
    noise = gumbel_noise(torch.tensor(token_ids), seed=seed, position=position)
    expected = [reference_noise(seed, position, one) for one in token_ids]
    assert noise.tolist() == pytest.approx(expected, rel=1e-6)


@given(st.integers(0, 50))
def test_greedy_takes_the_largest(seed):
    logits = logits_of(seed)[0]
    assert draw_one(logits, Draw()) == max(range(97), key=lambda one: float(logits[one]))


@pytest.mark.parametrize("vocab", [3, 97, 50_001])
def test_greedy_takes_the_lowest_id_on_ties(vocab):
    logits = torch.zeros(vocab)
    logits[vocab // 3 :: 2] = 5.0
    assert draw_one(logits, Draw()) == vocab // 3


draws = st.builds(
    Draw,
    temperature=st.sampled_from((0.0, 0.05, 0.7, 1.0, 2.5)),
    top_p=st.sampled_from((0.01, 0.5, 0.9, 1.0)),
    top_k=st.sampled_from((None, 1, 2, 40, 1000)),
    min_p=st.sampled_from((0.0, 0.05, 0.5, 1.0)),
    seed=st.integers(0, MASK),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(draws, st.integers(0, 9999)), min_size=1, max_size=9), st.integers(0, 99))
def test_a_row_draws_the_same_alone_and_in_any_batch(rows, seed):
    logits = logits_of(seed, rows=len(rows))
    together = draw_all(logits, [draw for draw, _ in rows], [at for _, at in rows])
    alone = [draw_one(one, draw, at) for one, (draw, at) in zip(logits, rows, strict=True)]
    assert together == alone


@settings(max_examples=100, deadline=None)
@given(draws, st.integers(0, 999), st.booleans())
def test_a_drawn_token_is_the_noisy_best_of_what_the_filters_keep(draw, seed, has_ties):
    draw = Draw(
        temperature=draw.temperature or 1.0,
        top_p=draw.top_p, top_k=draw.top_k, min_p=draw.min_p, seed=draw.seed,
    )  # fmt: skip
    logits = logits_of(seed)[0]
    if has_ties:
        logits = logits.round()
    kept = reference_kept(logits, draw)
    scores = logits.double().numpy() / draw.temperature
    expected = max(kept, key=lambda one: scores[one] + reference_noise(draw.seed, 17, one))
    assert draw_one(logits, draw, 17) == expected


def test_top_p_sees_past_its_first_look_when_a_row_is_flat():
    logits = logits_of(3, vocab=5000, scale=0.01)[0]
    draw = Draw(temperature=1.0, top_p=0.7, seed=5)
    kept = reference_kept(logits, draw)
    assert 3000 < len(kept) < 4000
    drawn = {draw_one(logits, draw, position) for position in range(300)}
    assert drawn <= set(kept)
    assert len(drawn) > 250


@pytest.mark.parametrize("scale", [0.0, 0.01, 0.5, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("top_p", [1e-9, 0.3, 0.9, 0.999_999, 1 - 2**-24])
def test_top_p_keeps_the_same_whatever_it_looks_at_first(scale, top_p):
    logits = logits_of(6, vocab=3000, scale=scale)[0]
    draw = Draw(temperature=1.0, top_p=top_p, seed=5)
    kept, token_ids = _keep_top_p(logits.double() - logits.max(), torch.arange(3000), top_p)
    assert token_ids.tolist() == reference_kept(logits, draw)
    assert torch.equal(kept, (logits.double() - logits.max())[token_ids])


def test_top_k_keeps_the_lowest_ids_of_equal_logits():
    logits = torch.zeros(50)
    drawn = {draw_one(logits, Draw(temperature=1.0, top_k=3, seed=seed)) for seed in range(200)}
    assert drawn == {0, 1, 2}


@pytest.mark.parametrize("vary", ["seed", "position"])
def test_draws_follow_the_softmax(vary):
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 1.5, -3.0, 0.5])
    temperature, count = 0.8, 6000
    probabilities = torch.softmax(logits / temperature, dim=0).tolist()
    seeds = range(count) if vary == "seed" else [11] * count
    positions = range(count) if vary == "position" else [11] * count
    drawn = draw_all(
        logits.expand(count, -1),
        [Draw(temperature=temperature, seed=seed) for seed in seeds],
        list(positions),
    )
    counts = np.bincount(drawn, minlength=7).tolist()

    chi_square = sum(
        (seen - count * one) ** 2 / (count * one)
        for seen, one in zip(counts, probabilities, strict=True)
    )

    assert chi_square < 22.5  # 6 degrees of freedom: above it by chance once in 1000


def test_neighbouring_tokens_positions_and_seeds_are_not_correlated():
    token_ids = torch.arange(20_000)
    base = gumbel_noise(token_ids, seed=1, position=1)
    others = [
        gumbel_noise(token_ids, seed=1, position=2),
        gumbel_noise(token_ids, seed=2, position=1),
        gumbel_noise(token_ids + 1, seed=1, position=1),
    ]
    for other in others:
        assert abs(float(torch.corrcoef(torch.stack((base, other)))[0, 1])) < 0.03
    assert float(base.mean()) == pytest.approx(0.5772, abs=0.03)
    assert float(base.std()) == pytest.approx(math.pi / math.sqrt(6), abs=0.03)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_draws_nothing_and_harms_no_neighbour(poison):
    logits = logits_of(4, rows=3)
    rows = [Draw(), Draw(temperature=1.0, seed=3), Draw(temperature=1.0, top_p=0.9, seed=4)]
    clean = draw_all(logits, rows, [5, 6, 7])
    logits[1, 20] = poison
    assert draw_all(logits, rows, [5, 6, 7]) == [clean[0], NOT_FINITE, clean[2]]


def test_a_very_low_temperature_is_greedy():
    logits = logits_of(8)[0]
    assert draw_one(logits, Draw(temperature=1e-30, seed=1)) == draw_one(logits, Draw())


def test_no_rows_draw_nothing():
    assert draw_all(torch.empty(0, 7), [], []) == []
