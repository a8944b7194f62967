"""Prompts with images on the whole engine, over the fake ranks: replies are those of solo runs."""

import asyncio

import pytest

from lanehost.engine.inbox import Cancel, CancelCause, Stop
from lanehost.errors import Cancelled, Draining, Overloaded, StepFailed
from lanehost.job import Finished
from lanehost.rank_group.image_interface import ImageReason
from ranks.plan import Draw
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_target import solo_reply
from tests.support.images import image_facts, image_job
from tests.support.jobs import ending, make_job, read_all, token_ids

MS = 1_000_000


def make_rig(facts=None, **engine):
    rig = EngineRig(facts or image_facts(), **engine)
    # A layer of a row takes a millisecond.
    rig.ranks.takes_ns = lambda plan: 0 if plan.staged is None else _slice_ns(plan.staged)
    return rig


def _slice_ns(staged):
    return staged.num_tokens * (staged.stop_layer - staged.first_layer) * MS


async def replies_of(rig, jobs):
    async with rig.running():
        return await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))


def slices(rig):
    return [plan.staged for plan in rig.epochs.plans if plan.staged is not None]


async def let_back(rig):
    if rig.ranks.has_outcome:
        rig.ranks.let_step_back()
    await settle_loop()


def image_counts(rig):
    return rig.engine.images.counters


async def test_a_prompt_with_images_is_answered_as_alone():
    rig = make_rig()
    job = image_job((7, 8), 1, (9, 10, 11), 2, (12,), max_tokens=6)
    (events,) = await replies_of(rig, [job])
    assert token_ids(events) == solo_reply(job)
    last = ending(events)
    assert last.usage.image_tokens == 8
    assert [(one.first_layer, one.stop_layer) for one in slices(rig)] == [(0, 5)]


async def test_two_images_of_one_size_with_the_same_text_are_told_apart():
    rig = make_rig()
    jobs = [image_job((7, 8, 9), number, (9, 9), max_tokens=4) for number in (1, 2)]
    assert jobs[0].prompt_ids == jobs[1].prompt_ids
    again = [image_job((7, 8, 9), number, (9, 9), max_tokens=4) for number in (1, 2)]
    async with rig.running():
        replies = [token_ids(await read_all(rig.send(job))) for job in (*jobs, *again)]
    assert replies == [solo_reply(job) for job in jobs] * 2
    assert replies[0] != replies[1]


async def test_streams_go_on_between_the_slices_of_a_pass():
    rig = make_rig()
    stream = make_job((1, 2), max_tokens=40)
    picture = image_job((7, 8), 1, 2, (9,), max_tokens=2)
    async with rig.running():
        reading = asyncio.create_task(read_all(rig.send(stream)))
        await settle_loop()
        events = await read_all(rig.send(picture))
        first = await reading
    assert token_ids(events) == solo_reply(picture)
    assert token_ids(first) == solo_reply(stream)
    beside = [plan for plan in rig.ranks.plans if plan.staged is not None]
    assert len(beside) > 1
    assert all(plan.decodes for plan in beside)


async def test_a_pass_is_shared_by_all_whose_images_are_ready():
    rig = make_rig()
    rig.ranks.images.is_held = True
    jobs = [image_job((7,), number, max_tokens=2) for number in (1, 2, 3)]
    async with rig.running():
        reading = [asyncio.create_task(read_all(rig.send(job))) for job in jobs]
        await settle_loop()
        assert slices(rig) == []
        rig.ranks.images.release()
        replies = [await one for one in reading]
    assert [token_ids(events) for events in replies] == [solo_reply(job) for job in jobs]
    assert max(len(one.chunks) for one in slices(rig)) > 1


async def test_what_is_behind_the_last_image_runs_in_chunks():
    rig = make_rig(image_facts(max_staged_tokens=6))
    job = image_job((7,), 1, tuple(range(20, 40)), max_tokens=2)
    (events,) = await replies_of(rig, [job])
    assert token_ids(events) == solo_reply(job)
    assert sum(one.num_tokens for one in slices(rig)) == 6
    assert sum(len(one.token_ids) for plan in rig.ranks.plans for one in plan.chunks) == 19


async def test_images_of_more_rows_than_are_kept_come_one_after_the_other():
    rig = make_rig(image_facts(image_cache_tokens=8, num_blocks=64))
    job = image_job((7,), *range(1, 9), (9,), max_tokens=3)
    (events,) = await replies_of(rig, [job])
    assert token_ids(events) == solo_reply(job)
    assert image_counts(rig).encoded == 8


async def test_an_image_is_not_encoded_again_for_the_next_turn():
    rig = make_rig(prompt_cache=False)
    jobs = [image_job((7,), 1, (8, n), max_tokens=1) for n in (1, 2)]
    async with rig.running():
        for job in jobs:
            assert token_ids(await read_all(rig.send(job))) == solo_reply(job)
    assert image_counts(rig).encoded == 1
    assert image_counts(rig).cached == 1


async def test_a_prompt_whose_images_are_cached_encodes_nothing():
    rig = make_rig()
    jobs = [image_job((7, 8), 1, (8, 9, 10), max_tokens=n) for n in (1, 2)]
    async with rig.running():
        await read_all(rig.send(jobs[0]))
        rig.ranks.images.is_held = True
        events = await read_all(rig.send(jobs[1]))
    assert token_ids(events) == solo_reply(jobs[1])
    assert ending(events).usage.cached_tokens == 8


async def test_no_hit_ends_inside_an_image():
    rig = make_rig()
    jobs = [image_job((7, 8), 1, (n, 9, 10), max_tokens=1) for n in (3, 4)]
    async with rig.running():
        await read_all(rig.send(jobs[0]))
        events = await read_all(rig.send(jobs[1]))
    # The block of positions 4 to 7 has the end of the image and what differs: only 0 to 3 agree.
    assert ending(events).usage.cached_tokens == 0
    assert token_ids(events) == solo_reply(jobs[1])


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (ImageReason.NOT_FINITE, StepFailed),
        (ImageReason.FAILED, StepFailed),
        (ImageReason.SHAPE, StepFailed),
        (ImageReason.OUT_OF_MEMORY, Overloaded),
        (ImageReason.BUSY, Overloaded),
    ],
)
async def test_an_image_that_cannot_be_encoded_ends_its_own_request_alone(reason, error):
    rig = make_rig()
    bad, good = image_job(1, max_tokens=2), image_job(2, max_tokens=2)
    broken = bad.images[0].image
    rig.ranks.images.fault = lambda image: reason if image == broken else None
    bad_events, good_events = await replies_of(rig, [bad, good])
    assert isinstance(ending(bad_events).error, error)
    assert token_ids(good_events) == solo_reply(good)


async def test_who_leaves_while_images_are_encoded_has_the_rest_cancelled():
    rig = make_rig()
    rig.ranks.images.turns = lambda: 10
    job = image_job(1, 2, 3)
    async with rig.running():
        stream = rig.send(job)
        reading = asyncio.create_task(read_all(stream))
        await settle_loop(3)
        rig.inbox.put(Cancel(job.job_id, CancelCause.CLIENT))
        assert isinstance(ending(await reading).error, Cancelled)
        await settle_loop(30)
    assert rig.engine.images.num_ordered == 0
    assert rig.engine.images.num_wanted == 0
    assert image_counts(rig).encoded == 1
    assert image_counts(rig).cancelled == 2


async def test_a_server_that_ends_at_once_leaves_nothing_to_be_encoded():
    rig = make_rig()
    rig.ranks.images.turns = lambda: 1000
    run = asyncio.create_task(rig.engine.run())
    reading = [asyncio.create_task(read_all(rig.send(image_job(n, n + 1)))) for n in (1, 3)]
    await settle_loop()
    assert len(rig.ranks.images.waiting) == 4
    rig.inbox.put(Stop(Draining("the server ends")))
    replies = await asyncio.gather(*reading)
    assert all(isinstance(ending(events).error, Draining) for events in replies)
    await run
    assert len(rig.ranks.images.waiting) == 1
    assert rig.engine.images.num_wanted == 0


@pytest.mark.parametrize("cause", CancelCause)
async def test_however_a_job_is_ended_early_nothing_of_it_is_wanted_any_more(cause):
    for num_turns in range(0, 40, 3):
        rig = make_rig(max_stall_ms=1)
        rig.ranks.images.turns = lambda: 5
        stream, job = make_job((1, 2), max_tokens=30), image_job((7,), 1, 2, 3, max_tokens=5)
        async with rig.running():
            reading = [asyncio.create_task(read_all(rig.send(one))) for one in (stream, job)]
            await settle_loop(num_turns)
            rig.inbox.put(Cancel(job.job_id, cause))
            events = [await one for one in reading]
            assert token_ids(events[0]) == solo_reply(stream)
            await settle_loop(10)
            assert rig.engine.images.num_wanted == 0
            assert len(rig.ranks.images.waiting) <= 1


async def test_who_leaves_in_a_pass_holds_lane_and_blocks_until_it_has_ended():
    rig = make_rig(is_manual=True, max_stall_ms=1)
    stream, leaver = make_job((1, 2), max_tokens=30), image_job(1, (9,), max_tokens=3)
    async with rig.running():
        reading = asyncio.create_task(read_all(rig.send(stream)))
        going = asyncio.create_task(read_all(rig.send(leaver)))
        while not slices(rig):
            await let_back(rig)
        rig.inbox.put(Cancel(leaver.job_id, CancelCause.CLIENT))
        await going
        while slices(rig)[-1].stop_layer < 5:
            assert rig.engine.lanes.num_free == 2
            await let_back(rig)
        while not reading.done() or rig.ranks.has_outcome:
            await let_back(rig)
        assert token_ids(await reading) == solo_reply(stream)
    assert [(one.first_layer, one.stop_layer) for one in slices(rig)][-1][1] == 5


async def test_a_pass_that_fails_is_dropped_and_each_of_it_runs_alone():
    rig = make_rig()
    rig.ranks.images.is_held = True
    rig.ranks.poisoned_seeds = {666}
    jobs = [
        image_job((7,), number, max_tokens=2, draw=Draw(seed=666 if number == 2 else number))
        for number in (1, 2, 3)
    ]
    async with rig.running():
        reading = [asyncio.create_task(read_all(rig.send(job))) for job in jobs]
        await settle_loop()
        rig.ranks.images.release()
        replies = [await one for one in reading]
    assert isinstance(ending(replies[1]).error, StepFailed)
    for at in (0, 2):
        assert token_ids(replies[at]) == solo_reply(jobs[at])


async def test_a_slice_in_the_middle_that_fails_takes_the_whole_pass_back():
    rig = make_rig(max_stall_ms=1)
    stream, picture = make_job((1, 2), max_tokens=30), image_job((5,), 1, (9,), max_tokens=3)
    failed = []

    def fails(plan):
        if plan.staged is not None and plan.staged.first_layer == 2 and not failed:
            failed.append(plan)
        return plan in failed

    rig.ranks.fails = fails
    stream_events, events = await replies_of(rig, [stream, picture])
    assert failed
    assert token_ids(stream_events) == solo_reply(stream)
    assert token_ids(events) == solo_reply(picture)
    # Alone, it goes through all layers at once.
    assert (slices(rig)[-1].first_layer, slices(rig)[-1].stop_layer) == (0, 5)
    assert len({one.pass_id for one in slices(rig)}) == 2


async def test_jobs_with_images_are_carried_into_the_next_epoch():
    rig = make_rig(num_epochs=2)
    rig.ranks.lost_at_step = 2
    jobs = [image_job((7,), number, (8,), max_tokens=5) for number in (1, 2)]
    replies = await replies_of(rig, jobs)
    assert [token_ids(events) for events in replies] == [solo_reply(job) for job in jobs]
    assert image_counts(rig).encoded == 4


async def test_who_parks_is_staged_again_from_its_images():
    rig = make_rig(image_facts(num_blocks=8), prompt_cache=False)
    jobs = [image_job((7,), number, (8,), max_tokens=12) for number in (1, 2)]
    replies = await replies_of(rig, jobs)
    assert all(isinstance(ending(events), Finished) for events in replies)
    assert [token_ids(events) for events in replies] == [solo_reply(job) for job in jobs]


async def test_a_warm_prompt_with_images_is_kept():
    rig = make_rig()
    warm = image_job((7, 8), 1, (8, 9, 10), max_tokens=0)
    job = image_job((7, 8), 1, (8, 9, 10), max_tokens=2)
    async with rig.running():
        assert token_ids(await read_all(rig.send(warm))) == []
        events = await read_all(rig.send(job))
    assert token_ids(events) == solo_reply(job)
    assert ending(events).usage.cached_tokens == 8


async def test_the_wait_for_images_is_told():
    rig = make_rig()
    rig.ranks.images.is_held = True
    async with rig.running():
        reading = asyncio.create_task(read_all(rig.send(image_job(1, max_tokens=1))))
        await settle_loop()
        rig.clock.now_s += 3
        rig.ranks.images.release()
        events = await reading
    assert ending(events).timing.encode_s == 3


async def test_while_a_pass_is_open_streams_have_a_token_each_step_and_guess_nothing():
    rig = make_rig(image_facts(vocab_size=3), max_drafts=8, max_stall_ms=1)
    stream = make_job((1, 2, 1, 2, 1, 2, 1, 2), max_tokens=60)
    async with rig.running():
        reading = asyncio.create_task(read_all(rig.send(stream)))
        await settle_loop()
        await read_all(rig.send(image_job((7, 8), 1, 2, max_tokens=2)))
        assert token_ids(await reading) == solo_reply(stream, 3)
    going_on = [plan for plan in rig.ranks.plans if plan.staged and plan.staged.first_layer]
    assert going_on
    assert not any(plan.drafts for plan in going_on)
    # But for one that had guessed when the pass was opened.
    assert sum(0 not in plan.decodes for plan in going_on) <= 1
    assert any(plan.drafts for plan in rig.ranks.plans)


async def test_text_before_an_image_is_computed_while_it_is_encoded():
    rig = make_rig()
    rig.ranks.images.is_held = True
    job = image_job((7, 8, 9), 1, (9,), max_tokens=2)
    async with rig.running():
        reading = asyncio.create_task(read_all(rig.send(job)))
        await settle_loop()
        assert rig.engine.lanes[0].num_computed_tokens == 3
        rig.ranks.images.release()
        assert token_ids(await reading) == solo_reply(job)
