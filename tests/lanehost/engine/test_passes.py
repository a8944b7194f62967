"""Prompts that share steps: who shares, and what a step that fails does to each.

The cases of the lane core's list, over the fake ranks; `tests/integration/test_passes.py`
has them on real ones.
"""

import asyncio

import pytest

from lanehost.errors import Cancelled, ReplyCorrupt, StepFailed
from lanehost.job import Failed, Prefilled, Tokens
from ranks.plan import Draw
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_ranks import fake_facts
from tests.support.fake_target import solo_continuation
from tests.support.jobs import ending, make_job, read_all, token_ids

POISON = 666


def roomy(**values):
    return EngineRig(fake_facts(num_blocks=64, max_step_tokens=64), **values)


def jobs_of(count, *, max_tokens=4, seeds=None):
    return [
        make_job((n, n + 1, n + 2), max_tokens=max_tokens, draw=Draw(seed=(seeds or {}).get(n, n)))
        for n in range(1, count + 1)
    ]


def solo(job):
    return solo_continuation(job.prompt_ids, job.draw, job.max_tokens)


def passes(rig):
    """How many prompts shared each step that was run, where any did."""
    return [len(plan.chunks) for plan in rig.ranks.plans_run if plan.chunks]


async def run_all(rig, jobs):
    async with rig.running():
        return await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))


async def test_four_queued_requests_share_one_pass():
    rig = roomy()
    jobs = jobs_of(4)
    replies = await run_all(rig, jobs)
    assert passes(rig) == [4]
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]


async def test_six_on_four_lanes_share_what_is_free_and_the_rest_comes_after():
    rig = roomy()
    jobs = jobs_of(6)
    replies = await run_all(rig, jobs)
    assert passes(rig) == [4, 2]
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]


async def test_room_for_two_a_pass_of_four_is_refused_and_later_ones_are_of_two():
    rig = roomy()
    rig.ranks.room_prompts = 2
    first, later = jobs_of(4), jobs_of(4)
    async with rig.running():
        replies = await asyncio.gather(*(read_all(rig.send(job)) for job in first))
        assert passes(rig) == [1, 1, 1, 1]
        replies += await asyncio.gather(*(read_all(rig.send(job)) for job in later))
    assert passes(rig)[4:] == [2, 2]
    assert [token_ids(events) for events in replies] == [solo(job) for job in first + later]


async def test_after_many_prompts_that_ran_more_may_share_a_step_again():
    rig = roomy()
    rig.ranks.room_prompts = 1
    async with rig.running():
        await asyncio.gather(*(read_all(rig.send(job)) for job in jobs_of(2)))
        rig.ranks.room_prompts = None
        for job in jobs_of(32, max_tokens=1):
            await read_all(rig.send(job))
        await asyncio.gather(*(read_all(rig.send(job)) for job in jobs_of(2)))
    assert set(passes(rig)[:-1]) == {1}
    assert passes(rig)[-1] == 2


@pytest.mark.parametrize("number", [1, 2, 3, 4])
async def test_one_that_cannot_be_run_fails_alone_and_the_others_keep_their_replies(number):
    rig = roomy()
    rig.ranks.poisoned_seeds = {POISON}
    jobs = jobs_of(4, seeds={number: POISON})
    replies = await run_all(rig, jobs)
    for job, events in zip(jobs, replies, strict=True):
        if job.draw.seed == POISON:
            assert isinstance(ending(events).error, StepFailed)
            assert token_ids(events) == []
        else:
            assert token_ids(events) == solo(job)


async def test_what_a_failed_request_computed_is_not_kept():
    rig = EngineRig(fake_facts(num_blocks=64, max_step_tokens=8))
    rig.ranks.fails = lambda plan: any(chunk.start >= 8 for chunk in plan.chunks)
    events = (await run_all(rig, [make_job(tuple(range(20)))]))[0]
    assert isinstance(ending(events).error, StepFailed)
    assert rig.engine.cache.num_entries == 0


async def test_nobody_begins_with_what_a_step_that_failed_was_to_write():
    """A prompt is cancelled with two steps of it out, and the first of them fails."""
    rig = EngineRig(fake_facts(num_blocks=64, max_step_tokens=8), is_manual=True)
    rig.ranks.fails = lambda plan: plan.step_id == 2
    first, job = make_job(tuple(range(40))), make_job((*range(40), 7))
    run = asyncio.ensure_future(rig.engine.run())
    cancelled = rig.send(first)
    await settle_loop()
    rig.ranks.let_step_back()
    await settle_loop()
    cancelled.cancel()
    stream = rig.send(job)
    for _ in range(20):
        rig.ranks.let_step_back()
        await settle_loop(5)
    events = [event async for event in stream]
    assert token_ids(events) == solo(job)
    assert ending(events).usage.cached_tokens == 8
    run.cancel()


async def test_a_pass_that_fails_leaves_none_prefilled_and_an_unrelated_lane_goes_on():
    """The lane that decodes shares the step; it loses a turn and no token."""
    rig = roomy(is_manual=True)
    unrelated, *jobs = jobs_of(4, max_tokens=12)
    run = asyncio.ensure_future(rig.engine.run())
    streams = [rig.send(unrelated)]
    for _ in range(3):
        await settle_loop()
        rig.ranks.let_step_back()
    await settle_loop()
    rig.ranks.room_prompts = 1
    streams += [rig.send(job) for job in jobs]
    for _ in range(2):
        rig.ranks.let_step_back()
        await settle_loop()
    assert all(
        not any(isinstance(event, Prefilled) for event in stream._events) for stream in streams[1:]
    )
    for _ in range(60):
        rig.ranks.let_step_back()
        await settle_loop(5)
    for job, stream in zip([unrelated, *jobs], streams, strict=True):
        assert token_ids([event async for event in stream]) == solo(job)
    run.cancel()


@pytest.mark.parametrize("cancelled", [0, 1, 2])
@pytest.mark.parametrize("room", [None, 1])
async def test_a_cancel_of_any_participant_leaves_the_others_and_an_unrelated_lane(cancelled, room):
    """While the pass is with the ranks, whether it then runs or fails."""
    rig = roomy()
    unrelated = make_job((50, 51), max_tokens=20)
    jobs = jobs_of(3)
    rig.ranks.room_prompts = room
    streams = {}

    def cancel_at_the_pass(plan):
        if len(plan.chunks) == len(jobs):
            streams[jobs[cancelled].job_id].cancel()

    rig.ranks.on_plan = cancel_at_the_pass
    async with rig.running():
        first = asyncio.ensure_future(read_all(rig.send(unrelated)))
        await settle_loop(6)
        streams |= {job.job_id: rig.send(job) for job in jobs}
        replies = await asyncio.gather(*(read_all(streams[job.job_id]) for job in jobs))
        assert token_ids(await first) == solo(unrelated)
    for number, (job, events) in enumerate(zip(jobs, replies, strict=True)):
        if number == cancelled:
            assert isinstance(ending(events).error, Cancelled)
        else:
            assert token_ids(events) == solo(job)


async def test_a_first_token_that_is_no_number_keeps_the_others_and_frees_all_lanes():
    rig = roomy()
    rig.ranks.nan_seed = POISON
    jobs = jobs_of(4, seeds={2: POISON})
    replies = await run_all(rig, jobs)
    assert passes(rig) == [4]
    assert isinstance(ending(replies[1]).error, ReplyCorrupt)
    for job, events in zip(jobs, replies, strict=True):
        assert token_ids(events) == ([] if job.draw.seed == POISON else solo(job))


async def test_a_draft_error_fails_nobody():
    rig = EngineRig(fake_facts(num_blocks=64, max_step_tokens=64, vocab_size=2), max_drafts=4)
    rig.ranks.fails_drafts = True
    jobs = [make_job((1, n % 2, 1, 1), max_tokens=20) for n in range(4)]
    replies = await run_all(rig, jobs)
    assert any(plan.drafts for plan in rig.ranks.plans)
    assert not any(plan.drafts for plan in rig.ranks.plans_run)
    for job, events in zip(jobs, replies, strict=True):
        assert token_ids(events) == solo_continuation(job.prompt_ids, job.draw, 20, 2)


async def test_first_tokens_are_delivered_before_anything_is_guessed():
    rig = EngineRig(fake_facts(num_blocks=64, max_step_tokens=64, vocab_size=2), max_drafts=4)
    delivered = []
    streams = []

    def look(plan):
        if plan.drafts:
            delivered.append(
                all(any(isinstance(e, Tokens) for e in stream._events) for stream in streams)
            )

    rig.ranks.on_plan = look
    jobs = [make_job((1, n % 2, 1, 1), max_tokens=6) for n in range(4)]
    async with rig.running():
        streams += [rig.send(job) for job in jobs]
        while rig.engine.num_open_jobs or not delivered:
            await settle_loop(1)
    assert delivered
    assert all(delivered)


async def test_decodes_that_fail_together_run_alone_and_lose_nothing():
    rig = roomy()
    rig.ranks.fails = lambda plan: len(plan.decodes) > 1
    jobs = jobs_of(3, max_tokens=6)
    replies = await run_all(rig, jobs)
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]


async def test_decodes_that_ran_alone_share_steps_again():
    rig = roomy()
    failing = iter([True])
    rig.ranks.fails = lambda plan: len(plan.decodes) > 1 and next(failing, False)
    replies = await run_all(rig, jobs := jobs_of(3, max_tokens=12))
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]
    assert [len(plan.decodes) for plan in rig.ranks.plans_run].count(3) > 4


async def test_a_reply_that_fails_in_mid_life_keeps_what_it_had_said_and_the_others_go_on():
    rig = roomy()
    jobs = jobs_of(3, max_tokens=8)
    rig.ranks.fails = lambda plan: len(rig.ranks.plans) > 5 and 1 in plan.decodes
    replies = await run_all(rig, jobs)
    assert isinstance(ending(replies[1]).error, StepFailed)
    said = token_ids(replies[1])
    assert said
    assert said == solo(jobs[1])[: len(said)]
    assert [token_ids(replies[n]) for n in (0, 2)] == [solo(jobs[n]) for n in (0, 2)]


@pytest.mark.parametrize("num_prompts", [1, 2, 3, 16])
async def test_replies_are_the_same_however_many_prompts_may_share_a_step(num_prompts):
    facts = fake_facts(num_lanes=6, num_blocks=64, max_step_tokens=24)
    rig = EngineRig(facts, max_pass_prompts=num_prompts)
    jobs = [
        make_job(tuple(range(n, n + 9)), max_tokens=5, draw=Draw(temperature=0.7, seed=n))
        for n in range(9)
    ]
    replies = await run_all(rig, jobs)
    assert max(passes(rig)) <= num_prompts
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]


async def test_a_failed_step_is_not_the_end_of_the_group():
    rig = roomy()
    failed = iter([True])
    rig.ranks.fails = lambda _: next(failed, False)
    jobs = jobs_of(4)
    replies = await run_all(rig, jobs)
    assert not any(isinstance(ending(events), Failed) for events in replies)
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]


async def test_bad_requests_one_after_another_do_not_stop_a_stream():
    rig = roomy()
    rig.ranks.poisoned_seeds = {POISON}
    job, num_bad = make_job((1, 2, 3), max_tokens=60), 0
    async with rig.running():
        reading = asyncio.ensure_future(read_all(rig.send(job)))
        while not reading.done():
            bad = make_job((9, num_bad), draw=Draw(seed=POISON))
            assert isinstance(ending(await read_all(rig.send(bad))).error, StepFailed)
            num_bad += 1
            assert num_bad < 100
    assert token_ids(reading.result()) == solo(job)
