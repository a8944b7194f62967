from lanehost.engine.holdings import Holdings
from lanehost.lanes.lane import LaneState
from lanehost.settings import EngineSettings
from tests.support.fake_ranks import fake_facts
from tests.support.jobs import make_sequence

PROMPT = tuple(range(10))


def seated(holdings, *, computed=0, last_step_id=0, **values):
    """A lane that has computed so far, and whose last rows are in a step."""
    block_ids = holdings.blocks.take(3)
    lane = holdings.lanes.seat(make_sequence(PROMPT, **values), block_ids)
    lane.num_computed_tokens = lane.num_planned_tokens = computed
    lane.last_step_id = last_step_id
    return lane


def make_holdings(**engine):
    return Holdings(fake_facts(num_blocks=8, block_size=4), EngineSettings(**engine))


def test_what_a_step_in_flight_writes_is_freed_when_it_has_landed():
    holdings = make_holdings()
    lane = seated(holdings, last_step_id=3)
    holdings.vacate(lane, last_landed_id=2)
    assert (lane.state, holdings.blocks.num_free) == (LaneState.DRAINING, 5)
    holdings.release_retired(2)
    assert holdings.blocks.num_free == 5
    holdings.release_retired(3)
    assert (holdings.lanes.num_free, holdings.blocks.num_free) == (4, 8)


def test_a_lane_of_the_open_pass_is_not_free_before_that_has_ended():
    holdings = make_holdings()
    lane = seated(holdings, last_step_id=3)
    lane.is_in_pass = True
    holdings.vacate(lane, last_landed_id=3)
    holdings.release_retired(4)
    assert (lane.state, holdings.blocks.num_free) == (LaneState.DRAINING, 5)
    lane.is_in_pass = False
    holdings.release_retired(4)
    assert (holdings.lanes.num_free, holdings.blocks.num_free) == (4, 8)


def test_a_lane_with_nothing_in_flight_is_free_at_once():
    holdings = make_holdings()
    holdings.vacate(seated(holdings, last_step_id=3), last_landed_id=3)
    assert (holdings.lanes.num_free, holdings.blocks.num_free) == (4, 8)


def test_what_was_computed_is_kept_and_no_more():
    holdings = make_holdings()
    lane = seated(holdings, computed=6)
    holdings.keep(lane)
    holdings.vacate(lane, last_landed_id=0)
    assert (holdings.cache.num_kept_blocks, holdings.blocks.num_free) == (1, 7)


def test_a_mark_is_kept_once_it_was_passed():
    holdings = make_holdings()
    lane = seated(holdings, computed=6, marks=(4, 8))
    holdings.keep_marks(lane, since=0)
    assert holdings.cache.num_kept_blocks == 1
    lane.num_computed_tokens = 10
    holdings.keep_marks(lane, since=6)
    assert (holdings.cache.num_entries, holdings.cache.num_kept_blocks) == (2, 2)


def test_without_the_prompt_cache_nothing_is_kept():
    holdings = make_holdings(prompt_cache=False)
    lane = seated(holdings, computed=10, marks=(4,))
    holdings.keep(lane)
    holdings.keep_marks(lane, since=0)
    assert holdings.cache.num_entries == 0
