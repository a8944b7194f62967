from lanehost.admission.fetcher import NO_FETCHER
from lanehost.admission.setup import Wait
from lanehost.admission.take_job import take_job
from lanehost.lanes.lane import Lane
from tests.support.jobs import make_sequence
from tests.support.rooms import join, make_rooms


class SlowDisk:
    """Implements `Fetcher`: holds up who is named, and notes what memory had of each."""

    def __init__(self, *held_up):
        self.held_up = held_up
        self.seen = []

    def holds_up(self, head, num_cached_tokens):
        self.seen.append((head.job.scope, num_cached_tokens))
        return head.job.scope in self.held_up


def test_without_a_disk_nobody_is_held_up():
    assert not NO_FETCHER.holds_up(make_sequence(), 0)


def test_who_waits_for_the_disk_holds_nothing_and_other_scopes_go_on():
    rooms = make_rooms(num_blocks=8)
    waits = join(rooms[0], make_sequence(tuple(range(4)), scope="a"))
    goes = join(rooms[0], make_sequence(tuple(range(4)), scope="b"))
    disk = SlowDisk("a")
    lane = take_job(*rooms, disk)
    assert isinstance(lane, Lane)
    assert lane.sequence is goes
    assert take_job(*rooms, disk) is Wait.PREFIX
    assert rooms[2].num_free == 8 - len(lane.block_ids)
    assert take_job(*rooms, SlowDisk()).sequence is waits


def test_what_memory_has_is_told():
    rooms = make_rooms(num_blocks=8)
    _, _, blocks, cache = rooms
    taken = blocks.take(1)
    cache.keep("a", (0, 1, 2, 3), taken)
    blocks.give_back(taken)
    join(rooms[0], make_sequence(tuple(range(6)), scope="a"))
    disk = SlowDisk()
    take_job(*rooms, disk)
    assert disk.seen == [("a", 4)]
