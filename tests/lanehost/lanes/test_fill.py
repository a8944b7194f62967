from hypothesis import given
from hypothesis import strategies as st

from lanehost.job import Priority
from lanehost.lanes.fill import divide_fill
from lanehost.lanes.table import LaneTable
from tests.support.jobs import make_sequence


def make_lanes(*jobs):
    """A lane for each (scope, length of the prompt), seated in this order."""
    lanes = LaneTable(len(jobs), block_size=4)
    for scope, length in jobs:
        lanes.seat(make_sequence((1,) * length, scope=scope), (0,))
    return lanes


def divide(lanes, budget, *, max_prompts=16, weights=None):
    return divide_fill(lanes, budget=budget, max_prompts=max_prompts, weights=weights or {})


def test_within_a_scope_prompts_fill_up_in_the_order_of_seating():
    assert divide(make_lanes(("a", 6), ("a", 6)), 8) == {0: 6, 1: 2}


def test_a_short_prompt_does_not_wait_behind_the_long_ones_of_another_scope():
    lanes = make_lanes(("a", 800), ("a", 800), ("b", 3))
    assert divide(lanes, 128) == {0: 125, 2: 3}


def test_scopes_that_fill_share_a_step_by_weight():
    lanes = make_lanes(("a", 90), ("b", 90))
    assert divide(lanes, 16) == {0: 8, 1: 8}
    assert divide(lanes, 16, weights={"a": 3, "b": 1}) == {0: 12, 1: 4}


def test_who_fills_last_gets_what_is_left():
    lanes = LaneTable(2, block_size=4)
    lanes.seat(make_sequence((1,) * 9, priority=Priority.BACKGROUND), (0,))
    lanes.seat(make_sequence((1,) * 5), (0,))
    assert divide(lanes, 8) == {1: 5, 0: 3}


def test_no_more_prompts_than_may_share_a_step_and_of_each_scope_in_turn():
    lanes = make_lanes(("a", 2), ("a", 2), ("b", 2), ("a", 2))
    assert divide(lanes, 99, max_prompts=2) == {0: 2, 2: 2}


def test_with_more_scopes_than_tokens_some_wait_and_none_gets_more_than_there_is():
    lanes = make_lanes(*((scope, 9) for scope in "abcde"))
    assert divide(lanes, 3) == {0: 1, 1: 1, 2: 1}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30)), min_size=1, max_size=8),
    st.integers(0, 64),
    st.integers(1, 8),
    st.fixed_dictionaries({scope: st.integers(1, 9) for scope in "abc"}),
)
def test_all_of_the_budget_is_given_and_no_more(jobs, budget, max_prompts, weights):
    lanes = make_lanes(*jobs)
    given = divide(lanes, budget, max_prompts=max_prompts, weights=weights)
    lengths = {lane.lane_id: len(lane.prefill_ids) for lane in lanes}
    assert len(given) <= max_prompts
    assert all(0 < tokens <= lengths[lane_id] for lane_id, tokens in given.items())
    assert sum(given.values()) <= budget
    # What is left could be used by nobody who may share the step.
    if sum(given.values()) < budget:
        assert all(tokens == lengths[lane_id] for lane_id, tokens in given.items())
        assert len(given) == min(max_prompts, len(jobs))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(0, 64))
def test_with_one_scope_it_is_a_plain_queue(lengths, budget):
    given = divide(make_lanes(*(("", length) for length in lengths)), budget)
    left = budget
    for lane_id, length in enumerate(lengths):
        assert given.get(lane_id, 0) == min(length, left)
        left -= given.get(lane_id, 0)
