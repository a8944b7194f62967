from hypothesis import given
from hypothesis import strategies as st

from lanehost.lanes.lane import LaneEvent
from lanehost.lanes.scheduler import plan_step
from lanehost.lanes.table import LaneTable
from ranks.plan import ResolvedRows, rows_digest
from tests.support.frames import make_frame
from tests.support.jobs import make_sequence


def plan(lanes, *, step_id=1, **frame):
    return plan_step(lanes, make_frame(step_id, **frame))


def advance(lanes, **kwargs):
    step = plan(lanes, **kwargs)
    lanes.advance(step)
    return step


def test_nothing_to_do_is_no_plan():
    assert plan(LaneTable(2, block_size=4)) is None


def test_a_prompt_longer_than_the_budget_is_cut_into_chunks():
    lanes = LaneTable(1, block_size=4)
    lanes.seat(make_sequence(tuple(range(20))), (0,))
    steps = [advance(lanes, step_id=n) for n in (1, 2, 3)]
    assert [(s.chunks[0].start, len(s.chunks[0].token_ids)) for s in steps] == [
        (0, 8),
        (8, 8),
        (16, 4),
    ]
    assert [s.chunks[0].draws for s in steps] == [False, False, True]


def test_decode_lanes_come_first_so_a_long_prompt_cannot_stall_a_stream():
    lanes = LaneTable(2, block_size=4)
    lanes.seat(make_sequence((1, 2)), (0,))
    advance(lanes)
    lanes.seat(make_sequence(tuple(range(100))), (1,))
    step = advance(lanes, step_id=2)
    assert step.decodes == (0,)
    assert len(step.chunks[0].token_ids) == 7


def test_prompts_fill_up_in_the_order_of_seating():
    lanes = LaneTable(3, block_size=4)
    first = lanes.seat(make_sequence(tuple(range(6))), (0,))
    second = lanes.seat(make_sequence(tuple(range(6))), (1,))
    step = plan(lanes)
    assert [(c.lane_id, len(c.token_ids)) for c in step.chunks] == [
        (first.lane_id, 6),
        (second.lane_id, 2),
    ]


def test_who_sat_down_first_is_first_whatever_the_number_of_the_seat():
    lanes = LaneTable(2, block_size=4)
    gone, first = (
        lanes.seat(make_sequence((1,)), (0,)),
        lanes.seat(make_sequence(tuple(range(6))), (1,)),
    )
    gone.fire(LaneEvent.FINISHED)
    lanes.release(gone)
    later = lanes.seat(make_sequence(tuple(range(6))), (2,))
    assert later.lane_id < first.lane_id
    assert [chunk.lane_id for chunk in plan(lanes).chunks] == [first.lane_id, later.lane_id]


def test_a_lane_decodes_in_the_very_next_plan_without_waiting_for_its_first_token():
    lanes = LaneTable(1, block_size=4)
    lanes.seat(make_sequence((1, 2)), (0,))
    assert advance(lanes).chunks[0].draws
    assert advance(lanes, step_id=2).decodes == (0,)


def test_a_lane_that_has_no_block_for_its_next_position_is_left_out():
    lanes = LaneTable(2, block_size=4)
    lanes.seat(make_sequence((1, 2, 3, 4), max_tokens=3), (0,))
    lanes.seat(make_sequence((1,), max_tokens=3), (1,))
    advance(lanes)
    assert plan(lanes, step_id=2).decodes == (1,)


def test_a_job_is_planned_for_exactly_its_most_tokens():
    lanes = LaneTable(1, block_size=4)
    lanes.seat(make_sequence((1, 2), max_tokens=3), (0, 1))
    steps = []
    while (step := plan(lanes, step_id=len(steps) + 1)) is not None:
        lanes.advance(step)
        steps.append(step)
    draws = sum(chunk.draws for step in steps for chunk in step.chunks)
    assert draws + sum(len(step.decodes) for step in steps) == 3


def test_the_digest_covers_the_rows_as_the_master_resolves_them():
    lanes = LaneTable(2, block_size=4)
    lanes.seat(make_sequence((1, 2)), (4, 9))
    row = ResolvedRows(lane_id=0, start=0, num_blocks=2, gained_blocks=(4, 9), token_ids=(1, 2))
    assert plan(lanes).digest == rows_digest(1, 1, [row])


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 6)), min_size=1, max_size=6),
    st.integers(6, 40),
)
def test_every_plan_keeps_its_budget_and_every_prompt_is_planned_once(jobs, budget):
    lanes = LaneTable(6, block_size=4)
    for number, (num_prompt, max_tokens) in enumerate(jobs):
        lanes.seat(make_sequence(tuple(range(num_prompt)), max_tokens=max_tokens), (number,) * 9)
    prompts = {lane_id: [] for lane_id in range(len(jobs))}
    step_id = 0
    while (step := plan(lanes, budget=budget, step_id=step_id + 1)) is not None:
        step_id += 1
        assert 0 < step.num_tokens <= budget
        for chunk in step.chunks:
            assert chunk.start == len(prompts[chunk.lane_id])
            prompts[chunk.lane_id] += chunk.token_ids
        lanes.advance(step)
    assert {k: len(v) for k, v in prompts.items()} == dict(enumerate(n for n, _ in jobs))


def test_a_lane_with_something_to_guess_waits_for_what_is_in_flight():
    lanes = LaneTable(1, block_size=4, max_drafts=4)
    lane = lanes.seat(make_sequence((5, 6, 7, 5, 6), max_tokens=9), (0, 1, 2, 3))
    advance(lanes)
    assert plan(lanes, step_id=2) is None
    lane.num_computed_tokens = 5
    lane.fire(LaneEvent.PREFILLED)
    lane.drafter.append(7)
    step = plan(lanes, step_id=2)
    assert [(draft.lane_id, draft.token_ids) for draft in step.drafts] == [(0, (5, 6, 7))]


def test_drafts_come_last_in_what_is_left_of_the_budget():
    lanes = LaneTable(2, block_size=4, max_drafts=4)
    guessing = lanes.seat(make_sequence((5, 6, 7, 5, 6), max_tokens=9), (0, 1, 2, 3))
    guessing.num_planned_tokens = guessing.num_computed_tokens = 5
    guessing.num_planned_draws = 1
    lanes.seat(make_sequence(tuple(range(6)), max_tokens=9), (4, 5, 6))
    step = plan(lanes, budget=8)
    assert (len(step.chunks[0].token_ids), step.decodes) == (6, (0,))
    assert [draft.token_ids for draft in step.drafts] == [(7,)]
    assert step.num_tokens == 8


def test_a_guess_stays_within_the_room_and_the_most_tokens():
    lanes = LaneTable(1, block_size=4, max_drafts=8)
    lane = lanes.seat(make_sequence((5, 6, 7) * 2, max_tokens=3), (0, 1))
    lane.num_planned_tokens = lane.num_computed_tokens = 6
    lane.num_planned_draws = 1
    assert len(lane.guess(8)) == 1
    lane.max_draws = 99
    assert len(lane.guess(8)) == 1
    lane.block_ids += (2,)
    assert len(lane.guess(8)) == 3


def test_a_lane_whose_guess_is_in_flight_is_never_planned_also_without_room_for_another():
    lanes = LaneTable(1, block_size=4, max_drafts=8)
    lane = lanes.seat(make_sequence((5, 6, 7) * 2, max_tokens=99), (0, 1))
    lane.num_planned_tokens = lane.num_computed_tokens = 6
    lane.num_planned_draws = 1
    assert advance(lanes).drafts
    lanes.grow(lane, (2,))
    assert lane.guess(1)
    lane.drafter = None
    assert plan(lanes, step_id=2) is None
