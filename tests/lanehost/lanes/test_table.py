import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lanehost.lanes.lane import IllegalLaneEvent, LaneEvent, LaneState
from lanehost.lanes.scheduler import plan_step
from lanehost.lanes.table import LaneTable
from tests.support.frames import make_frame
from tests.support.jobs import make_sequence

BUDGET = 8


def plan(lanes, step_id=1):
    return plan_step(lanes, make_frame(step_id, budget=BUDGET))


def test_the_free_lane_with_the_lowest_number_is_seated():
    lanes = LaneTable(3, block_size=4)
    assert [lanes.seat(make_sequence(), (n,)).lane_id for n in range(3)] == [0, 1, 2]
    assert lanes.num_free == 0


def test_a_job_cannot_sit_twice():
    lanes = LaneTable(2, block_size=4)
    sequence = make_sequence()
    lanes.seat(sequence, (0,))
    with pytest.raises(AssertionError, match="sits already"):
        lanes.seat(sequence, (1,))


def test_only_a_draining_lane_is_released():
    lanes = LaneTable(1, block_size=4)
    lane = lanes.seat(make_sequence(), (0,))
    with pytest.raises(IllegalLaneEvent):
        lanes.release(lane)
    assert lane.state is LaneState.PREFILL


def test_a_lane_that_the_ranks_know_is_announced_as_left():
    lanes = LaneTable(1, block_size=4)
    lane = lanes.seat(make_sequence(), (5,))
    lanes.advance(plan(lanes))
    lane.fire(LaneEvent.FINISHED)
    assert lanes.release(lane) == (5,)
    assert lanes.pending_leaves == (0,)
    lanes.advance(plan(lanes, 2))
    assert lanes.pending_leaves == ()


def test_a_lane_that_the_ranks_never_saw_is_not_announced_as_left():
    lanes = LaneTable(1, block_size=4)
    lane = lanes.seat(make_sequence(), (5,))
    lane.fire(LaneEvent.FINISHED)
    lanes.release(lane)
    assert lanes.pending_leaves == ()
    assert plan(lanes) is None


def test_a_lane_left_and_taken_again_is_left_before_it_is_joined():
    lanes = LaneTable(1, block_size=4)
    lane = lanes.seat(make_sequence(), (5,))
    lanes.advance(plan(lanes))
    lane.fire(LaneEvent.FINISHED)
    lanes.release(lane)
    lanes.seat(make_sequence(), (6,))
    step = plan(lanes, 2)
    assert step.leaves == (0,)
    assert [join.lane_id for join in step.joins] == [0]


def test_find_knows_who_sits_where():
    lanes = LaneTable(2, block_size=4)
    sequence = make_sequence()
    assert lanes.find(sequence.job.job_id) is None
    lane = lanes.seat(sequence, ())
    assert lanes.find(sequence.job.job_id) is lane
    assert lanes[lane.lane_id] is lane


def test_a_sequence_that_sits_down_again_computes_all_its_tokens_and_draws_only_what_is_left():
    lanes = LaneTable(1, block_size=4)
    sequence = make_sequence((1, 2, 3), max_tokens=5)
    sequence.generated_ids += [8, 9]
    lane = lanes.seat(sequence, (0, 1))
    sequence.generated_ids.append(7)
    assert (lane.prefill_ids, lane.max_draws) == ((1, 2, 3, 8, 9), 3)


def test_blocks_that_a_lane_grows_by_are_announced_once():
    lanes = LaneTable(1, block_size=4)
    lane = lanes.seat(make_sequence((1, 2, 3), max_tokens=9), (5,))
    lanes.advance(plan(lanes))
    lanes.grow(lane, (6,))
    lanes.grow(lane, (7,))
    step = plan(lanes, 2)
    assert [(grow.lane_id, grow.block_ids) for grow in step.grows] == [(0, (6, 7))]
    lanes.advance(step)
    assert plan(lanes, 3).grows == ()


def test_repr_counts_the_states():
    assert repr(LaneTable(2, block_size=4)) == "<LaneTable FREE=2 PREFILL=0 DECODE=0 DRAINING=0>"


def all_that_plans_change(lanes):
    """What a plan notes of lanes; the step that wrote last stays noted, run or not."""
    return lanes.pending_leaves, [
        (
            lane.lane_id,
            lane.num_planned_tokens,
            lane.num_planned_draws,
            lane.num_announced_blocks,
            lane.is_announced,
            lane.is_guessing,
        )
        for lane in lanes
    ]


def test_plans_that_were_not_run_are_taken_back_newest_first():
    lanes = LaneTable(2, block_size=4)
    gone = lanes.seat(make_sequence(), (5,))
    lanes.advance(plan(lanes))
    gone.fire(LaneEvent.FINISHED)
    lanes.release(gone)
    lanes.seat(make_sequence((1,) * 12), (6, 7, 8))
    before = all_that_plans_change(lanes)
    steps = [plan(lanes, 2)]
    lanes.advance(steps[0])
    steps.append(plan(lanes, 3))
    lanes.advance(steps[1])
    assert steps[0].leaves
    for step in reversed(steps):
        lanes.undo(step)
    assert all_that_plans_change(lanes) == before
    assert plan(lanes, 4).joins == steps[0].joins


def test_a_draft_that_was_not_run_is_taken_back():
    lanes = LaneTable(1, block_size=4, max_drafts=2)
    lane = lanes.seat(make_sequence((5, 6, 7, 5, 6), max_tokens=9), (0, 1, 2, 3))
    lane.num_planned_tokens = lane.num_computed_tokens = 5
    lane.num_planned_draws = 1
    before = all_that_plans_change(lanes)
    step = plan(lanes)
    lanes.advance(step)
    assert lane.is_guessing
    lanes.undo(step)
    assert all_that_plans_change(lanes) == before
    assert plan(lanes) == step


class LaneTableMachine(RuleBasedStateMachine):
    """Random lives of lanes; the plans must obey their laws at every step."""

    def __init__(self):
        super().__init__()
        self.lanes = LaneTable(4, block_size=4)
        self.known_to_ranks: set[int] = set()
        self.in_flight: list = []
        self.step_id = 0

    @precondition(lambda self: self.lanes.num_free)
    @rule(num_prompt=st.integers(1, 20), max_tokens=st.integers(1, 5))
    def seat(self, num_prompt, max_tokens):
        blocks = (0,) * 7
        self.lanes.seat(make_sequence(tuple(range(num_prompt)), max_tokens=max_tokens), blocks)

    @rule()
    def plan(self):
        step = plan(self.lanes, self.step_id + 1)
        if step is None:
            return
        self.step_id += 1
        assert step.num_tokens <= BUDGET
        rows = [chunk.lane_id for chunk in step.chunks] + list(step.decodes)
        assert len(rows) == len(set(rows))
        assert self.known_to_ranks.issuperset(step.leaves)
        self.known_to_ranks.difference_update(step.leaves)
        joined = {join.lane_id for join in step.joins}
        assert not joined & self.known_to_ranks
        self.known_to_ranks |= joined
        assert self.known_to_ranks.issuperset(rows)
        before = all_that_plans_change(self.lanes)
        self.lanes.advance(step)
        after = all_that_plans_change(self.lanes)
        self.lanes.undo(step)
        assert all_that_plans_change(self.lanes) == before
        self.lanes.advance(step)
        assert all_that_plans_change(self.lanes) == after

    @precondition(lambda self: list(self.lanes))
    @rule(data=st.data())
    def end(self, data):
        lane = data.draw(st.sampled_from(list(self.lanes)))
        if lane.state is LaneState.DRAINING:
            self.lanes.release(lane)
        else:
            lane.fire(LaneEvent.FINISHED)

    @invariant()
    def a_job_sits_once_and_seats_add_up(self):
        seated = [lane.job.job_id for lane in self.lanes]
        assert len(seated) == len(set(seated))
        assert self.lanes.num_free + len(seated) == self.lanes.num_lanes

    @invariant()
    def draws_stay_within_what_was_asked(self):
        for lane in self.lanes:
            assert lane.num_planned_draws <= lane.job.max_tokens
            assert lane.num_planned_tokens <= lane.job.num_tokens - 1


TestLaneTable = LaneTableMachine.TestCase


@pytest.mark.parametrize(("accepted", "num_tokens"), [((), 6), ((7,), 7), ((7, 5), 8)])
def test_what_was_wrong_of_a_draft_is_taken_back(accepted, num_tokens):
    lanes = LaneTable(1, block_size=4, max_drafts=2)
    lane = lanes.seat(make_sequence((5, 6, 7, 5, 6), max_tokens=9), (0, 1, 2, 3))
    lane.num_planned_tokens = lane.num_computed_tokens = 5
    lane.num_planned_draws = 1
    step = plan(lanes)
    assert step.drafts[0].token_ids == (7, 5)
    lanes.advance(step)
    assert (lane.num_planned_tokens, lane.num_planned_draws) == (8, 4)
    lanes.retire(step, {0: accepted})
    assert lane.is_settled
    assert (lane.num_computed_tokens, lane.num_planned_draws) == (num_tokens, num_tokens - 4)
