from hypothesis import given
from hypothesis import strategies as st

from lanehost.admission.give_way import MAX_YIELDS, lane_to_give_way
from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import PromptCache
from lanehost.job import Priority
from lanehost.lanes.lane import LaneEvent
from lanehost.lanes.sequence import Sequence
from lanehost.lanes.table import LaneTable
from tests.support.images import image_job
from tests.support.jobs import make_sequence

BACKGROUND, FOREGROUND = Priority.BACKGROUND, Priority.FOREGROUND


def seat(lanes, *, scope="", priority=FOREGROUND, num_computed=4):
    sequence = make_sequence((1,) * 9, scope=scope, priority=priority)
    lane = lanes.seat(sequence, (0, 1, 2))
    lane.num_computed_tokens = lane.num_planned_tokens = num_computed
    return lane


def head(*, scope="", priority=FOREGROUND):
    return make_sequence(scope=scope, priority=priority)


def giving(head, lanes, weights, *, is_on=True):
    cache = PromptCache(BlockPool(num_blocks=3, block_size=4), is_on=is_on)
    return lane_to_give_way(head, lanes, cache=cache, weights=weights)


def test_the_newest_in_the_background_gives_way_to_the_foreground():
    lanes = LaneTable(3, block_size=4)
    seat(lanes, priority=BACKGROUND)
    newest = seat(lanes, priority=BACKGROUND)
    seat(lanes)
    assert giving(head(), lanes, {}) is newest


def test_nobody_gives_way_before_having_progressed():
    """What is left of a block is computed again, so it is no progress."""
    lanes = LaneTable(1, block_size=4)
    lane = seat(lanes, priority=BACKGROUND)
    for num_computed, expected in ((0, None), (3, None), (4, lane)):
        lane.num_computed_tokens = num_computed
        assert giving(head(), lanes, {}) is expected


def test_what_was_kept_before_it_sat_down_is_no_progress():
    lanes = LaneTable(1, block_size=4)
    sequence = make_sequence((1,) * 15, priority=BACKGROUND)
    lane = lanes.seat(sequence, (0, 1, 2, 3), num_cached_tokens=8)
    lane.num_computed_tokens = 11
    assert giving(head(), lanes, {}) is None
    lane.num_computed_tokens = 12
    assert giving(head(), lanes, {}) is lane


def test_nobody_gives_way_out_of_a_staged_pass():
    lanes = LaneTable(1, block_size=4)
    lane = seat(lanes, priority=BACKGROUND)
    lane.is_in_pass = True
    assert giving(head(), lanes, {}) is None


def test_what_ends_inside_an_image_is_no_progress():
    """No hit ends there, so it would be computed again."""
    lanes = LaneTable(1, block_size=4)
    job = image_job((7, 8), 1, (9,) * 8, num_tokens=7, priority=BACKGROUND)
    lane = lanes.seat(Sequence(job), tuple(range(5)))
    for num_computed, expected in ((9, None), (11, None), (12, lane)):
        lane.num_computed_tokens = num_computed
        assert giving(head(), lanes, {}) is expected


def test_a_token_that_was_drawn_is_progress():
    lanes = LaneTable(1, block_size=4)
    lane = seat(lanes, priority=BACKGROUND, num_computed=3)
    lane.fire(LaneEvent.PREFILLED)
    assert giving(head(), lanes, {}) is lane


def test_where_nothing_is_kept_only_a_token_that_was_drawn_is_progress():
    lanes = LaneTable(1, block_size=4)
    lane = seat(lanes, priority=BACKGROUND, num_computed=8)
    assert giving(head(), lanes, {}, is_on=False) is None
    lane.fire(LaneEvent.PREFILLED)
    assert giving(head(), lanes, {}, is_on=False) is lane


def test_nobody_gives_way_to_the_background():
    lanes = LaneTable(2, block_size=4)
    seat(lanes)
    seat(lanes, priority=BACKGROUND)
    assert giving(head(priority=BACKGROUND), lanes, {}) is None


def test_who_waited_its_most_never_gives_way():
    lanes = LaneTable(1, block_size=4)
    lane = seat(lanes, priority=BACKGROUND)
    lane.sequence.is_promoted = True
    assert giving(head(), lanes, {}) is None


def test_who_waited_its_most_gives_way_to_no_other_scope_either():
    lanes = LaneTable(4, block_size=4)
    for _ in range(4):
        seat(lanes, scope="flood", priority=BACKGROUND).sequence.is_promoted = True
    assert giving(head(scope="other"), lanes, {}) is None


def test_who_gave_way_its_most_times_gives_way_no_more():
    lanes = LaneTable(1, block_size=4)
    lane = seat(lanes, priority=BACKGROUND)
    lane.sequence.num_yields = MAX_YIELDS - 1
    assert giving(head(), lanes, {}) is lane
    lane.sequence.num_yields = MAX_YIELDS
    assert giving(head(), lanes, {}) is None


def test_while_a_lane_is_about_to_be_free_nobody_gives_way():
    lanes = LaneTable(2, block_size=4)
    seat(lanes, priority=BACKGROUND)
    seat(lanes).fire(LaneEvent.FINISHED)
    assert giving(head(), lanes, {}) is None


def test_within_one_scope_and_priority_nobody_gives_way():
    lanes = LaneTable(2, block_size=4)
    seat(lanes)
    seat(lanes)
    assert giving(head(), lanes, {}) is None


def test_a_scope_with_more_than_its_share_gives_way_to_one_with_less():
    lanes = LaneTable(4, block_size=4)
    seats = [seat(lanes, scope="flood") for _ in range(4)]
    assert giving(head(scope="other"), lanes, {}) is seats[-1]


def test_a_scope_at_its_share_keeps_its_lanes():
    lanes = LaneTable(4, block_size=4)
    for scope in ("flood", "flood", "other", "other"):
        seat(lanes, scope=scope)
    assert giving(head(scope="other"), lanes, {}) is None


def test_shares_follow_the_weights():
    lanes = LaneTable(4, block_size=4)
    for scope in ("big", "big", "big", "small"):
        seat(lanes, scope=scope)
    assert giving(head(scope="small"), lanes, {"big": 3, "small": 1}) is None
    assert giving(head(scope="small"), lanes, {"big": 1, "small": 1}) is not None


def test_a_scope_of_little_weight_has_a_lane_of_its_own_while_another_has_several():
    lanes = LaneTable(2, block_size=4)
    weights = {"big": 99, "small": 1}
    seats = [seat(lanes, scope="big") for _ in range(2)]
    assert giving(head(scope="small"), lanes, weights) is seats[-1]


def test_with_more_scopes_than_lanes_nobody_gives_its_only_one():
    lanes = LaneTable(2, block_size=4)
    for scope in ("one", "two"):
        seat(lanes, scope=scope)
    assert giving(head(scope="three"), lanes, {}) is None


def test_the_background_goes_before_the_foreground_of_a_scope_with_too_much():
    lanes = LaneTable(4, block_size=4)
    quiet = seat(lanes, scope="flood", priority=BACKGROUND)
    for _ in range(3):
        seat(lanes, scope="flood")
    assert giving(head(scope="other"), lanes, {}) is quiet


def test_a_background_head_takes_no_foreground_lane_whatever_its_share():
    lanes = LaneTable(4, block_size=4)
    for _ in range(4):
        seat(lanes, scope="flood")
    waiting = head(scope="other", priority=BACKGROUND)
    assert giving(waiting, lanes, {}) is None


SCOPES = ("a", "b", "c")


@given(
    st.lists(st.sampled_from(SCOPES), min_size=1, max_size=9),
    st.sampled_from(SCOPES),
    st.fixed_dictionaries({scope: st.integers(1, 5) for scope in SCOPES}),
)
def test_two_scopes_never_push_each_other_out_in_turn(seated, waiting, weights):
    """Once all that can give way has, one of those who did does not get its seat back so."""
    lanes = LaneTable(len(seated), block_size=4)
    for scope in seated:
        seat(lanes, scope=scope)
    given_up = 0
    while (lane := giving(head(scope=waiting), lanes, weights)) is not None:
        pushed_out = lane.job.scope
        lane.fire(LaneEvent.FINISHED)
        lanes.release(lane)
        seat(lanes, scope=waiting)
        given_up += 1
        assert given_up <= len(seated)
        back = giving(head(scope=pushed_out), lanes, weights)
        assert back is None or back.job.scope != waiting
