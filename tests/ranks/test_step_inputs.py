import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks.step_inputs import EMPTY_BLOCK, LaneImage, LaneRows, build_inputs
from ranks.tiles import POSITION_TILE, row_multiple

CPU = torch.device("cpu")


def lane(lane_id=0, start=0, count=1, table=None, *, num_draws=1, images=()):
    table = list(range(100)) if table is None else table
    return LaneRows(
        lane_id=lane_id,
        start=start,
        token_ids=list(range(count)),
        block_table=table,
        num_draws=num_draws,
        images=tuple(LaneImage(start=at, rows=torch.zeros(size, 8)) for at, size in images),
    )


def test_rows_lie_lane_after_lane_and_padding_last():
    inputs = build_inputs([lane(start=30), lane(1, start=5, count=3)], device=CPU, block_size=16)
    assert inputs.num_rows == 4
    assert inputs.positions[:4].tolist() == [30, 5, 6, 7]
    assert inputs.token_ids[:4].tolist() == [0, 0, 1, 2]
    assert inputs.token_ids.shape[0] % row_multiple(CPU) == 0
    assert inputs.token_ids[4:].sum() == 0


def test_a_position_goes_to_its_slot_of_its_block_counted_from_one():
    inputs = build_inputs([lane(start=15, count=3, table=[7, 2])], device=CPU, block_size=16)
    assert inputs.slots.tolist() == [8 * 16 + 15, 3 * 16, 3 * 16 + 1]


@pytest.mark.parametrize(
    ("start", "count", "opened"),
    [(0, 1, [8]), (1, 15, []), (1, 16, [3]), (16, 1, [3]), (17, 1, [])],
)
def test_a_block_is_opened_when_its_first_position_is_written(start, count, opened):
    inputs = build_inputs([lane(start=start, count=count, table=[7, 2])], device=CPU, block_size=16)
    assert inputs.opened_blocks.tolist() == opened


def test_the_last_row_of_each_lane_that_draws_is_named():
    rows = [lane(0, count=3), lane(1, count=2, num_draws=0), lane(2, count=4)]
    assert build_inputs(rows, device=CPU, block_size=16).draw_rows.tolist() == [2, 8]


def test_tokens_of_all_lanes_lie_in_order():
    rows = [
        LaneRows(lane_id=0, start=9, token_ids=[44], block_table=[3], num_draws=1),
        lane(1, count=2),
    ]
    inputs = build_inputs(rows, device=CPU, block_size=16)
    assert inputs.token_ids[:3].tolist() == [44, 0, 1]
    assert inputs.token_ids.dtype == torch.int64


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 700), st.integers(1, 300)), min_size=1, max_size=12),
    st.sampled_from((1, 16, 64, 128)),
)
def test_each_row_attends_once_over_all_that_is_written_and_no_more(lanes, block_size):
    table = list(range(1024))
    rows = [lane(number, start, count, table) for number, (start, count) in enumerate(lanes)]
    inputs = build_inputs(rows, device=CPU, block_size=block_size)

    seen = torch.cat([group.rows for group in inputs.groups]).tolist()

    assert sorted(seen) == list(range(inputs.num_rows))
    for group in inputs.groups:
        assert group.num_positions % POSITION_TILE == 0
        assert group.positions.shape[0] == group.num_lanes
        assert torch.equal(inputs.positions[group.rows], group.positions.flatten())
        tables = group.block_ids.view(group.num_lanes, -1)
        assert tables.shape[1] * block_size == group.num_positions
        for positions, blocks in zip(group.positions, tables, strict=True):
            num_written = int(positions.max()) // block_size + 1
            assert blocks[:num_written].tolist() == [one + 1 for one in table[:num_written]]
            assert (blocks[num_written:] == EMPTY_BLOCK).all()


@pytest.mark.parametrize(("count", "table"), [(0, [1]), (17, [1]), (1, [])])
def test_rows_that_do_not_fit_their_blocks_are_refused_with_the_numbers(count, table):
    with pytest.raises(ValueError, match=f"lane 5 has {count} rows.*{len(table)} blocks"):
        build_inputs([lane(5, count=count, table=table)], device=CPU, block_size=16)


def test_a_block_size_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="block_size is 24"):
        build_inputs([lane()], device=CPU, block_size=24)


def test_each_row_of_an_image_reaches_to_its_end_and_others_to_themselves():
    rows = [lane(start=30, count=9, images=((31, 3), (34, 2))), lane(1, start=5, count=3)]
    inputs = build_inputs(rows, device=CPU, block_size=16)
    reach = {}
    for group in inputs.groups:
        reach |= dict(zip(group.rows.tolist(), group.reach.flatten().tolist(), strict=True))
    assert [reach[row] for row in range(12)] == [30, 33, 33, 33, 35, 35, 36, 37, 38, 5, 6, 7]


def test_images_are_placed_at_the_rows_of_their_lane():
    rows = [lane(start=5, count=3), lane(1, start=30, count=9, images=((31, 3), (34, 2)))]
    inputs = build_inputs(rows, device=CPU, block_size=16)
    assert [(first, len(rows)) for first, rows in inputs.images] == [(4, 3), (7, 2)]
    # What stands for an image may be no id of the vocabulary.
    assert inputs.token_ids[:12].tolist() == [0, 1, 2, 0, 0, 0, 0, 0, 0, 6, 7, 8]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 200), st.integers(0, 300), st.integers(1, 300), st.integers(0, 200))
def test_the_blocks_of_a_tile_reach_to_the_end_of_an_image(start, before, size, behind):
    image = (start + before, size)
    count = before + size + behind
    inputs = build_inputs(
        [lane(start=start, count=count, images=(image,))], device=CPU, block_size=16
    )
    for group in inputs.groups:
        last = group.reach.max(dim=1).values // 16
        for blocks, num_known in zip(group.block_ids.view(group.num_lanes, -1), last, strict=True):
            assert blocks[: num_known + 1].tolist() == list(range(1, num_known + 2))
            assert (blocks[num_known + 1 :] == EMPTY_BLOCK).all()


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (((29, 2),), "at positions 29 to 31, free are 30 to 39"),
        (((38, 2),), "at positions 38 to 40, free are 30 to 39"),
        (((31, 3), (33, 2)), "at positions 33 to 35, free are 34 to 39"),
        (((31, 0),), "at positions 31 to 31"),
    ],
)
def test_an_image_that_does_not_lie_whole_in_its_rows_is_refused(images, words):
    with pytest.raises(ValueError, match=f"lane 5 has an image {words}"):
        build_inputs([lane(5, start=30, count=9, images=images)], device=CPU, block_size=16)
