import pytest

from lanehost.lanes.lane import LaneEvent
from lanehost.lanes.sequence import Sequence
from lanehost.lanes.staged_pass import StagedFrame, next_slice, whole_pass
from lanehost.lanes.stall_budget import StallBudget
from lanehost.lanes.table import LaneTable
from ranks.plan import ChunkImage
from tests.support.images import image_job, prepared
from tests.support.jobs import make_job

NUM_LAYERS = 6


def frame(*ready, max_rows=64, shared_rows=8, max_stall_ms=100):
    return StagedFrame(
        ready={prepared(number).digest: 100 + number for number in ready},
        max_rows=max_rows,
        shared_rows=shared_rows,
        stall=StallBudget(num_layers=NUM_LAYERS, max_stall_ms=max_stall_ms),
    )


def table(*jobs, num_cached_tokens=0):
    lanes = LaneTable(8, block_size=4, num_layers=NUM_LAYERS)
    for job in jobs:
        lane = lanes.seat(Sequence(job), tuple(range(20)), num_cached_tokens=num_cached_tokens)
        if lane.images_left:
            # What is before the first image has run in chunks.
            lane.num_planned_tokens = lane.num_computed_tokens = lane.fill_end
    return lanes


def a_slice(lanes, using, *, max_prompts=16):
    return next_slice(lanes.staging, lanes, using, max_prompts=max_prompts)


def rows_of(staged):
    return {chunk.lane_id: (chunk.start, len(chunk.token_ids)) for chunk in staged.chunks}


def test_who_waits_for_an_image_is_in_no_pass():
    lanes = table(image_job((7, 8), 1, (9,)))
    assert a_slice(lanes, frame()) is None


def test_a_prompt_of_text_is_in_no_pass():
    lanes = table(make_job((1, 2, 3)))
    assert a_slice(lanes, frame()) is None


def test_alone_a_pass_takes_all_that_is_ready_whole():
    lanes = table(image_job((7, 8), 1, (9,)), image_job(2, (3,), 1))
    staged = a_slice(lanes, frame(1, 2))
    assert rows_of(staged) == {0: (2, 5), 1: (0, 9)}
    assert [chunk.draws for chunk in staged.chunks] == [True, True]
    assert (staged.first_layer, staged.stop_layer) == (0, NUM_LAYERS)


def test_the_rows_of_images_are_named_by_their_numbers_and_places():
    lanes = table(image_job((7, 8), 1, (9,), 2))
    (chunk,) = a_slice(lanes, frame(1, 2)).chunks
    assert chunk.images == (
        ChunkImage(image_id=101, start=2, num_tokens=4),
        ChunkImage(image_id=102, start=7, num_tokens=4),
    )


def test_a_pass_ends_before_an_image_that_is_not_ready():
    lanes = table(image_job((7, 8), 1, (9,), 2))
    staged = a_slice(lanes, frame(1))
    assert rows_of(staged) == {0: (2, 5)}
    assert [image.image_id for image in staged.chunks[0].images] == [101]
    assert not staged.chunks[0].draws


def test_beside_others_a_pass_has_few_rows_and_goes_a_layer_at_first():
    lanes = table(image_job((7, 8), 1, 2, 3), make_job((1, 2, 3)))
    staged = a_slice(lanes, frame(1, 2, 3))
    assert rows_of(staged) == {0: (2, 8)}
    assert (staged.first_layer, staged.stop_layer) == (0, 1)


def test_an_image_longer_than_the_budget_is_taken_whole():
    lanes = table(image_job(1, (9,), num_tokens=12), make_job((1, 2)))
    assert rows_of(a_slice(lanes, frame(1, shared_rows=8))) == {0: (0, 12)}


def test_nobody_goes_before_who_does_not_fit():
    lanes = table(
        image_job(1, num_tokens=6), image_job(2, num_tokens=6), image_job(3, num_tokens=2),
        make_job((1, 2)),
    )  # fmt: skip
    assert rows_of(a_slice(lanes, frame(1, 2, 3, shared_rows=8))) == {0: (0, 6)}


def test_who_waits_for_an_image_holds_nobody_up():
    lanes = table(image_job(1), image_job(2))
    assert rows_of(a_slice(lanes, frame(2))) == {1: (0, 4)}


def test_no_more_prompts_share_a_pass_than_may():
    lanes = table(image_job(1), image_job(2), image_job(3))
    assert rows_of(a_slice(lanes, frame(1, 2, 3), max_prompts=2)) == {0: (0, 4), 1: (0, 4)}


def test_what_is_cached_is_not_in_the_pass():
    lanes = table(image_job((5, 6, 7, 8), 1, (9, 8, 7, 6), 2), num_cached_tokens=8)
    assert rows_of(a_slice(lanes, frame(1, 2))) == {0: (12, 4)}


def test_text_before_an_image_runs_in_chunks_and_waits_for_none():
    lanes = table(make_job((1,)))
    lane = lanes.seat(Sequence(image_job((7, 8), 1)), tuple(range(20)))
    assert (lane.wants_prefill, lane.wants_staging, lane.fill_end) == (True, False, 2)
    lane.num_planned_tokens = 2
    assert (lane.wants_prefill, lane.wants_staging) == (False, True)


def test_a_lane_whose_images_are_cached_wants_no_pass():
    lanes = table(image_job((5, 6, 7, 8), 1, (9,)), num_cached_tokens=8)
    assert a_slice(lanes, frame(1)) is None
    assert lanes[0].wants_prefill


def test_the_open_pass_goes_on_whoever_left():
    lanes = table(image_job(1), make_job((1, 2)))
    plan_slice(lanes, frame(1))
    lanes[0].fire(LaneEvent.FINISHED)
    staged = a_slice(lanes, frame(1))
    assert (staged.first_layer, rows_of(staged)) == (1, {0: (0, 4)})


def test_when_the_others_are_gone_the_rest_of_a_pass_goes_at_once():
    lanes = table(image_job(1), make_job((1, 2)))
    plan_slice(lanes, frame(1))
    lanes[1].fire(LaneEvent.FINISHED)
    staged = a_slice(lanes, frame(1))
    assert (staged.first_layer, staged.stop_layer) == (1, NUM_LAYERS)


def test_a_pass_of_one_lane_alone_is_whole_and_waits_for_the_open_one():
    lanes = table(image_job(1, 2), make_job((1, 2)))
    whole = whole_pass(lanes.staging, lanes[0], frame(1, 2, shared_rows=4))
    assert rows_of(whole) == {0: (0, 4)}
    assert (whole.first_layer, whole.stop_layer) == (0, NUM_LAYERS)
    plan_slice(lanes, frame(1))
    assert whole_pass(lanes.staging, lanes[0], frame(1, 2)) is None


def test_alone_too_nothing_runs_before_its_image_is_ready():
    lanes = table(image_job(1))
    assert whole_pass(lanes.staging, lanes[0], frame()) is None


@pytest.mark.parametrize("max_tokens", [0, 3])
def test_a_pass_draws_where_the_prompt_ends_unless_it_only_warms(max_tokens):
    lanes = table(image_job(1, max_tokens=max_tokens))
    assert a_slice(lanes, frame(1)).chunks[0].draws == (max_tokens > 0)


def plan_slice(lanes, using):
    staged = a_slice(lanes, using)
    lanes.staging.advance(staged)
    for chunk in staged.chunks:
        lanes[chunk.lane_id].is_in_pass = True
        lanes[chunk.lane_id].num_planned_tokens += len(chunk.token_ids)
