from hypothesis import given
from hypothesis import strategies as st

from lanehost.lanes.apart import Apart, take_apart
from lanehost.lanes.lane import LaneEvent
from lanehost.lanes.table import LaneTable
from ranks.plan import Chunk, LaneDraft, StepPlan
from tests.support.jobs import make_sequence


def make_lanes(num_lanes=4):
    lanes = LaneTable(num_lanes, block_size=4, max_drafts=2)
    for _ in range(num_lanes):
        lanes.seat(make_sequence(), (0,))
    return lanes


def failed_step(*, prompts=(), decodes=(), drafts=()):
    return StepPlan(
        step_id=1,
        epoch=1,
        chunks=tuple(Chunk(lane_id=n, start=0, token_ids=(1,), draws=True) for n in prompts),
        decodes=tuple(decodes),
        drafts=tuple(LaneDraft(lane_id=n, token_ids=(1,)) for n in drafts),
    )


def alone(lanes):
    return [lane.lane_id for lane in lanes if lane.is_alone]


def running_alone(apart):
    assert all(lane.is_alone for lane in apart.alone)
    return [lane.lane_id for lane in apart.alone]


def test_each_prompt_of_a_pass_that_failed_runs_alone_and_decodes_go_on():
    lanes = make_lanes()
    apart = take_apart(lanes, failed_step(prompts=(0, 2), decodes=(1, 3), drafts=(3,)))
    assert apart.failed is None
    assert running_alone(apart) == alone(lanes) == [0, 2]
    assert lanes[3].drafter is not None


def test_one_prompt_among_decodes_is_tried_alone_before_it_is_given_up():
    lanes = make_lanes()
    assert running_alone(take_apart(lanes, failed_step(prompts=(0,), decodes=(1,)))) == [0]
    assert alone(lanes) == [0]


def test_a_draft_fails_nobody():
    lanes = make_lanes()
    assert take_apart(lanes, failed_step(decodes=(0, 1), drafts=(1,))) == Apart()
    assert alone(lanes) == []
    assert lanes[1].drafter is None
    assert lanes[0].drafter is not None


def test_decodes_that_failed_together_run_alone():
    lanes = make_lanes()
    assert running_alone(take_apart(lanes, failed_step(decodes=(0, 3)))) == [0, 3]
    assert alone(lanes) == [0, 3]


def test_who_has_ended_meanwhile_runs_no_more():
    lanes = make_lanes()
    lanes[0].fire(LaneEvent.FINISHED)
    assert running_alone(take_apart(lanes, failed_step(prompts=(0, 1)))) == [1]


def test_who_waits_to_run_alone_since_an_earlier_step_is_not_told_again():
    lanes = make_lanes()
    take_apart(lanes, failed_step(prompts=(0, 1, 2)))
    assert take_apart(lanes, failed_step(prompts=(0,))) == Apart(failed=lanes[0])


def test_who_failed_alone_has_failed():
    lanes = make_lanes()
    assert take_apart(lanes, failed_step(prompts=(2,))).failed is lanes[2]
    assert take_apart(lanes, failed_step(decodes=(3,))).failed is lanes[3]
    assert alone(lanes) == []


def test_a_lane_that_failed_alone_with_its_draft_is_tried_without_it():
    lanes = make_lanes()
    assert take_apart(lanes, failed_step(decodes=(3,), drafts=(3,))) == Apart()
    assert lanes[3].drafter is None
    assert take_apart(lanes, failed_step(decodes=(3,))).failed is lanes[3]


@given(st.data())
def test_taking_apart_ends_whatever_fails(data):
    """Steps are cut as they would be planned; each failure leaves less to be tried."""
    lanes = make_lanes(6)
    filling = set(data.draw(st.sets(st.integers(0, 5))))
    poisoned = data.draw(st.sets(st.integers(0, 5)))
    open_lanes, ended = set(range(6)), set()
    for _ in range(40):
        if not open_lanes:
            break
        lone = next((n for n in sorted(open_lanes) if lanes[n].is_alone), None)
        running = {lone} if lone is not None else set(open_lanes)
        decodes = sorted(running - filling)
        drafting = [n for n in decodes if lanes[n].drafter is not None and lone is None]
        step = failed_step(prompts=sorted(running & filling), decodes=decodes, drafts=drafting)
        if running & poisoned or drafting:
            failed = take_apart(lanes, step).failed
            if failed is not None:
                ended.add(failed.lane_id)
                open_lanes.discard(failed.lane_id)
                failed.is_alone = False
        else:
            for lane_id in running:
                lanes[lane_id].is_alone = False
                open_lanes.discard(lane_id)
    assert not open_lanes
    assert ended == poisoned
