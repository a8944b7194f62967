"""What the page says of images and staged passes, over the fake ranks."""

import asyncio

from lanehost.engine.inbox import Cancel, CancelCause
from tests.support.fake_engine import settle_loop
from tests.support.image_files import png
from tests.support.images import image_facts, image_job
from tests.support.jobs import make_job, read_all
from tests.support.metered import MeteredRig

MS = 1_000_000


async def test_images_are_counted_by_what_became_of_them():
    rig = MeteredRig(image_facts(image_cache_tokens=8))
    async with rig.running():
        await read_all(rig.send(image_job((7,), 1, (8, 9), max_tokens=1)))
        await read_all(rig.send(image_job((5,), 1, (8, 9), 2, max_tokens=1)))
        await read_all(rig.send(image_job((6,), 3, max_tokens=1)))
        rig.ranks.images.is_held = True
        leaver = image_job((4,), 4, 5)
        reading = asyncio.create_task(read_all(rig.send(leaver)))
        await settle_loop()
        assert rig.value("images_encoding") == 2
        rig.inbox.put(Cancel(leaver.job_id, CancelCause.CLIENT))
        await reading
        rig.ranks.images.release()
        await settle_loop()
    assert rig.value("images_encoded_total") == 4
    assert rig.value("images_cached_total") == 1
    assert rig.value("images_cancelled_total") == 1
    assert rig.value("images_evicted_total") == 3
    assert rig.value("images_failed_total") == 0
    assert rig.value("images_encoding") == 0
    assert rig.value("image_rows") == 4
    assert rig.value("image_tokens_total", "") == 4 * 6


async def test_what_images_hold_on_the_master_is_seen():
    rig = MeteredRig()
    assert (rig.value("held_image_bytes"), rig.value("uploads_kept")) == (0, 0)
    await rig.held.upload(png(), "")
    assert (rig.value("held_image_bytes"), rig.value("uploads_kept")) == (24, 1)


async def test_passes_are_counted_and_how_long_streams_waited_for_them():
    rig = MeteredRig(image_facts(), is_manual=True)
    rig.ranks.takes_ns = lambda plan: 0 if plan.staged is None else 60 * MS
    async with rig.running():
        text = asyncio.create_task(read_all(rig.send(make_job((1, 2), max_tokens=20))))
        await rig.step()
        picture = asyncio.create_task(read_all(rig.send(image_job((7,), 1, max_tokens=1))))
        await rig.step()
        while not (text.done() and picture.done()) or rig.ranks.has_outcome:
            rig.clock.now_s += 0.25
            await rig.step()
    assert rig.value("staged_passes_total") == 1
    assert rig.value("staged_rows_total") == 4
    assert rig.value("staged_slices_total") == 5
    assert rig.value("staged_pause_seconds_count") == 5
    assert rig.value("longest_stall_seconds") == 0.25
    assert rig.value("time_to_first_token_seconds_count", "foreground") == 2
