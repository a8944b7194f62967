import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ranks.errors import BadCheckpoint
from ranks.shards import HeadPart, NoCollective, cut_evenly, cut_shards, join_heads


@given(st.integers(1, 100_000), st.integers(1, 8), st.sampled_from((1, 16, 64)))
def test_a_cut_covers_all_units_once_in_order(total, num_parts, multiple):
    parts = cut_evenly(total, num_parts, multiple=multiple)
    assert [unit for part in parts for unit in (part.start, part.stop)][1:-1:2] == [
        part.start for part in parts[1:]
    ]
    assert parts[0].start == 0
    assert parts[-1].stop == total


@given(st.integers(2, 10_000))
def test_no_shard_is_empty_and_cuts_lie_on_a_multiple_where_they_can(total):
    first, second = cut_evenly(total, 2, multiple=16)
    assert len(first) > 0
    assert len(second) > 0
    assert first.stop % 16 == 0 or total <= 16


@pytest.mark.parametrize(
    ("total", "multiple", "lengths"),
    [(3, 1, [2, 1]), (1536, 16, [768, 768]), (49152, 16, [24576, 24576]), (168, 16, [96, 72])],
)
def test_the_first_run_is_the_longer_one(total, multiple, lengths):
    assert [len(part) for part in cut_evenly(total, 2, multiple=multiple)] == lengths


def test_one_rank_holds_both_shards_and_two_hold_one_each():
    assert cut_shards(3, rank=0, world_size=1).held == (0, 1)
    assert [cut_shards(3, rank=rank, world_size=2).held for rank in (0, 1)] == [(0,), (1,)]


def test_held_parts_are_those_of_the_held_shards():
    assert cut_shards(3, rank=1, world_size=2).held_parts(10, multiple=2) == [range(6, 10)]


def test_a_model_of_one_query_head_is_one_shard_and_cannot_be_cut():
    assert cut_shards(1, rank=0, world_size=1).num_shards == 1
    with pytest.raises(BadCheckpoint, match=r"num_heads is 1.*2 ranks"):
        cut_shards(1, rank=0, world_size=2)


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "expected"),
    [
        (6, 3, [(range(4), range(2)), (range(4, 6), range(2, 3))]),
        (4, 4, [(range(2), range(2)), (range(2, 4), range(2, 4))]),
        (4, 1, [(range(2), range(1)), (range(2, 4), range(1))]),
        (3, 1, [(range(2), range(1)), (range(2, 3), range(1))]),
        (1, 1, [(range(1), range(1))]),
    ],
)
def test_heads_are_cut_by_kv_group_or_share_the_kv_heads(num_heads, num_kv_heads, expected):
    shards = cut_shards(num_heads, rank=0, world_size=1)
    parts = shards.held_heads(num_heads, num_kv_heads)
    assert [(part.queries, part.kv) for part in parts] == expected
    assert bool(shards.describe_sharing(num_kv_heads)) == (num_kv_heads < len(parts))
    assert join_heads(parts) == HeadPart(queries=range(num_heads), kv=range(num_kv_heads))


def test_two_ranks_hold_the_parts_that_one_rank_holds_in_order():
    for num_heads, num_kv_heads in ((6, 3), (4, 1), (5, 1)):
        one = cut_shards(num_heads, rank=0, world_size=1).held_heads(num_heads, num_kv_heads)
        two = [
            cut_shards(num_heads, rank=rank, world_size=2).held_heads(num_heads, num_kv_heads)
            for rank in (0, 1)
        ]
        assert one == two[0] + two[1]


@pytest.mark.parametrize(("rank", "world_size"), [(0, 3), (2, 2), (-1, 1), (0, 0)])
def test_a_world_that_does_not_exist_is_refused(rank, world_size):
    with pytest.raises(ValueError, match="the limit is 2 ranks"):
        cut_shards(3, rank=rank, world_size=world_size)


def test_alone_a_collective_changes_nothing():
    tensor = torch.arange(4)
    collective = NoCollective()
    assert collective.all_reduce(tensor) is tensor
    assert collective.gather_columns(tensor) is tensor
    assert collective.broadcast_ids(tensor) is tensor
