from lanehost.admission.line import Line
from lanehost.admission.take_job import take_job
from lanehost.cache.blocks import BlockPool
from lanehost.lanes.table import LaneTable
from lanehost.settings import LineSettings
from tests.support.jobs import make_job


def make_rooms(*, num_lanes=2, num_blocks=4):
    line = Line(LineSettings())
    return line, LaneTable(num_lanes), BlockPool(num_blocks=num_blocks, block_size=4)


def join(line, job):
    line.promise()
    line.join(job)
    return job


def test_nobody_waits_nobody_is_seated():
    assert take_job(*make_rooms()) is None


def test_first_come_first_served():
    line, lanes, blocks = make_rooms()
    first, second = join(line, make_job()), join(line, make_job())
    assert take_job(line, lanes, blocks).job is first
    assert take_job(line, lanes, blocks).job is second


def test_no_free_lane_no_seat():
    line, lanes, blocks = make_rooms(num_lanes=1)
    join(line, make_job())
    join(line, make_job())
    take_job(line, lanes, blocks)
    assert take_job(line, lanes, blocks) is None
    assert len(line) == 1


def test_a_head_that_does_not_fit_now_blocks_those_behind_it():
    line, lanes, blocks = make_rooms(num_lanes=3, num_blocks=4)
    join(line, make_job((1,) * 4, max_tokens=4))
    join(line, make_job((1,) * 8, max_tokens=4))
    join(line, make_job((1,), max_tokens=1))
    take_job(line, lanes, blocks)
    assert take_job(line, lanes, blocks) is None
    assert (len(line), lanes.num_free, blocks.num_free) == (2, 2, 2)


def test_a_job_gets_all_the_blocks_it_can_ever_need():
    line, lanes, blocks = make_rooms()
    join(line, make_job((1,) * 5, max_tokens=4))
    assert len(take_job(line, lanes, blocks).block_ids) == 3
