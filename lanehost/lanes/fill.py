"""Divide what a step has for prompts among the lanes that fill.

Scopes share it by weight, and what one leaves is the others': so a short prompt does not
wait behind the long ones of somebody else. Within a scope prompts fill up in the order in
which their jobs were seated, so none waits for a later one. Who fills last, in the
background, gets what is left.

Laws: no more than the budget is given, and none of it is left while a prompt lacks tokens
and may share the step; with one scope it is a plain queue.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby

from lanehost.lanes.lane import Lane


def divide_fill(
    lanes: Iterable[Lane], *, budget: int, max_prompts: int, weights: Mapping[str, int]
) -> dict[int, int]:
    """Return lane id → how many tokens of its prompt the step runs.

    Args:
        lanes: Those that may share the step; the ones that want no prompt are left out.
        budget: Tokens.
        max_prompts: How many lanes may get any.
        weights: Of scopes; one that is not named has 1.
    """
    filling = [lane for lane in lanes if lane.wants_prefill]
    given: dict[int, int] = {}
    for fills_last in (False, True):
        group = _in_turn([lane for lane in filling if lane.fills_last is fills_last])
        shares = _shares(group, budget - sum(given.values()), weights)
        for limits in (shares, dict.fromkeys(shares, budget)):
            _give(given, group, limits=limits, budget=budget, max_prompts=max_prompts)
    return given


def _in_turn(lanes: list[Lane]) -> list[Lane]:
    """Sort: the first of each scope, then the second of each; as seated where that ties."""
    lanes.sort(key=lambda lane: (lane.job.scope, lane.seat_number))
    turns = [
        (turn, lane.seat_number, lane)
        for _, of_scope in groupby(lanes, key=lambda lane: lane.job.scope)
        for turn, lane in enumerate(of_scope)
    ]
    return [lane for _, _, lane in sorted(turns, key=lambda turn: turn[:2])]


def _shares(lanes: list[Lane], budget: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Return what is due to each scope: one token at least."""
    of_scope = {lane.job.scope: weights.get(lane.job.scope, 1) for lane in lanes}
    total = sum(of_scope.values())
    return {scope: max(1, budget * weight // total) for scope, weight in of_scope.items()}


def _give(
    given: dict[int, int],
    lanes: list[Lane],
    *,
    limits: dict[str, int],
    budget: int,
    max_prompts: int,
) -> None:
    """Give each lane what it lacks, within its scope's limit and the budget."""
    left = budget - sum(given.values())
    of_scope = dict(limits)
    for lane in lanes:
        has = given.get(lane.lane_id, 0)
        lacks = lane.fill_end - lane.num_planned_tokens - has
        tokens = min(lacks, of_scope[lane.job.scope], left)
        if tokens > 0 and (has or len(given) < max_prompts):
            given[lane.lane_id] = has + tokens
            of_scope[lane.job.scope] -= tokens
            left -= tokens
