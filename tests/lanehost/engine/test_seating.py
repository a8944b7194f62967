from lanehost.admission.line import Line
from lanehost.engine.desk import Desk
from lanehost.engine.holdings import Holdings
from lanehost.engine.inbox import Inbox
from lanehost.engine.notices import Notices
from lanehost.engine.seating import Seating
from lanehost.engine.staged import StagedSide
from lanehost.job import Priority
from lanehost.lanes.lane import LaneState
from lanehost.settings import EngineSettings, LineSettings
from tests.support.fake_ranks import fake_facts
from tests.support.jobs import arrive, make_job, make_ticket
from tests.support.schedules import Befell


class Rig:
    def __init__(self, **facts):
        self.facts, settings = fake_facts(**facts), EngineSettings(max_drafts=0)
        inbox = Inbox()
        self.desk = Desk(line=Line(LineSettings()), inbox=inbox)
        self.befell = Befell()
        self.tickets = {}
        staged = StagedSide(self.facts, settings, inbox, clock=lambda: 0.0)
        self.seating = Seating(
            self.desk, self.tickets, Notices(self.befell), staged, clock=lambda: 1.0
        )
        self.holdings = Holdings(self.facts, settings)

    def send(self, prompt, **values):
        ticket = make_ticket(make_job(prompt, **values), self.desk.inbox)
        self.tickets[ticket.job.job_id] = ticket
        arrive(ticket, self.desk.line, self.desk.inbox)
        return ticket

    def admit(self):
        return list(self.seating.admit(self.holdings, last_landed_id=0))

    def lane_of(self, ticket):
        return self.holdings.lanes.find(ticket.job.job_id)


def test_as_many_sit_as_there_are_lanes():
    rig = Rig(num_lanes=2)
    first, second, third = (rig.send((n, n)) for n in (1, 2, 3))
    assert rig.admit() == []
    assert rig.lane_of(first).seat_number < rig.lane_of(second).seat_number
    assert rig.lane_of(third) is None
    assert first.seated_s == 1.0


def test_who_has_all_that_it_asked_for_needs_no_lane():
    rig = Rig()
    rig.holdings.cache.keep("", (1, 2, 3, 4), rig.holdings.blocks.take(1))
    warm = rig.send((1, 2, 3, 4, 5), max_tokens=0)
    assert rig.admit() == [warm]
    assert rig.lane_of(warm) is None
    assert warm.num_cached_tokens == 4


def test_one_in_the_background_gives_way_and_goes_back_to_the_line():
    rig = Rig(num_lanes=1)
    slow = rig.send((1, 2, 3), priority=Priority.BACKGROUND)
    rig.admit()
    lane = rig.lane_of(slow)
    lane.num_planned_tokens = lane.num_computed_tokens = 3
    lane.state = LaneState.DECODE
    urgent = rig.send((4, 5))
    rig.admit()
    assert rig.lane_of(urgent) is not None
    assert len(rig.desk.line) == 1
    assert slow.sequence.num_yields == 1
    assert "yielded" in rig.befell.names


def test_the_newest_parks_when_there_are_no_blocks():
    rig = Rig(num_blocks=3, block_size=4)
    old, new = rig.send((1, 2, 3), max_tokens=8), rig.send((4, 5, 6), max_tokens=8)
    rig.admit()
    for ticket in (old, new):
        lane = rig.lane_of(ticket)
        lane.num_planned_tokens = lane.num_computed_tokens = 4
        lane.state = LaneState.DECODE
        lane.prefill_ids = (1,) * 4
    rig.holdings.blocks.take(rig.holdings.blocks.num_free)
    rig.seating.grow(rig.holdings, last_landed_id=0)
    assert new.sequence.was_parked
    assert not old.sequence.was_parked
    assert "parked" in rig.befell.names
