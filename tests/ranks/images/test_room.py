"""What images take: no less than what is held, and nothing where there are none."""

from dataclasses import fields, is_dataclass

import pytest
import torch

from ranks.images.room import ImageRoom, image_room
from ranks.step_inputs import LaneImage, LaneRows
from tests.support.tiny_checkpoints import write_hf_checkpoint
from tests.support.tiny_gemma3 import IMAGE_TOKENS, write_tiny_gemma3
from tests.support.tiny_worlds import load_models

BLOCK_SIZE, NUM_BLOCKS = 16, 32


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_models(write_tiny_gemma3(tmp_path_factory.mktemp("checkpoint")), 1)[0]


def held_bytes(value, seen):
    """Bytes of all tensors within, each counted once."""
    if isinstance(value, torch.Tensor):
        first = value.data_ptr()
        seen[first] = max(seen.get(first, 0), value.untyped_storage().nbytes())
    elif is_dataclass(value):
        for one in fields(value):
            held_bytes(getattr(value, one.name), seen)
    elif isinstance(value, dict):
        held_bytes(list(value.values()), seen)
    elif isinstance(value, list | tuple):
        for one in value:
            held_bytes(one, seen)
    return sum(seen.values())


@pytest.mark.parametrize("num_rows", [5, 100, 200])
@torch.inference_mode()
def test_a_pass_holds_no_more_between_two_slices_than_was_counted(model, num_rows):
    kv = model.new_kv_store(NUM_BLOCKS, BLOCK_SIZE)
    images = (LaneImage(start=1, rows=torch.zeros(IMAGE_TOKENS, model.config.hidden_size)),)
    rows = LaneRows(
        lane_id=0,
        start=0,
        token_ids=[7] * num_rows,
        block_table=list(range(NUM_BLOCKS)),
        num_draws=1,
        images=images,
    )
    state = model.begin([rows], kv)
    room = image_room(model, max_staged_tokens=num_rows, image_cache_tokens=0)
    longest = room.longest(1, 1)
    by_position = model.step_bytes_per_block(BLOCK_SIZE, longest) * -(-num_rows // BLOCK_SIZE)
    # The old stream and the new one are there at once.
    beside = state.x.nbytes
    assert held_bytes(state, {}) + beside <= room.staged_bytes + by_position


def test_room_for_rows_is_counted_for_all_that_are_kept_and_one_more_image(model):
    row = model.config.hidden_size * 4
    room = image_room(model, max_staged_tokens=32, image_cache_tokens=100)
    assert room.kept_bytes == (100 + IMAGE_TOKENS) * row
    assert room.num_bytes == room.kept_bytes + room.staged_bytes
    assert room.staged_bytes > 2 * 32 * row


def test_a_forward_pass_is_as_wide_as_the_widest_and_as_long_as_both(model):
    room = image_room(model, max_staged_tokens=32, image_cache_tokens=0)
    assert (room.widest(8, 2).max_step_tokens, room.widest(64, 2).max_step_tokens) == (32, 64)
    assert room.longest(64, 2).max_step_tokens == 96
    assert room.longest(64, 2).num_lanes == 2


def test_a_model_without_images_takes_nothing(tmp_path):
    write_hf_checkpoint(tmp_path, "llama")
    model = load_models(tmp_path, 1)[0]
    assert image_room(model, max_staged_tokens=99, image_cache_tokens=99) == ImageRoom()
