import itertools

import pytest

from lanehost.lanes.lane import TRANSITIONS, IllegalLaneEvent, Lane, LaneEvent, LaneState
from tests.support.jobs import make_job


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
    lane = Lane(lane_id=0, state=LaneState.PREFILL, job=make_job((1, 2, 3)))
    wanted = []
    for planned in range(4):
        lane.num_planned_tokens = planned
        wanted.append(lane.wants_prefill)
    assert wanted == [True, True, True, False]


def test_a_lane_may_decode_before_its_first_token_came_back():
    lane = Lane(lane_id=0, state=LaneState.PREFILL, job=make_job((1, 2), max_tokens=2))
    lane.num_planned_tokens, lane.num_planned_draws = 2, 1
    assert lane.wants_decode


def test_a_lane_never_plans_more_draws_than_its_job_allows():
    lane = Lane(lane_id=0, state=LaneState.DECODE, job=make_job((1, 2), max_tokens=2))
    lane.num_planned_tokens, lane.num_planned_draws = 3, 2
    assert not lane.wants_decode


def test_a_free_or_draining_lane_wants_nothing():
    for state in (LaneState.FREE, LaneState.DRAINING):
        lane = Lane(lane_id=0, state=state, job=make_job((1, 2)))
        assert not lane.wants_prefill
        lane.num_planned_tokens = 2
        assert not lane.wants_decode


def test_repr_shows_state_job_and_progress():
    lane = Lane(lane_id=3)
    assert repr(lane) == "<Lane 3 FREE>"
    lane.job, lane.state, lane.num_planned_tokens = make_job(job_id="j"), LaneState.DECODE, 4
    assert repr(lane) == "<Lane 3 DECODE job j 4/7>"
