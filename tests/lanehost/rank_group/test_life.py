"""The two tables of life."""

import pytest

from lanehost.rank_group.life import (
    GROUP_TRANSITIONS,
    LIVING,
    RANK_TRANSITIONS,
    GroupEvent,
    GroupState,
    IllegalEvent,
    RankEvent,
    RankState,
    next_group_state,
    next_rank_state,
)


@pytest.mark.parametrize("state", sorted(LIVING, key=str))
def test_any_rank_that_lives_can_be_lost_and_then_only_its_end_is_awaited(state):
    lost = next_rank_state(state, RankEvent.LOST)
    allowed = {event for event in RankEvent if (lost, event) in RANK_TRANSITIONS}
    assert allowed == {RankEvent.EXITED}
    assert next_rank_state(lost, RankEvent.EXITED) is RankState.GONE


def test_a_number_that_is_gone_can_only_be_spawned():
    allowed = {event for event in RankEvent if (RankState.GONE, event) in RANK_TRANSITIONS}
    assert allowed == {RankEvent.SPAWNED}


def test_what_was_given_up_stays_so():
    assert not [event for event in GroupEvent if (GroupState.GIVEN_UP, event) in GROUP_TRANSITIONS]


@pytest.mark.parametrize("state", [s for s in GroupState if s is not GroupState.GIVEN_UP])
def test_any_group_can_be_given_up(state):
    assert next_group_state(state, GroupEvent.GIVEN_UP) is GroupState.GIVEN_UP


def test_an_event_that_cannot_be_is_a_bug_and_says_what_it_was():
    with pytest.raises(IllegalEvent, match="a rank: SAID_LEFT in READY"):
        next_rank_state(RankState.READY, RankEvent.SAID_LEFT)
    with pytest.raises(IllegalEvent, match="the group: ALL_READY in SERVING"):
        next_group_state(GroupState.SERVING, GroupEvent.ALL_READY)
