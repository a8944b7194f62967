"""Staged passes in the plans of steps: beside whom they go, and who waits for them."""

from dataclasses import replace

from lanehost.lanes.scheduler import plan_step
from lanehost.lanes.sequence import MAX_SHARED_LOSSES, Sequence
from lanehost.lanes.staged_pass import StagedFrame
from lanehost.lanes.stall_budget import StallBudget
from lanehost.lanes.table import LaneTable
from tests.support.frames import make_frame
from tests.support.images import image_job, prepared
from tests.support.jobs import make_job

NUM_LAYERS = 4


class Rig:
    """Lanes, and plans that are run as soon as they are made."""

    def __init__(self):
        self.lanes = LaneTable(4, block_size=4, num_layers=NUM_LAYERS)
        self.step_id = 0
        self.staged = StagedFrame(
            ready={prepared(number).digest: number for number in range(9)},
            max_rows=24,
            shared_rows=8,
            stall=StallBudget(num_layers=NUM_LAYERS, max_stall_ms=1),
        )

    def seat(self, job, *, is_suspect=False):
        sequence = Sequence(job, num_losses=MAX_SHARED_LOSSES if is_suspect else 0)
        return self.lanes.seat(sequence, tuple(range(8 * job.num_tokens))[-9:])

    def plan(self):
        self.step_id += 1
        frame = replace(make_frame(self.step_id), staged=self.staged)
        plan = plan_step(self.lanes, frame)
        if plan is not None:
            self.lanes.advance(plan)
            self.lanes.retire(plan, {})
        return plan

    def what(self):
        """What runs in the next steps: lanes of chunks, layers of slices."""
        plan = self.plan()
        if plan is None:
            return None
        staged = plan.staged
        layers = None if staged is None else (staged.first_layer, staged.stop_layer)
        return [chunk.lane_id for chunk in plan.chunks], layers


def test_text_fills_beside_the_slices_of_a_pass():
    rig = Rig()
    rig.seat(image_job(1, max_tokens=1))
    rig.seat(make_job((1,) * 40, max_tokens=0))
    assert [rig.what() for _ in range(3)] == [([1], (0, 1)), ([1], (1, 2)), ([1], (2, 3))]


def test_a_suspect_of_text_waits_for_the_open_pass_and_holds_nobody_up():
    rig = Rig()
    rig.seat(image_job(1, max_tokens=0))
    rig.seat(make_job((1,) * 40, max_tokens=0))
    assert rig.what() == ([1], (0, 1))
    suspect = rig.seat(make_job((1, 2), max_tokens=0), is_suspect=True)
    while rig.lanes.staging.open is not None:
        assert rig.what() is not None
    assert rig.what() == ([suspect.lane_id], None)


def test_a_suspect_waits_for_the_open_pass_and_then_has_its_own_whole():
    rig = Rig()
    rig.seat(image_job(1, max_tokens=0))
    rig.seat(make_job((1,) * 40, max_tokens=0))
    assert rig.what() == ([1], (0, 1))
    suspect = rig.seat(image_job(2, max_tokens=0), is_suspect=True)
    while rig.lanes.staging.open is not None:
        assert rig.what() is not None
    chunks, layers = rig.what()
    assert (chunks, layers) == ([], (0, NUM_LAYERS))
    assert suspect.is_filled


def test_a_lane_that_is_alone_has_a_pass_whole_and_for_itself():
    rig = Rig()
    first, second = rig.seat(image_job(1, max_tokens=0)), rig.seat(image_job(2, max_tokens=0))
    first.is_alone = second.is_alone = True
    for lane in (first, second):
        plan = rig.plan()
        assert [chunk.lane_id for chunk in plan.staged.chunks] == [lane.lane_id]
        assert (plan.staged.first_layer, plan.staged.stop_layer) == (0, NUM_LAYERS)


def test_what_is_owed_to_streams_comes_before_the_next_slice():
    rig = Rig()
    rig.seat(image_job(1, max_tokens=0))
    stream = rig.seat(make_job((1,), max_tokens=9))
    rig.plan()
    stream.is_owed = True
    plan = rig.plan()
    assert (plan.decodes, plan.staged) == ((stream.lane_id,), None)
    assert rig.plan().staged.first_layer == 1
