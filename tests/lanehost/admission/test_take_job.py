from lanehost.admission.setup import AlreadyKept, Wait
from lanehost.admission.take_job import take_job
from lanehost.job import Priority
from lanehost.lanes.lane import Lane, LaneEvent
from tests.support.jobs import make_sequence
from tests.support.rooms import join, keep, make_rooms

PROMPT = tuple(range(10))


def test_nobody_waits_nobody_is_seated():
    assert take_job(*make_rooms()) is Wait.NOBODY


def test_first_come_first_served():
    line, *_ = rooms = make_rooms()
    first, second = join(line, make_sequence()), join(line, make_sequence())
    assert take_job(*rooms).sequence is first
    assert take_job(*rooms).sequence is second


def test_no_free_lane_no_seat():
    line, *_ = rooms = make_rooms(num_lanes=1)
    join(line, make_sequence())
    join(line, make_sequence())
    take_job(*rooms)
    assert take_job(*rooms) is Wait.LANE
    assert len(line) == 1


def test_a_head_that_does_not_fit_now_blocks_those_behind_it():
    line, lanes, blocks, _ = rooms = make_rooms(num_lanes=3, num_blocks=4)
    join(line, make_sequence((1,) * 4, max_tokens=4))
    join(line, make_sequence((2,) * 8, max_tokens=4))
    join(line, make_sequence((1,), max_tokens=1))
    take_job(*rooms)
    assert take_job(*rooms) is Wait.BLOCKS
    assert (len(line), lanes.num_free, blocks.num_free) == (2, 2, 2)


def test_a_job_that_has_just_parked_waits_until_its_old_lane_is_free():
    line, lanes, _, _ = rooms = make_rooms()
    sequence = join(line, make_sequence())
    lane = take_job(*rooms)
    lane.fire(LaneEvent.FINISHED)
    line.rejoin(sequence)
    assert take_job(*rooms) is Wait.OWN_LANE
    lanes.release(lane)
    assert take_job(*rooms).sequence is sequence


def test_a_warm_job_whose_prompt_is_kept_takes_no_lane():
    line, lanes, blocks, cache = rooms = make_rooms(num_blocks=8)
    keep(rooms, PROMPT)
    warm = join(line, make_sequence(PROMPT, max_tokens=0))
    assert take_job(*rooms) == AlreadyKept(warm, 8)
    assert (len(line), lanes.num_free, blocks.num_free) == (0, 2, 6)
    assert cache.make_room(8)


def test_a_warm_job_whose_prompt_is_kept_waits_for_no_lane():
    line, lanes, *_ = rooms = make_rooms(num_lanes=1, num_blocks=8)
    keep(rooms, PROMPT)
    join(line, make_sequence())
    assert isinstance(take_job(*rooms), Lane)
    warm = join(line, make_sequence(PROMPT, max_tokens=0))
    assert lanes.num_free == 0
    assert take_job(*rooms) == AlreadyKept(warm, 8)


def test_who_waits_for_a_prefix_holds_up_its_own_scope_alone():
    line, *_ = rooms = make_rooms(num_lanes=4, num_blocks=32)
    join(line, make_sequence(PROMPT, scope="a"))
    waiting = join(line, make_sequence((*PROMPT, 1), scope="a"))
    behind = join(line, make_sequence((5, 6), scope="a"))
    other = join(line, make_sequence((7, 8), scope="b"))
    filling = take_job(*rooms)
    assert take_job(*rooms).sequence is other
    assert take_job(*rooms) is Wait.PREFIX
    assert line.head() is waiting
    filling.num_computed_tokens = filling.num_planned_tokens = 8
    assert [take_job(*rooms).sequence for _ in range(2)] == [waiting, behind]


def test_the_background_does_not_overtake_a_foreground_that_waits_for_a_prefix():
    line, *_ = rooms = make_rooms(num_lanes=4, num_blocks=32)
    join(line, make_sequence(PROMPT, scope="a"))
    join(line, make_sequence((*PROMPT, 1), scope="a"))
    join(line, make_sequence((7, 8), scope="b", priority=Priority.BACKGROUND))
    take_job(*rooms)
    assert take_job(*rooms) is Wait.PREFIX
    assert len(line) == 2
