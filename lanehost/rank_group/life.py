"""The lives of a rank and of the group: two tables, and nothing else moves them; pure.

a rank: GONE ─spawned─▶ STARTING ─hello─▶ LOADING ─loaded─▶ LOADED ─form─▶ FORMING ─ready─▶ READY
▲               │leave         │leave
└────left──── LEAVING ◀────────┘
any that lives ─lost─▶ LOST ─exited─▶ GONE

the group: STARTING ─all loaded─▶ FORMING ─all ready─▶ SERVING
FORMING, SERVING ─lost─▶ RECOVERING ─all loaded─▶ FORMING
any ─given up─▶ GIVEN_UP
"""

from enum import Enum


class RankState(Enum):
    """Where a rank is in its life; one number has many lives."""

    GONE = "gone"
    STARTING = "starting"
    LOADING = "loading"
    LOADED = "loaded"
    FORMING = "forming"
    READY = "ready"
    LEAVING = "leaving"
    LOST = "lost"


class RankEvent(Enum):
    """What happens to a rank."""

    SPAWNED = "spawned"
    SAID_HELLO = "said Hello"
    SAID_LOADED = "said Loaded"
    TOLD_TO_FORM = "told to form"
    SAID_READY = "said Ready"
    TOLD_TO_LEAVE = "told to leave"
    SAID_LEFT = "said Left"
    LOST = "lost"
    EXITED = "exited"


LIVING = frozenset(RankState) - {RankState.GONE, RankState.LOST}
# In these a rank is part of a group, or about to be: an epoch that ends is told to it.
IN_GROUP = frozenset({RankState.FORMING, RankState.READY})

RANK_TRANSITIONS: dict[tuple[RankState, RankEvent], RankState] = {
    (RankState.GONE, RankEvent.SPAWNED): RankState.STARTING,
    (RankState.STARTING, RankEvent.SAID_HELLO): RankState.LOADING,
    (RankState.LOADING, RankEvent.SAID_LOADED): RankState.LOADED,
    (RankState.LOADED, RankEvent.TOLD_TO_FORM): RankState.FORMING,
    (RankState.FORMING, RankEvent.SAID_READY): RankState.READY,
    (RankState.FORMING, RankEvent.TOLD_TO_LEAVE): RankState.LEAVING,
    (RankState.READY, RankEvent.TOLD_TO_LEAVE): RankState.LEAVING,
    # Ready and Leave met on the way.
    (RankState.LEAVING, RankEvent.SAID_READY): RankState.LEAVING,
    (RankState.LEAVING, RankEvent.SAID_LEFT): RankState.LOADED,
    **{(state, RankEvent.LOST): RankState.LOST for state in LIVING},
    (RankState.LOST, RankEvent.EXITED): RankState.GONE,
}


class GroupState(Enum):
    """Where the group is."""

    STARTING = "starting"
    FORMING = "forming"
    SERVING = "serving"
    RECOVERING = "recovering"
    GIVEN_UP = "given up"


class GroupEvent(Enum):
    """What happens to the group."""

    ALL_LOADED = "all loaded"
    ALL_READY = "all ready"
    LOST = "lost"
    GIVEN_UP = "given up"


GROUP_TRANSITIONS: dict[tuple[GroupState, GroupEvent], GroupState] = {
    (GroupState.STARTING, GroupEvent.ALL_LOADED): GroupState.FORMING,
    (GroupState.FORMING, GroupEvent.ALL_READY): GroupState.SERVING,
    (GroupState.FORMING, GroupEvent.LOST): GroupState.RECOVERING,
    (GroupState.SERVING, GroupEvent.LOST): GroupState.RECOVERING,
    (GroupState.RECOVERING, GroupEvent.LOST): GroupState.RECOVERING,
    (GroupState.RECOVERING, GroupEvent.ALL_LOADED): GroupState.FORMING,
    **{
        (state, GroupEvent.GIVEN_UP): GroupState.GIVEN_UP
        for state in GroupState
        if state is not GroupState.GIVEN_UP
    },
}


class IllegalEvent(AssertionError):
    """The event cannot happen in this state: a bug of ours."""


def next_rank_state(state: RankState, event: RankEvent) -> RankState:
    """Move along the table; raises IllegalEvent where it has no such step."""
    after = RANK_TRANSITIONS.get((state, event))
    if after is None:
        raise IllegalEvent(f"a rank: {event.name} in {state.name}")
    return after


def next_group_state(state: GroupState, event: GroupEvent) -> GroupState:
    """Move along the table; raises IllegalEvent where it has no such step."""
    after = GROUP_TRANSITIONS.get((state, event))
    if after is None:
        raise IllegalEvent(f"the group: {event.name} in {state.name}")
    return after
