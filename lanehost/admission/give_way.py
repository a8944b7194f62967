"""Name the lane that gives its seat to the head of the line; pure.

A lane gives way when the head is more urgent, or when its scope has more lanes than its
share and the head's has fewer. It parks with what it has computed, joins the line again,
and goes on later exactly where it was; so giving way changes no reply.

Laws: nobody gives way before having come further in this seat than it would begin again,
nor once promoted, nor more than `MAX_YIELDS` times, since what was kept may be evicted
before it goes on; nor while a lane is about to be free, nor out of a staged pass, which would
go on without it. After giving way the head's scope has no more than its share, so two scopes
never push each other out in turn.
"""

from collections import Counter
from collections.abc import Mapping

from lanehost.cache.prompt_cache import PromptCache
from lanehost.image_ids import cut_to_images
from lanehost.lanes.lane import Lane, LaneState
from lanehost.lanes.sequence import Sequence
from lanehost.lanes.table import LaneTable

MAX_YIELDS = 64


def lane_to_give_way(
    head: Sequence, lanes: LaneTable, *, cache: PromptCache, weights: Mapping[str, int]
) -> Lane | None:
    """Return the newest lane that gives way to the head, which found no lane or no blocks."""
    if any(lane.state is LaneState.DRAINING for lane in lanes):
        return None
    shares = _LaneShares(head, lanes, weights)
    giving = [
        lane
        for lane in lanes
        if not lane.is_in_pass
        and _has_progressed(lane, cache)
        and not _has_waited_its_most(lane)
        and (_is_less_urgent(lane, head) or shares.are_unequal(lane, head))
    ]
    return max(giving, key=lambda lane: (lane.is_background, lane.seat_number), default=None)


class _LaneShares:
    """The lanes that each scope has, and its share of all by its weight, of one at least."""

    def __init__(self, head: Sequence, lanes: LaneTable, weights: Mapping[str, int]) -> None:
        self._num_lanes = lanes.num_lanes
        self._weights = weights
        self._num_held = Counter(lane.job.scope for lane in lanes)
        here = {*self._num_held, head.job.scope}
        self._all_weights = sum(self._weight(scope) for scope in here)

    def are_unequal(self, lane: Lane, head: Sequence) -> bool:
        """Whether the lane's scope has too many and the head's, with one more, not."""
        if head.is_background and not lane.is_background:
            return False
        ours, theirs = head.job.scope, lane.job.scope
        return (
            ours != theirs
            and self._num_held[theirs] > self._share_of(theirs)
            and self._num_held[ours] + 1 <= self._share_of(ours)
        )

    def _share_of(self, scope: str) -> float:
        return max(1.0, self._num_lanes * self._weight(scope) / self._all_weights)

    def _weight(self, scope: str) -> int:
        return self._weights.get(scope, 1)


def _has_progressed(lane: Lane, cache: PromptCache) -> bool:
    """Say whether it would begin again further than here: a token on, or a block that is kept."""
    if lane.state is LaneState.DECODE:
        return True
    assert lane.sequence is not None
    kept = cut_to_images(lane.sequence.identity_ids, lane.num_computed_tokens, step=lane.block_size)
    return cache.is_on and kept > lane.num_cached_tokens


def _is_less_urgent(lane: Lane, head: Sequence) -> bool:
    return lane.is_background and not head.is_background


def _has_waited_its_most(lane: Lane) -> bool:
    assert lane.sequence is not None
    return lane.sequence.is_promoted or lane.sequence.num_yields >= MAX_YIELDS
