import statistics
from itertools import islice

import pytest

from lanehost.bench.workload import Lengths, make_asks, poisson_arrivals

LENGTHS = Lengths(prompt=(4, 16), reply=(2, 8))


def asks(seed="1", **rest):
    return list(islice(make_asks(LENGTHS, vocab_size=1000, seed=seed, **rest), 50))


def test_the_same_seed_gives_the_same_requests_and_another_gives_others():
    assert asks() == asks()
    assert asks() != asks("2")


def test_the_same_seed_gives_the_same_arrivals_and_another_gives_others():
    assert poisson_arrivals(3.0, count=20, seed="1") == poisson_arrivals(3.0, count=20, seed="1")
    assert poisson_arrivals(3.0, count=20, seed="1") != poisson_arrivals(3.0, count=20, seed="2")


def test_arrivals_rise_and_have_the_mean_and_the_spread_of_a_poisson_process():
    arrivals = poisson_arrivals(4.0, count=20_000, seed="7")
    gaps = [after - before for before, after in zip([0.0, *arrivals], arrivals, strict=False)]
    assert min(gaps) > 0
    assert statistics.mean(gaps) == pytest.approx(0.25, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.25, rel=0.05)


def test_lengths_come_from_the_mix_and_all_of_it_comes():
    assert {len(ask.token_ids) for ask in asks()} == {4, 16}
    assert {ask.max_tokens for ask in asks()} == {2, 8}


def test_every_prompt_has_the_prefix_and_goes_on_on_its_own():
    prefix = (5, 6, 7)
    found = asks(prefix=prefix)
    assert all(ask.token_ids[:3] == prefix for ask in found)
    assert len({ask.token_ids[3:] for ask in found}) == len(found)


def test_ids_keep_off_both_ends_of_the_vocabulary():
    found = {token_id for ask in asks() for token_id in ask.token_ids}
    assert min(found) >= 125
    assert max(found) < 875
