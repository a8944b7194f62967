"""Prompts with images on real ranks of a tiny Gemma 3: in company, in a small pool, over a loss."""

import asyncio
import signal
from dataclasses import replace

import pytest

from lanehost.engine.inbox import Drain
from ranks.plan import Draw
from tests.support.epochs import epochs_of
from tests.support.jobs import read_all, token_ids
from tests.support.picture_jobs import (
    OverEpochs,
    again,
    everybody,
    in_company,
    picture,
    pictures,
    slices,
    solo_replies,
    words,
)
from tests.support.real_engine import engine_on_ranks
from tests.support.tiny_gemma3 import IMAGE_TOKENS, write_tiny_gemma3

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_tiny_gemma3(tmp_path_factory.mktemp("gemma3"))


@pytest.fixture(scope="module")
def solo(checkpoint):
    """What each job gives by itself."""
    found = asyncio.run(solo_replies(checkpoint, everybody()))
    assert sum(len(set(reply)) > 8 for reply in found) >= 4, "they say too little to be compared"
    return found


@pytest.mark.parametrize("tp", [1, 2])
async def test_pictures_that_arrive_beside_streams_change_no_reply(checkpoint, solo, tp):
    group = {"num_lanes": 8}
    async with engine_on_ranks(
        checkpoint, tp=tp, group=group, max_stall_ms=1, staged_rows=20
    ) as rig:
        assert await in_company(rig) == solo
        beside = [plan for plan in slices(rig) if plan.decodes]
        assert any(plan.staged.first_layer for plan in beside)
        assert max(len(plan.staged.chunks) for plan in slices(rig)) > 1
        assert rig.engine.images.counters.encoded == 8


async def test_in_a_pool_that_is_too_small_for_all_no_reply_changes(checkpoint, solo):
    group = {"num_lanes": 8, "kv_tokens": 16 * 9, "image_cache_tokens": 2 * IMAGE_TOKENS}
    async with engine_on_ranks(checkpoint, group=group, max_stall_ms=1, staged_rows=20) as rig:
        assert await in_company(rig) == solo
        assert any(what in ("parked", "yielded") for what, _ in rig.steps.notes)
        assert rig.engine.images.counters.evicted > 0


@pytest.mark.parametrize("tp", [1, 2])
async def test_a_rank_that_is_killed_while_pictures_are_staged_changes_no_reply(
    checkpoint, solo, tp
):
    settings = {"dtype": "float32", "device": "cpu", "num_threads": 1, "num_lanes": 8}
    async with epochs_of(None, folder=checkpoint, tp=tp, **settings) as epochs:
        rig = OverEpochs(epochs, max_stall_ms=1, staged_rows=20)
        run = asyncio.create_task(rig.engine.run())
        replies = asyncio.create_task(in_company(rig))
        await rig.steps.until(lambda: any(plan.staged.first_layer for plan in slices(rig)))
        epochs.signal(tp - 1, signal.SIGKILL)
        assert await replies == solo
        assert rig.engine.facts.epoch > 1
        rig.inbox.put(Drain())
        await run
        rig.check_all_free()


async def test_the_next_turn_hits_what_images_were_computed_for(checkpoint, solo):
    async with engine_on_ranks(checkpoint) as rig:
        job = pictures()[-1]
        assert token_ids(await read_all(rig.send(again(job)))) == solo[-1]
        events = await read_all(rig.send(replace(job, job_id="once-more")))
        assert token_ids(events) == solo[-1]
        assert events[-1].usage.cached_tokens > 32
        assert events[-1].usage.image_tokens == 8 * IMAGE_TOKENS


async def test_two_images_under_the_same_text_are_two_replies(checkpoint):
    async with engine_on_ranks(checkpoint) as rig:
        draw = Draw(temperature=1.0, seed=1)
        jobs = [
            picture(words(1, 20), number, words(2, 20), max_tokens=24, draw=draw)
            for number in (1, 2)
        ]
        assert jobs[0].prompt_ids == jobs[1].prompt_ids
        first, second = [token_ids(await read_all(rig.send(job))) for job in jobs]
        assert first != second
