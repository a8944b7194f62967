"""Images through a group of rank processes of arithmetic: one outcome for all, or out of step."""

import asyncio

import pytest

from lanehost.job import PreparedImage
from ranks.plan import Chunk, ChunkImage
from tests.support.epochs import WITHIN_S, epochs_of
from tests.support.rank_process import IMAGES, NUM_LAYERS, VOCAB_SIZE
from tests.support.staged_plans import StagedWriter

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]
PICTURED = Chunk(
    lane_id=0,
    start=0,
    token_ids=(5, *[IMAGES.token_id] * IMAGES.num_tokens, 6),
    draws=True,
    images=(ChunkImage(image_id=1, start=1, num_tokens=IMAGES.num_tokens),),
)


def image():
    pixels = bytes(range(3 * IMAGES.width * IMAGES.height))
    return PreparedImage(digest=bytes(32), width=IMAGES.width, height=IMAGES.height, pixels=pixels)


async def encoded(group):
    """What becomes of an image that is ordered."""
    outcome = asyncio.get_running_loop().create_future()
    group.images.tell(outcome.set_result)
    group.images.encode(1, image())
    return await asyncio.wait_for(outcome, WITHIN_S)


async def test_an_image_is_ready_when_all_ranks_have_it_and_a_pass_draws_from_its_pixels(tmp_path):
    async with epochs_of("images", folder=tmp_path, tp=2) as epochs:
        group = epochs.group
        assert group.facts.num_layers == NUM_LAYERS
        outcome = await encoded(group)
        assert (outcome.reason, outcome.num_tokens) == (None, IMAGES.num_tokens)
        writer = StagedWriter(block_size=16, num_layers=NUM_LAYERS)
        drawn = []
        for staged in writer.slices((PICTURED,), [1, 3, NUM_LAYERS]):
            plan = writer.plan(staged=staged)
            group.submit(plan)
            drawn.append((await asyncio.wait_for(group.next_outcome(), WITHIN_S)).drawn)
            writer.ran_well(plan)
        total = sum(PICTURED.token_ids) + sum(image().pixels)
        assert drawn == [{}, {}, {0: (total * 7 + len(PICTURED.token_ids)) % VOCAB_SIZE}]


async def test_ranks_whose_rows_differ_are_out_of_step_by_name(tmp_path):
    async with epochs_of("images,image-drift-on-1", folder=tmp_path, tp=2) as epochs:
        group = epochs.group
        group.images.encode(1, image())
        lost = await epochs.lost()
        assert "image 1 has 4 rows with digest" in str(lost)
