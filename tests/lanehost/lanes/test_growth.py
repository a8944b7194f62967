import pytest

from lanehost.cache.blocks import BlockPool
from lanehost.cache.lender import NO_LENDER, NoLender
from lanehost.cache.prompt_cache import PromptCache
from lanehost.lanes.growth import grow_lanes
from lanehost.lanes.lane import LaneEvent
from lanehost.lanes.table import LaneTable
from tests.support.jobs import make_sequence


class Rooms:
    def __init__(self, *, num_blocks):
        self.blocks = BlockPool(num_blocks=num_blocks, block_size=4)
        self.cache = PromptCache(self.blocks)
        self.lanes = LaneTable(4, block_size=4)

    def seat_full(self):
        """A lane whose one block is full, and which wants to decode."""
        lane = self.lanes.seat(make_sequence((1, 2, 3, 4), max_tokens=9), self.blocks.take(1))
        lane.num_planned_tokens = 4
        return lane

    def grow(self, lender=NO_LENDER):
        return grow_lanes(self.lanes, self.blocks, self.cache, lender)


def test_a_lane_without_a_block_for_its_next_position_gets_one():
    rooms = Rooms(num_blocks=2)
    lane = rooms.seat_full()
    assert rooms.grow() is None
    assert (len(lane.block_ids), rooms.blocks.num_free) == (2, 0)


def test_a_lane_with_room_gets_nothing():
    rooms = Rooms(num_blocks=2)
    lane = rooms.seat_full()
    lane.num_planned_tokens = 3
    lane.prefill_ids = (1, 2, 3)
    assert rooms.grow() is None
    assert rooms.blocks.num_free == 1


def test_kept_prefixes_go_before_anybody_parks():
    rooms = Rooms(num_blocks=2)
    kept = rooms.blocks.take(1)
    rooms.cache.keep("", (9, 9, 9, 9), kept)
    rooms.blocks.give_back(kept)
    rooms.seat_full()
    assert rooms.grow() is None
    assert rooms.cache.num_entries == 0


def test_the_newest_parks_and_the_oldest_gets_the_block():
    rooms = Rooms(num_blocks=3)
    oldest, _, newest = (rooms.seat_full() for _ in range(3))
    assert rooms.grow() is newest
    newest.fire(LaneEvent.FINISHED)
    rooms.blocks.give_back(rooms.lanes.release(newest))
    rooms.grow()
    assert oldest.can_decode


def test_a_lane_that_needs_a_block_may_be_the_one_that_parks():
    rooms = Rooms(num_blocks=3)
    first, second = rooms.seat_full(), rooms.seat_full()
    assert rooms.grow() is second
    assert first.can_decode


def test_nobody_parks_while_blocks_of_an_ended_lane_are_still_to_come_back():
    rooms = Rooms(num_blocks=3)
    _, _, ending = (rooms.seat_full() for _ in range(3))
    ending.fire(LaneEvent.FINISHED)
    assert rooms.grow() is None


class LateLender(NoLender):
    is_late = True


def test_where_a_work_is_late_lanes_park_as_if_its_blocks_were_not_there():
    rooms = Rooms(num_blocks=3)
    rooms.blocks.take(1)
    oldest, newest = rooms.seat_full(), rooms.seat_full()
    assert rooms.grow(LateLender()) is newest
    newest.fire(LaneEvent.FINISHED)
    rooms.blocks.give_back(rooms.lanes.release(newest))
    assert rooms.grow(LateLender()) is None
    assert oldest.can_decode


def test_the_oldest_waits_for_a_late_work_when_nobody_else_has_a_block():
    rooms = Rooms(num_blocks=2)
    lent = rooms.blocks.take(1)
    oldest = rooms.seat_full()
    assert rooms.grow(LateLender()) is None
    assert not oldest.can_decode
    rooms.blocks.give_back(lent)
    rooms.grow(LateLender())
    assert oldest.can_decode


def test_the_oldest_alone_never_parks():
    rooms = Rooms(num_blocks=1)
    rooms.seat_full()
    with pytest.raises(AssertionError, match="the whole pool cannot hold"):
        rooms.grow()
