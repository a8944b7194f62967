import itertools

import pytest

from lanehost.lanes.lane import TRANSITIONS, IllegalLaneEvent, Lane, LaneEvent, LaneState
from tests.support.jobs import make_sequence


def seated(prompt_ids, *, state, max_tokens=4):
    return Lane(
        lane_id=0,
        state=state,
        sequence=make_sequence(prompt_ids, max_tokens=max_tokens),
        prefill_ids=prompt_ids,
        max_draws=max_tokens,
        block_ids=(0, 1),
        block_size=4,
    )


@pytest.mark.parametrize(
    ("state", "event"),
    [pair for pair in itertools.product(LaneState, LaneEvent) if pair not in TRANSITIONS],
)
def test_an_illegal_event_raises_and_changes_nothing(state, event):
    lane = Lane(lane_id=3, state=state)
    with pytest.raises(IllegalLaneEvent, match=event.name):
        lane.fire(event)
    assert lane.state is state


@pytest.mark.parametrize(("state", "event"), list(TRANSITIONS))
def test_a_legal_event_moves_along_the_table(state, event):
    lane = Lane(lane_id=3, state=state)
    lane.fire(event)
    assert lane.state is TRANSITIONS[state, event]


def test_every_state_is_reached_and_left():
    assert {state for state, _ in TRANSITIONS} == set(LaneState)
    assert set(TRANSITIONS.values()) == set(LaneState)


def test_a_lane_wants_prefill_until_its_prompt_is_planned_whole():
    lane = seated((1, 2, 3), state=LaneState.PREFILL)
    wanted = []
    for planned in range(4):
        lane.num_planned_tokens = planned
        wanted.append(lane.wants_prefill)
    assert wanted == [True, True, True, False]


def test_a_lane_may_decode_before_its_first_token_came_back():
    lane = seated((1, 2), max_tokens=2, state=LaneState.PREFILL)
    lane.num_planned_tokens, lane.num_planned_draws = 2, 1
    assert lane.wants_decode


def test_a_lane_never_plans_more_draws_than_its_job_allows():
    lane = seated((1, 2), max_tokens=2, state=LaneState.DECODE)
    lane.num_planned_tokens, lane.num_planned_draws = 3, 2
    assert not lane.wants_decode


def test_a_free_or_draining_lane_wants_nothing():
    for state in (LaneState.FREE, LaneState.DRAINING):
        lane = seated((1, 2), state=state)
        assert not lane.wants_prefill
        lane.num_planned_tokens = 2
        assert not lane.wants_decode


def test_repr_shows_state_job_and_progress():
    lane = Lane(lane_id=3)
    assert repr(lane) == "<Lane 3 FREE>"
    lane.sequence = make_sequence(job_id="j")
    lane.state, lane.num_planned_tokens = LaneState.DECODE, 4
    assert repr(lane) == "<Lane 3 DECODE job j 4/7>"


def test_a_lane_without_a_block_for_its_next_position_wants_to_decode_but_cannot():
    lane = seated((1, 2, 3), state=LaneState.DECODE, max_tokens=20)
    lane.num_planned_tokens = 7
    assert lane.can_decode
    lane.num_planned_tokens = 8
    assert lane.wants_decode
    assert not lane.can_decode


def test_a_free_lane_has_no_job():
    with pytest.raises(AssertionError, match="carries nothing"):
        _ = Lane(lane_id=3).job
