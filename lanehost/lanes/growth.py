"""Give decoding lanes the blocks that they need next, and name who must park for it.

Laws: the lane that sat down first gets its block first, and is never parked while
another runs; so the oldest always goes on, and no set of lanes can wait for each other.
Nobody is parked while blocks are soon to come back, of a lane that has ended or of a work that
fills them; works that only read blocks give them up first; and where a work is late, lanes park as
if its blocks were not there: only a lane that needs these, too, waits for it.
"""

from lanehost.cache.blocks import BlockPool
from lanehost.cache.lender import NO_LENDER, Lender
from lanehost.cache.prompt_cache import PromptCache
from lanehost.lanes.lane import Lane, LaneState
from lanehost.lanes.table import LaneTable


def grow_lanes(
    lanes: LaneTable, blocks: BlockPool, cache: PromptCache, lender: Lender = NO_LENDER
) -> Lane | None:
    """Grow every lane whose next position has no block; returns the one that must park.

    After a lane was parked, call again: until None comes, or what was parked has rows in
    flight and its blocks come back later.
    """
    by_age = sorted(lanes, key=lambda lane: lane.seat_number)
    for lane in by_age:
        if not (lane.wants_decode and lane.lacks_room):
            continue
        if cache.make_room(1) or (lender.recall() and cache.make_room(1)):
            taken = blocks.take(1)
            assert taken is not None
            lanes.grow(lane, taken)
        elif lender.is_lending or any(other.state is LaneState.DRAINING for other in lanes):
            return None
        else:
            newest = [other for other in by_age if other.is_running][-1]
            if newest is by_age[0] and lender.is_late:
                return None
            assert newest is not by_age[0], "a job that the whole pool cannot hold was accepted"
            return newest
    return None
