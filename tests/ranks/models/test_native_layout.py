"""Rows are laid out lane after lane, over the blocks that hold them, wherever they are rotated."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ranks.layers.rotary import Rotary
from ranks.models.native_layout import MAX_KEPT, Rotations, lay_out, step_rows
from ranks.step_inputs import LaneRows, build_inputs
from ranks.weights.hf_config import read_hf_config
from tests.support.tiny_checkpoints import FAMILIES, HEAD_DIM

CPU = torch.device("cpu")
HALF_DIM = HEAD_DIM // 2
POSITIONS = st.integers(0, 3_000) | st.integers(MAX_KEPT - 1, MAX_KEPT + 1)
POOL = np.zeros((1, 2, 1, 64, 16, 2 * HALF_DIM), dtype=np.float16)


@pytest.fixture(scope="module")
def rotary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("config")
    FAMILIES["llama"]().save_pretrained(folder)
    config = read_hf_config(folder / "config.json")
    assert config.head_dim == HEAD_DIM
    return Rotary(config.rope, head_dim=config.head_dim, device=CPU, dtype=torch.float32)


@pytest.fixture(scope="module")
def laid_out(rotary):
    """Lays out lanes."""
    rotations = Rotations(rotary, HALF_DIM)

    def laid_out(*lanes):
        words = lay_out(lanes, block_size=16)
        return words, step_rows(words, pool=POOL, rotations=rotations)

    return laid_out


def lane(lane_id=0, start=0, count=1, num_draws=1, table=None):
    """A lane whose blocks are its own: 10 · lane and on."""
    if table is None:
        table = range(10 * lane_id, 10 * lane_id + 6)
    return LaneRows(
        lane_id=lane_id,
        start=start,
        token_ids=tuple(range(100 * lane_id, 100 * lane_id + count)),
        block_table=tuple(table),
        num_draws=num_draws,
    )


def test_rows_stay_lane_after_lane_and_those_that_draw_are_the_last_of_their_lane(laid_out):
    words, step = laid_out(lane(1, start=30, count=3, num_draws=2), lane(0, start=5, count=2))
    assert step.positions.tolist() == words.positions == [30, 31, 32, 5, 6]
    assert words.token_ids == [100, 101, 102, 0, 1]
    assert step.lane_rows.tolist() == words.lane_rows == [0, 3, 5]
    assert words.draw_rows == [1, 2, 4]
    assert step.pool is POOL


def test_flat_words_say_how_many_there_are_of_each(laid_out):
    words, _ = laid_out(lane(1, start=30, count=3, num_draws=2), lane(0, start=5, count=2))
    counts, rest = words.flat()[:4], words.flat()[4:]
    assert counts == [5, 2, 3, 4]
    assert rest == (
        words.positions + words.token_ids + words.lane_rows
        + words.table_at + words.draw_rows + words.tables
    )  # fmt: skip


def test_a_table_ends_with_the_block_of_the_last_row(laid_out):
    words, step = laid_out(lane(1, start=30, count=3), lane(0, start=5, count=2))
    # From 1: block 0 is nobody's.
    assert step.tables.tolist() == words.tables == [11, 12, 13, 1]
    assert step.table_at.tolist() == words.table_at == [0, 3]


@pytest.mark.parametrize("count", [0, 3])
def test_a_lane_without_rows_or_without_room_is_refused_with_both_numbers(laid_out, count):
    with pytest.raises(ValueError, match=f"lane 3 has {count} rows up to position {14 + count}"):
        laid_out(lane(3, start=14, count=count, table=[7]))


@given(
    shapes=st.lists(
        st.tuples(st.integers(0, 90), st.integers(1, 6), st.integers(0, 1)), min_size=1, max_size=6
    )
)
def test_what_is_laid_out_is_what_torch_is_given(laid_out, shapes):
    lanes = [
        lane(lane_id, start, count, num_draws)
        for lane_id, (start, count, num_draws) in enumerate(shapes)
    ]
    words, step = laid_out(*lanes)
    given_to_torch = build_inputs(lanes, device=CPU, block_size=16)
    num_rows = given_to_torch.num_rows
    assert step.positions.tolist() == given_to_torch.positions[:num_rows].tolist()
    assert words.token_ids == given_to_torch.token_ids[:num_rows].tolist()
    assert words.draw_rows == given_to_torch.draw_rows.tolist()
    lane_of_row = np.repeat(np.arange(len(lanes)), np.diff(step.lane_rows))
    blocks = step.tables[step.table_at[lane_of_row] + step.positions // 16]
    slots = blocks * 16 + step.positions % 16
    assert slots.tolist() == given_to_torch.slots.tolist()


@given(calls=st.lists(st.lists(POSITIONS, min_size=1), min_size=1, max_size=4))
def test_a_rotation_is_the_same_whichever_positions_were_asked_for_before(rotary, calls):
    kept = Rotations(rotary, HALF_DIM)
    for positions in calls:
        cos, sin = kept.at(np.array(positions, dtype=np.int32))
        made = rotary.at(torch.tensor(positions))
        assert np.array_equal(cos, made.cos[:, 0, HALF_DIM:].numpy())
        assert np.array_equal(sin, made.signed_sin[:, 0, HALF_DIM:].numpy())
        known = kept.up_to(max(positions) + 1)
        if known is not None:
            assert np.array_equal(known[0][positions], cos)
            assert np.array_equal(known[1][positions], sin)
        assert (known is None) == (max(positions) >= MAX_KEPT)
        assert cos.flags.c_contiguous
        assert sin.flags.c_contiguous
