"""Which slice may come next: one pass at a time, in the order of its layers, with the same rows."""

from dataclasses import replace

import pytest

from ranks.errors import StepMismatch
from ranks.plan import Chunk, ChunkImage, StagedSlice
from ranks.staged_pass import PassLimits, next_pass

LIMITS = PassLimits(num_layers=6, max_tokens=9)


def chunk(lane_id=0, *images):
    return Chunk(lane_id=lane_id, start=2, token_ids=(7, 7, 7, 7, 7), draws=True, images=images)


def image(start, num_tokens, image_id=1):
    return ChunkImage(image_id=image_id, start=start, num_tokens=num_tokens)


def opening(*chunks, stop=2, pass_id=3):
    chunks = chunks or (chunk(),)
    return StagedSlice(pass_id=pass_id, chunks=chunks, first_layer=0, stop_layer=stop)


OPENED = next_pass(None, opening(chunk(0), stop=2), 0, LIMITS)
GOES_ON = StagedSlice(pass_id=3, chunks=(chunk(0),), first_layer=2, stop_layer=5)


def test_a_pass_goes_on_where_its_last_slice_stopped_and_ends_with_the_last_layer():
    assert (OPENED.pass_id, OPENED.chunks, OPENED.next_layer) == (3, (chunk(0),), 2)
    assert OPENED.lane_ids == {0}
    behind = next_pass(OPENED, GOES_ON, 3, LIMITS)
    assert behind.next_layer == 5
    last = replace(GOES_ON, first_layer=5, stop_layer=6)
    assert next_pass(behind, last, 3, LIMITS) is None


def test_a_pass_may_be_run_whole_in_one_slice():
    assert next_pass(None, opening(stop=6), 2, LIMITS) is None


@pytest.mark.parametrize(
    "images", [(), (image(2, 5),), (image(2, 2), image(4, 3)), (image(3, 1), image(6, 1))]
)
def test_images_may_lie_anywhere_in_their_rows_whole_and_in_order(images):
    assert next_pass(None, opening(chunk(0, *images)), 0, LIMITS) is not None


@pytest.mark.parametrize(
    ("staged", "says"),
    [
        (opening(stop=7), "slice of layers 0 to 7, the model has 6"),
        (opening(stop=0), "slice of layers 0 to 0"),
        (replace(opening(), first_layer=-1), "slice of layers -1 to 2"),
        (opening(pass_id=2), "pass 2 is opened, the last was 2"),
        (replace(opening(), chunks=()), "pass 3 has no chunks"),
        (opening(chunk(0), chunk(1)), "pass 3 has 10 tokens, limit 9"),
        (opening(chunk(0, image(1, 2))), "positions 1 to 3, free are 2 to 7"),
        (opening(chunk(0, image(5, 3))), "positions 5 to 8, free are 2 to 7"),
        (opening(chunk(0, image(2, 3), image(4, 1))), "positions 4 to 5, free are 5 to 7"),
        (opening(chunk(0, image(4, 1), image(2, 1))), "positions 2 to 3, free are 5 to 7"),
        (opening(chunk(0, image(2, 0))), "image 1 of lane 0 has 0 rows"),
        (GOES_ON, "pass 3 goes on at layer 2, no pass is open"),
    ],
)
def test_what_opens_no_pass_is_refused_in_words(staged, says):
    with pytest.raises(StepMismatch, match=says):
        next_pass(None, staged, 2, LIMITS)


@pytest.mark.parametrize(
    ("staged", "says"),
    [
        (opening(pass_id=4), "pass 4 is opened, pass 3 is open at layer 2"),
        (replace(GOES_ON, pass_id=4), "pass 4 goes on, pass 3 is open"),
        (replace(GOES_ON, first_layer=3), "goes on at layer 3, it is at 2"),
        (replace(GOES_ON, first_layer=1), "goes on at layer 1, it is at 2"),
        (replace(GOES_ON, stop_layer=2), "slice of layers 2 to 2"),
        (replace(GOES_ON, chunks=(chunk(1),)), r"other chunks.*lanes \[1\], it has lanes \[0\]"),
        (replace(GOES_ON, chunks=(chunk(0, image(2, 1)),)), "other chunks"),
    ],
)
def test_what_does_not_go_on_with_the_open_pass_is_refused_in_words(staged, says):
    with pytest.raises(StepMismatch, match=says):
        next_pass(OPENED, staged, 3, LIMITS)
