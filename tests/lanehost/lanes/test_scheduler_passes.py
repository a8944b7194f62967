"""Which prompts share a step, and how much of it they get."""

import pytest

from lanehost.job import Priority
from lanehost.lanes.lane import MAX_PASSED_OVER, LaneEvent
from lanehost.lanes.scheduler import plan_step
from lanehost.lanes.table import LaneTable
from tests.support.frames import make_frame
from tests.support.jobs import make_sequence


def plan(lanes, *, step_id=1, **frame):
    return plan_step(lanes, make_frame(step_id, **frame))


def lanes_in(step):
    return [chunk.lane_id for chunk in step.chunks]


def seat_decoding(lanes, *, prompt=(1,), **values):
    """A lane whose prompt is computed, and that has drawn its first token."""
    lane = lanes.seat(make_sequence(prompt, **values), (0, 1, 2))
    lane.num_planned_tokens = lane.num_computed_tokens = len(prompt)
    lane.num_planned_draws = 1
    lane.fire(LaneEvent.PREFILLED)
    return lane


def test_prompts_are_packed_without_padding():
    lanes = LaneTable(4, block_size=4)
    for length in (3, 1, 5, 2):
        lanes.seat(make_sequence((7,) * length), (0, 1))
    step = plan(lanes, budget=16)
    assert [len(chunk.token_ids) for chunk in step.chunks] == [3, 1, 5, 2]
    assert step.num_tokens == 11


@pytest.mark.parametrize(("max_prompts", "expected"), [(1, [0]), (2, [0, 1]), (16, [0, 1, 2])])
def test_a_pass_has_at_most_as_many_prompts_as_may_share_a_step(max_prompts, expected):
    lanes = LaneTable(4, block_size=4)
    for _ in range(3):
        lanes.seat(make_sequence(), (0,))
    assert lanes_in(plan(lanes, budget=32, max_prompts=max_prompts)) == expected


def test_while_a_stream_runs_prompts_get_a_fill_of_the_step_and_else_all_of_it():
    lanes = LaneTable(2, block_size=4)
    lanes.seat(make_sequence((7,) * 30), (3,) * 8)
    assert plan(lanes, budget=16, fill=4).num_tokens == 16
    seat_decoding(lanes, max_tokens=9)
    step = plan(lanes, budget=16, fill=4)
    assert (len(step.chunks[0].token_ids), len(step.decodes)) == (4, 1)


def test_a_stream_that_lets_a_step_pass_for_its_guess_still_bounds_the_fill():
    lanes = LaneTable(2, block_size=4, max_drafts=4)
    guessing = seat_decoding(lanes, prompt=(5, 6, 7, 5, 6), max_tokens=9)
    guessing.num_planned_tokens += 1
    lanes.seat(make_sequence((9,) * 30), (3,) * 8)
    step = plan(lanes, budget=16, fill=4)
    assert step.decodes == ()
    assert step.num_tokens == 4


def test_prompts_in_the_foreground_fill_first_whenever_they_sat_down():
    lanes = LaneTable(3, block_size=4)
    later = make_sequence((1,) * 6, priority=Priority.BACKGROUND)
    promoted = make_sequence((2,) * 6, priority=Priority.BACKGROUND)
    promoted.is_promoted = True
    lanes.seat(later, (0, 1))
    lanes.seat(make_sequence((3,) * 6), (2, 3))
    lanes.seat(promoted, (4, 5))
    assert lanes_in(plan(lanes, budget=32)) == [1, 2, 0]


def test_a_warm_prompt_draws_nothing():
    lanes = LaneTable(1, block_size=4)
    lane = lanes.seat(make_sequence((1,) * 6, max_tokens=0), (0, 1))
    step = plan(lanes, budget=32)
    assert [chunk.draws for chunk in step.chunks] == [False]
    lanes.advance(step)
    assert lane.is_warm
    assert plan(lanes, step_id=2, budget=32) is None


def test_a_lane_that_must_run_alone_has_its_next_step_for_itself():
    lanes = LaneTable(3, block_size=4)
    first = lanes.seat(make_sequence((1,) * 12), (0, 1, 2))
    alone = lanes.seat(make_sequence((2,) * 12), (3, 4, 5))
    seat_decoding(lanes, max_tokens=9)
    alone.is_alone = True
    step = plan(lanes, budget=8, fill=2)
    assert (lanes_in(step), step.decodes, step.num_tokens) == ([alone.lane_id], (), 8)
    lanes.advance(step)
    behind = plan(lanes, step_id=2, budget=8)
    assert (lanes_in(behind), behind.decodes) == ([first.lane_id], (2,))
    lanes.retire(step, {})
    assert lanes_in(plan(lanes, step_id=3, budget=32)) == [first.lane_id, alone.lane_id]


def test_a_lane_decodes_alone_without_a_guess():
    lanes = LaneTable(2, block_size=4, max_drafts=4)
    alone = seat_decoding(lanes, prompt=(5, 6, 7, 5, 6), max_tokens=9)
    seat_decoding(lanes, max_tokens=9)
    assert plan(lanes).drafts
    alone.is_alone = True
    step = plan(lanes)
    assert (step.decodes, step.drafts) == ((alone.lane_id,), ())


def test_a_lane_that_must_run_alone_and_cannot_keeps_nobody_waiting():
    lanes = LaneTable(2, block_size=4)
    alone = seat_decoding(lanes, max_tokens=99)
    alone.block_ids = (0,)
    alone.num_planned_tokens = alone.num_computed_tokens = 4
    alone.is_alone = True
    other = seat_decoding(lanes, max_tokens=9)
    assert alone.lacks_room
    assert plan(lanes).decodes == (other.lane_id,)


def test_a_prompt_in_the_background_is_passed_over_for_so_many_steps_in_a_row_and_no_more():
    lanes = LaneTable(2, block_size=4)
    lanes.seat(make_sequence((1,) * 6, priority=Priority.BACKGROUND), (0, 1))
    lanes.seat(make_sequence((2,) * 999), tuple(range(2, 252)))
    turns = []
    for step_id in range(1, MAX_PASSED_OVER + 3):
        step = plan(lanes, step_id=step_id, budget=4)
        lanes.advance(step)
        turns.append(lanes_in(step))
    assert turns == [*[[1]] * MAX_PASSED_OVER, [0], [1]]


def test_steps_without_prompts_pass_nobody_over():
    lanes = LaneTable(2, block_size=4)
    waiting = lanes.seat(make_sequence((1,) * 6, priority=Priority.BACKGROUND), (0, 1))
    waiting.num_passed_over = 5
    decoding = seat_decoding(lanes, max_tokens=9)
    decoding.is_owed = True
    lanes.advance(plan(lanes))
    assert waiting.num_passed_over == 5


def test_who_lost_a_step_decodes_again_before_any_prompt_runs():
    lanes = LaneTable(3, block_size=4)
    decoding = seat_decoding(lanes, max_tokens=9)
    lanes.seat(make_sequence((7,) * 6), (3, 4))
    failed = plan(lanes)
    assert (failed.decodes, lanes_in(failed)) == ((decoding.lane_id,), [1])
    lanes.advance(failed)
    lanes.undo(failed)
    again = plan(lanes, step_id=2)
    assert (again.decodes, lanes_in(again)) == ((decoding.lane_id,), [])
    lanes.advance(again)
    assert lanes_in(plan(lanes, step_id=3)) == [1]


def test_of_lanes_that_must_run_alone_only_one_is_out_while_others_have_work():
    lanes = LaneTable(3, block_size=4)
    for _ in range(2):
        lanes.seat(make_sequence((7,) * 6), (3, 4)).is_alone = True
    decoding = seat_decoding(lanes, max_tokens=9)
    steps = []
    for step_id in (1, 2):
        steps.append(plan(lanes, step_id=step_id, budget=32))
        lanes.advance(steps[-1])
    assert [(lanes_in(step), step.decodes) for step in steps] == [
        ([0], ()),
        ([], (decoding.lane_id,)),
    ]


def test_lanes_that_must_run_alone_follow_each_other_while_nobody_else_has_work():
    lanes = LaneTable(2, block_size=4)
    for _ in range(2):
        lanes.seat(make_sequence((7,) * 6), (3, 4)).is_alone = True
    lanes.advance(plan(lanes, budget=32))
    assert lanes_in(plan(lanes, step_id=2, budget=32)) == [1]
