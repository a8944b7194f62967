"""Ranks that do not fit together are refused by name, with both values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.errors import StartupFailed
from lanehost.rank_group.agreement import (
    check_agreement,
    check_replacement,
    choose_num_blocks,
    group_facts,
    refuse_hello,
    start_status,
)
from ranks.wire.messages import Form
from tests.support.rank_facts import group_settings, hello, loaded, terms


def test_a_rank_of_this_group_is_taken():
    assert refuse_hello(hello(rank=1), terms(), {1}) is None


@pytest.mark.parametrize(
    ("changes", "says", "is_ours"),
    [
        ({"token": "other"}, "the token is not this group's", False),
        ({"token": "other", "build": "0"}, "the token is not this group's", False),
        ({"build": "9.9.9"}, "rank 0 runs build 9.9.9, the master runs 1.2.3", True),
        ({"world_size": 3}, "rank 0 believes in 3 ranks, the master in 2", True),
        ({"rank": 2}, "rank 2 dialled, there are ranks 0 to 1", True),
        ({"rank": 1}, "rank 1 has dialled already", False),
    ],
)
def test_who_is_not_of_this_group_is_refused_by_name(changes, says, is_ours):
    refusal = refuse_hello(hello(**changes), terms(), {0})
    assert (refusal.reason, refusal.is_ours) == (says, is_ours)


def test_the_token_is_in_no_repr():
    assert "the-token" not in repr(terms())


@pytest.mark.parametrize(
    ("said_hello", "loaded_", "says"),
    [
        ([], [], "have 0 of 2 ranks, missing rank 0, 1"),
        ([0], [0], "have 1 of 2 ranks, missing rank 1"),
        ([0], [], "have 1 of 2 ranks, missing rank 1, rank 0 still loads"),
        ([1, 0], [0], "have 2 of 2 ranks, rank 1 still loads"),
        ([0, 1], [0, 1], "have 2 of 2 ranks"),
    ],
)
def test_who_is_awaited_is_named(said_hello, loaded_, says):
    assert start_status(said_hello=said_hello, loaded=loaded_, world_size=2) == says


def test_ranks_that_loaded_alike_agree():
    check_agreement({0: loaded(), 1: loaded(geometry="other", free_bytes=1)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weights_digest", "x"),
        ("config_digest", "x"),
        ("vocab_size", 101),
        ("context_length", 4096),
        ("dtype", "bfloat16"),
        ("device", "cuda"),
        ("collective", "nccl"),
        ("weights", "int4"),
    ],
)
def test_ranks_that_differ_are_refused_with_both_values(name, value):
    ranks = {0: loaded(), 1: loaded(**{name: value})}
    says = f"ranks disagree on {name}: rank 0 has {getattr(ranks[0], name)!r}, rank 1 has {value!r}"
    with pytest.raises(StartupFailed) as failed:
        check_agreement(ranks)
    assert str(failed.value) == says


def test_what_was_asked_for_is_the_pool():
    settings = group_settings(kv_tokens=1000)
    assert choose_num_blocks(settings, {0: loaded()}) == 1000 // 16


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"free_bytes": 111_111}, "needs 100000 bytes for its KV pool and 0 for a step"),
        ({"step_bytes": 10_000, "free_bytes": 122_222}, "and 10000 for a step"),
        # A lane is never longer than the context: 2048 tokens are 128 blocks.
        ({"step_bytes_per_block": 100, "free_bytes": 122_222}, "and 10000 for a step"),
        ({"free_bytes": 100_000}, "it has 100000 free and may take 90% of them"),
    ],
)
def test_a_pool_that_a_rank_cannot_hold_beside_a_step_is_refused_with_the_numbers(changes, says):
    settings = group_settings(kv_tokens=16 * 100)
    with pytest.raises(StartupFailed, match=f"--kv-tokens is 1600: rank 1 .*{says}"):
        choose_num_blocks(settings, {0: loaded(), 1: loaded(**changes)})
    roomier = changes | {"free_bytes": 122_223}
    assert choose_num_blocks(settings, {0: loaded(), 1: loaded(**roomier)}) == 100


def test_the_part_of_a_step_that_grows_with_its_lanes_ends_at_the_context():
    settings = group_settings(kv_tokens=16 * 1000)
    facts = loaded(free_bytes=1_200_000, step_bytes_per_block=500, context_length=100)
    assert choose_num_blocks(settings, {0: facts}) == 1000


@pytest.mark.parametrize(
    ("context_length", "num_lanes", "tokens"), [(16384, 4, 16384), (2048, 16, 8192)]
)
def test_unasked_the_pool_holds_one_context_or_512_tokens_a_lane(context_length, num_lanes, tokens):
    settings = group_settings(num_lanes=num_lanes)
    ranks = {0: loaded(context_length=context_length)}
    assert choose_num_blocks(settings, ranks) == tokens // 16


@pytest.mark.parametrize("changes", [{"free_bytes": 1500}, {"step_bytes": 600_000_000}])
def test_no_block_that_fits_is_refused_with_the_numbers(changes):
    facts = loaded(**changes)
    says = (
        f"no KV block fits: rank 1 has {facts.free_bytes} bytes free, may take 60% of them, "
        f"and needs {facts.step_bytes} for a step and 1000 for a block"
    )
    with pytest.raises(StartupFailed) as failed:
        choose_num_blocks(group_settings(), {0: loaded(), 1: facts})
    assert str(failed.value) == says


sizes = st.integers(1, 1000)


@given(st.lists(st.tuples(st.integers(10**4, 10**8), sizes, sizes, sizes), min_size=2, max_size=2))
def test_unasked_pool_and_step_take_at_most_60_percent_of_what_any_rank_has_free(facts):
    ranks = {
        rank: loaded(
            free_bytes=free, kv_bytes_per_block=kv, step_bytes=step, step_bytes_per_block=per_block
        )
        for rank, (free, kv, step, per_block) in enumerate(facts)
    }
    num_blocks = choose_num_blocks(group_settings(), ranks)
    for one in ranks.values():
        needed = one.step_bytes + num_blocks * (one.kv_bytes_per_block + one.step_bytes_per_block)
        assert needed <= 0.6 * one.free_bytes


def test_the_facts_are_what_all_agreed_on():
    form = Form(
        epoch=1,
        num_blocks=7,
        block_size=16,
        num_lanes=3,
        max_step_tokens=64,
        collective_timeout_s=1,
    )
    ranks = {0: loaded(kv_bytes_per_block=1000), 1: loaded(kv_bytes_per_block=500)}
    facts = group_facts(group_settings(), ranks, form)
    assert (facts.world_size, facts.num_blocks, facts.kv_tokens) == (2, 7, 112)
    assert (facts.vocab_size, facts.collective) == (100, "gloo")
    assert facts.kv_bytes_per_block == 1500


def test_a_replaced_rank_must_have_what_its_number_had_in_the_first_epoch():
    assert check_replacement(loaded(), loaded(free_bytes=1)) is None
    said = check_replacement(loaded(), loaded(weights_digest="x"))
    assert said == "has weights_digest 'x', the first epoch had 'w'"
    assert check_replacement(loaded(), loaded(geometry="h")) is not None
