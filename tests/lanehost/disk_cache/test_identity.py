from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.disk_cache import identity
from lanehost.disk_cache.identity import ModelIdentity, prefix_keys, scope_digest, tokens_digest
from tests.support.disk_entries import MODEL


@pytest.mark.parametrize("name", [field.name for field in fields(ModelIdentity)])
def test_every_part_of_the_model_is_part_of_the_layout(name):
    value = getattr(MODEL, name)
    other = value + 1 if isinstance(value, int) else value + "x"
    assert replace(MODEL, **{name: other}).layout != MODEL.layout


def test_what_moves_from_one_field_into_the_next_is_another_layout():
    ours = replace(MODEL, weights_digest="ab", config_digest="c")
    assert ours.layout != replace(MODEL, weights_digest="a", config_digest="bc").layout


def test_another_version_of_the_form_agrees_with_nothing(monkeypatch):
    before = (MODEL.layout, scope_digest("s"), tokens_digest((1, 2)))
    monkeypatch.setattr(identity, "IDENTITY_VERSION", 2)
    after = (MODEL.layout, scope_digest("s"), tokens_digest((1, 2)))
    assert not set(before) & set(after)


PROMPTS = st.lists(st.integers(0, 3), min_size=8, max_size=8).map(tuple)


@given(PROMPTS, PROMPTS)
def test_keys_agree_exactly_as_far_as_tokens_do(one, other):
    ours, theirs = (prefix_keys("l", "o", ids, block_size=4) for ids in (one, other))
    for num_blocks in (1, 2):
        is_same = one[: num_blocks * 4] == other[: num_blocks * 4]
        assert (ours[num_blocks - 1] == theirs[num_blocks - 1]) is is_same


@pytest.mark.parametrize(("layout", "owner", "size"), [("m", "o", 4), ("l", "p", 4), ("lo", "", 4)])
def test_layout_and_owner_are_part_of_each_key(layout, owner, size):
    ours = prefix_keys("l", "o", range(8), block_size=4)
    assert not set(ours) & set(prefix_keys(layout, owner, range(8), block_size=size))


def test_another_block_size_has_other_keys():
    ours = prefix_keys("l", "o", range(8), block_size=4)
    assert not set(ours) & set(prefix_keys("l", "o", range(8), block_size=8))


def test_what_is_behind_the_last_whole_block_has_no_key():
    assert prefix_keys("l", "o", range(3), block_size=4) == ()
    assert prefix_keys("l", "o", range(11), block_size=4) == prefix_keys(
        "l", "o", range(8), block_size=4
    )


def test_the_name_of_a_scope_is_not_in_what_stands_for_it():
    assert "alice" not in scope_digest("alice")
    assert len(scope_digest("alice")) == len(tokens_digest((1,))) == 64
