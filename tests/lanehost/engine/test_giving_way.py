"""Who goes first, who gives way, and warm jobs: over the fake ranks."""

import asyncio

import pytest

from lanehost.admission.give_way import MAX_YIELDS
from lanehost.engine.observer import NoObserver
from lanehost.job import Finished, FinishReason, Prefilled, Priority
from ranks.plan import Draw
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_ranks import fake_facts
from tests.support.fake_target import solo_continuation
from tests.support.jobs import ending, make_job, read_all, token_ids

BACKGROUND = Priority.BACKGROUND
LONG = tuple(range(100, 160))


def solo(job):
    return solo_continuation(job.prompt_ids, job.draw, job.max_tokens)


class Notes(NoObserver):
    """Notes who sat down, who gave way, and who ended, in order."""

    def __init__(self):
        self.notes = []

    def job_seated(self, job_id, lane_id, num_cached_tokens):
        self.notes.append(("seated", job_id, num_cached_tokens))

    def job_yielded(self, job_id):
        self.notes.append(("yielded", job_id))

    def job_ended(self, job_id, event, token_ids):
        self.notes.append(("ended", job_id))

    def of(self, job, *, kind):
        return [note[2:] for note in self.notes if note[:2] == (kind, job.job_id)]


def rig_with(notes, **facts):
    values = {"num_lanes": 1, "num_blocks": 64, "max_step_tokens": 8} | facts
    return EngineRig(fake_facts(**values), observer=notes)


async def test_a_warm_job_draws_nothing_and_the_next_prompt_goes_on_from_it():
    rig = EngineRig(fake_facts(num_blocks=64))
    warm = make_job(LONG, max_tokens=0)
    job = make_job((*LONG, 7, 8), max_tokens=4)
    async with rig.running():
        events = await read_all(rig.send(warm))
        reply = await read_all(rig.send(job))
    assert [type(event) for event in events] == [Prefilled, Finished]
    assert ending(events).reason is FinishReason.LENGTH
    assert ending(events).usage.completion_tokens == 0
    assert ending(reply).usage.cached_tokens == 60
    assert token_ids(reply) == solo(job)


async def test_a_warm_job_whose_prompt_is_kept_ends_at_once_and_runs_nothing():
    rig = EngineRig(fake_facts(num_blocks=64))
    async with rig.running():
        await read_all(rig.send(make_job((*LONG, 1), max_tokens=0)))
        num_plans = len(rig.ranks.plans)
        events = await read_all(rig.send(make_job((*LONG, 1), max_tokens=0)))
    assert [type(event) for event in events] == [Prefilled, Finished]
    assert ending(events).usage.cached_tokens == 60
    assert not any(plan.chunks for plan in rig.ranks.plans[num_plans:])


async def test_a_warm_job_in_the_background_yields_at_a_chunk_and_keeps_its_progress():
    notes = Notes()
    rig = rig_with(notes)
    warm = make_job(LONG, max_tokens=0, priority=BACKGROUND)
    urgent = make_job((1, 2, 3), max_tokens=3)
    async with rig.running():
        stream = rig.send(warm)
        await settle_loop(8)
        reply = await read_all(rig.send(urgent))
        events = await read_all(stream)
    assert token_ids(reply) == solo(urgent)
    assert isinstance(ending(events), Finished)
    order = [note[:2] for note in notes.notes if note[0] != "seated"]
    assert order == [
        ("yielded", warm.job_id),
        ("ended", urgent.job_id),
        ("ended", warm.job_id),
    ]
    first, second = notes.of(warm, kind="seated")
    assert first == (0,)
    assert second[0] >= 8
    # Usage says what was there when it first sat down, not what it had computed itself.
    assert ending(events).usage.cached_tokens == 0
    assert sum(isinstance(event, Prefilled) for event in events) == 1


async def test_a_background_job_does_not_yield_before_a_chunk_of_progress():
    notes = Notes()
    rig = rig_with(notes)
    slow = make_job(LONG, max_tokens=0, priority=BACKGROUND)
    urgent = make_job((1, 2, 3), max_tokens=3)
    async with rig.running():
        streams = [rig.send(slow)]
        await settle_loop(2)
        assert rig.engine.lanes.num_free == 0
        assert rig.engine.lanes[0].num_computed_tokens == 0
        streams.append(rig.send(urgent))
        await asyncio.gather(*map(read_all, streams))
    computed = [sum(len(c.token_ids) for c in plan.chunks) for plan in rig.ranks.plans]
    assert notes.of(slow, kind="seated")[1][0] >= 8
    assert sum(computed) <= len(LONG) + 3 + 8


async def test_who_gives_way_again_and_again_gets_on_each_time():
    """A part of a block is lost, and steps are smaller: so it goes on until it has a whole one."""
    notes = Notes()
    rig = rig_with(notes, max_step_tokens=3)
    slow = make_job(LONG, max_tokens=0, priority=BACKGROUND)
    async with rig.running():
        waiting = asyncio.ensure_future(read_all(rig.send(slow)))
        while not waiting.done():
            await read_all(rig.send(make_job(max_tokens=1)))
    seated_at = [cached for (cached,) in notes.of(slow, kind="seated")]
    assert len(seated_at) > 3
    assert seated_at == sorted(set(seated_at))


async def test_one_whose_progress_is_evicted_each_time_ends_all_the_same():
    """Each urgent prompt takes all blocks, so nothing stays of what the other had computed."""
    notes = Notes()
    rig = rig_with(notes, num_blocks=16)
    slow = make_job(LONG, max_tokens=0, priority=BACKGROUND)
    async with rig.running():
        waiting = asyncio.ensure_future(read_all(rig.send(slow)))
        while not waiting.done():
            await read_all(rig.send(make_job((*LONG[1:], 7), max_tokens=1)))
    assert isinstance(ending(waiting.result()), Finished)
    assert len(notes.of(slow, kind="yielded")) == MAX_YIELDS


async def test_a_background_reply_that_yields_goes_on_exactly_where_it_was():
    notes = Notes()
    rig = rig_with(notes, num_lanes=2)
    quiet = [
        make_job((n, n), max_tokens=25, priority=BACKGROUND, draw=Draw(temperature=0.9, seed=n))
        for n in range(3)
    ]
    urgent = [make_job((n, 1, 2), max_tokens=6) for n in range(10, 14)]
    async with rig.running():
        waiting = [asyncio.ensure_future(read_all(rig.send(job))) for job in quiet]
        await settle_loop(12)
        replies = await asyncio.gather(*(read_all(rig.send(job)) for job in urgent))
        replies += [await one for one in waiting]
    jobs = urgent + quiet
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]
    assert any(note[0] == "yielded" for note in notes.notes)
    ended = [note[1] for note in notes.notes if note[0] == "ended"]
    assert set(ended[:4]) == {job.job_id for job in urgent}


async def test_one_in_the_background_gives_way_also_when_only_its_blocks_are_wanted():
    notes = Notes()
    rig = rig_with(notes, num_lanes=3, num_blocks=16, max_step_tokens=64)
    quiet = make_job(LONG[:40], max_tokens=20, priority=BACKGROUND)
    urgent = make_job(tuple(range(30)), max_tokens=2)
    async with rig.running():
        stream = rig.send(quiet)
        await settle_loop(8)
        assert rig.engine.lanes.num_free == 2
        reply = await read_all(rig.send(urgent))
        events = await read_all(stream)
    assert [token_ids(reply), token_ids(events)] == [solo(urgent), solo(quiet)]
    order = [note[:2] for note in notes.notes if note[0] != "seated"]
    assert order == [("yielded", quiet.job_id), ("ended", urgent.job_id), ("ended", quiet.job_id)]


async def test_a_flooding_scope_gives_lanes_back_to_one_that_has_fewer_than_its_share():
    notes = Notes()
    rig = rig_with(notes, num_lanes=4, max_step_tokens=16)
    flood = [make_job((n,), max_tokens=40, scope="flood") for n in range(8)]
    other = make_job((9, 9), max_tokens=5, scope="other")
    async with rig.running():
        waiting = [asyncio.ensure_future(read_all(rig.send(job))) for job in flood]
        await settle_loop(12)
        reply = await read_all(rig.send(other))
        assert not [note for note in notes.notes if note[0] == "ended"][1:]
        replies = [await one for one in waiting]
    assert token_ids(reply) == solo(other)
    assert [token_ids(events) for events in replies] == [solo(job) for job in flood]
    assert sum(note[0] == "yielded" for note in notes.notes) == 1


async def test_a_background_job_that_waited_its_most_is_not_overtaken_for_ever():
    """Urgent jobs without end, and one in the background: it ends all the same."""
    rig = rig_with(Notes())
    slow = make_job(tuple(range(30)), max_tokens=3, priority=BACKGROUND)
    async with rig.running():
        waiting = asyncio.ensure_future(read_all(rig.send(slow)))
        num_urgent = 0
        open_jobs = [asyncio.ensure_future(read_all(rig.send(make_job())))]
        while not waiting.done():
            open_jobs.append(asyncio.ensure_future(read_all(rig.send(make_job()))))
            await open_jobs.pop(0)
            num_urgent += 1
            assert num_urgent < 1000
        await asyncio.gather(*open_jobs)
    assert token_ids(waiting.result()) == solo(slow)
    assert num_urgent > 60


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_any_participant_of_a_pass_may_yield_and_the_others_go_on(number):
    """Three prompts share passes; one is in the background and gives its lane up in between."""
    notes = Notes()
    rig = rig_with(notes, num_lanes=4, max_step_tokens=12)
    unrelated = make_job((50, 51), max_tokens=40)
    jobs = [
        make_job(
            tuple(range(30 * n, 30 * n + 25)),
            max_tokens=5,
            priority=BACKGROUND if n == number else Priority.FOREGROUND,
        )
        for n in range(3)
    ]
    async with rig.running():
        first = asyncio.ensure_future(read_all(rig.send(unrelated)))
        await settle_loop(6)
        waiting = [asyncio.ensure_future(read_all(rig.send(job))) for job in jobs]
        while not any(lane.num_computed_tokens for lane in rig.engine.lanes if lane.is_background):
            await settle_loop(1)
        urgent = make_job((1, 2, 3), max_tokens=3)
        assert token_ids(await read_all(rig.send(urgent))) == solo(urgent)
        replies = [await one for one in waiting]
        assert token_ids(await first) == solo(unrelated)
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]
    assert [note[1] for note in notes.notes if note[0] == "yielded"] == [jobs[number].job_id]


async def test_prompts_up_to_their_marks_are_kept_while_they_are_still_being_computed():
    rig = EngineRig(fake_facts(num_blocks=64, max_step_tokens=8), is_manual=True)
    run = asyncio.ensure_future(rig.engine.run())
    rig.send(make_job(LONG, marks=(6, 8, 13), max_tokens=3))
    await settle_loop()
    rig.ranks.let_step_back()
    await settle_loop()
    assert rig.engine.cache.num_kept_blocks == 2
    rig.ranks.let_step_back()
    await settle_loop()
    assert rig.engine.cache.num_kept_blocks == 3
    assert rig.engine.cache.counters.refreshed == 0
    run.cancel()


async def test_a_background_prompt_with_a_lane_is_not_passed_over_for_ever():
    """Prompts in the foreground fill every step, and a lane is free for each of them."""
    rig = rig_with(Notes(), num_lanes=4, num_blocks=256)
    slow = make_job(tuple(range(20)), max_tokens=3, priority=BACKGROUND)
    num_sent = 0

    async def keep_sending():
        nonlocal num_sent
        while not waiting.done():
            num_sent += 1
            assert num_sent < 500
            await read_all(rig.send(make_job((num_sent % 250, *LONG), max_tokens=1)))

    async with rig.running():
        waiting = asyncio.ensure_future(read_all(rig.send(slow)))
        await asyncio.gather(*(keep_sending() for _ in range(3)))
    assert token_ids(waiting.result()) == solo(slow)
