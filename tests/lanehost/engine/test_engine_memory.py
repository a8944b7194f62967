"""What the engine does with KV blocks: shares kept prompts, parks under pressure."""

import asyncio

from lanehost.engine.inbox import Drain
from lanehost.engine.observer import NoObserver
from lanehost.errors import Cancelled
from lanehost.job import Prefilled
from ranks.plan import Draw
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_ranks import fake_facts
from tests.support.fake_target import solo_continuation
from tests.support.jobs import ending, make_job, read_all, token_ids


def solo(job):
    return solo_continuation(job.prompt_ids, job.draw, job.max_tokens)


async def test_a_prompt_that_begins_alike_is_not_computed_again_and_gives_the_same_reply():
    rig = EngineRig(fake_facts(num_blocks=64))
    system = tuple(range(1, 41))
    jobs = [make_job((*system, n, n), max_tokens=5) for n in range(12)]
    async with rig.running():
        replies = await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]
    cached = [ending(events).usage.cached_tokens for events in replies]
    assert cached == [0] + [40] * 11
    assert replies[1][0].cached_tokens == 40
    computed = sum(len(c.token_ids) for plan in rig.ranks.plans for c in plan.chunks)
    assert computed == 42 + 11 * 2


async def test_the_next_turn_of_a_chat_finds_prompt_and_reply():
    rig = EngineRig(fake_facts(num_blocks=64))
    first = make_job(tuple(range(1, 13)), max_tokens=9)
    async with rig.running():
        said = token_ids(await read_all(rig.send(first)))
        second = make_job((*first.prompt_ids, *said, 77, 78), max_tokens=4)
        events = await read_all(rig.send(second))
    assert token_ids(events) == solo(second)
    assert ending(events).usage.cached_tokens == 20


async def test_what_a_cancelled_prompt_had_computed_is_kept():
    rig = EngineRig(fake_facts(num_blocks=64), is_manual=True)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(rig.engine.run())
        stream = rig.send(make_job(tuple(range(60))))
        await settle_loop()
        rig.ranks.let_step_back()
        await settle_loop()
        stream.cancel()
        await settle_loop()
        assert rig.engine.cache.num_kept_blocks == 4
        run.cancel()


async def test_the_state_of_a_corrupt_reply_is_not_kept():
    rig = EngineRig(fake_facts(num_blocks=64))
    rig.ranks.nan_seed = 13
    async with rig.running():
        await read_all(rig.send(make_job(tuple(range(12)), draw=Draw(seed=13))))
        assert rig.engine.cache.num_entries == 0


async def test_without_the_prompt_cache_every_prompt_is_computed():
    rig = EngineRig(fake_facts(num_blocks=64), prompt_cache=False)
    jobs = [make_job(tuple(range(12)), max_tokens=3) for _ in range(2)]
    async with rig.running():
        for job in jobs:
            assert ending(await read_all(rig.send(job))).usage.cached_tokens == 0
    assert rig.engine.blocks.num_free == 64


async def test_under_pressure_lanes_park_and_go_on_exactly_where_they_were():
    """Four replies of which the pool can hold two: all end, each as if alone."""
    parks = []
    rig = EngineRig(fake_facts(num_blocks=16), observer=SeatingObserver(parks))
    jobs = [
        make_job((n, n + 1, n + 2), max_tokens=28, draw=Draw(temperature=n % 2, seed=n))
        for n in range(1, 5)
    ]
    async with rig.running():
        replies = await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]
    assert [[type(e) for e in events].count(Prefilled) for events in replies] == [1] * 4
    assert len(parks) > len(jobs), "nobody had to park"


async def test_under_pressure_no_job_is_parked_over_and_over():
    """A pool for one whole reply and a little: who comes back has all that it can ever need."""
    seatings = []
    rig = EngineRig(fake_facts(num_blocks=10), observer=SeatingObserver(seatings))
    jobs = [make_job((n, n + 1, n + 2), max_tokens=28) for n in range(6)]
    async with rig.running():
        await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
    assert 6 < len(seatings) < 12


async def test_a_job_that_is_cancelled_while_parked_ends_once_and_leaves_nothing():
    rig = EngineRig(fake_facts(num_blocks=16), is_manual=True)
    run = asyncio.ensure_future(rig.engine.run())
    streams = {
        stream.job_id: stream
        for stream in (rig.send(make_job((n,), max_tokens=30)) for n in range(1, 5))
    }
    for _ in range(60):
        await settle_loop(5)
        if len(rig.line) > 0:
            break
        rig.ranks.let_step_back()
    parked = streams.pop(rig.line.head().job.job_id)
    parked.cancel()
    await settle_loop()
    assert isinstance(ending([event async for event in parked]).error, Cancelled)
    rig.inbox.put(Drain())
    for _ in range(200):
        rig.ranks.let_step_back()
    await run
    for stream in streams.values():
        assert len(token_ids([event async for event in stream])) == 30
    rig.check_all_free()


async def test_the_oldest_job_is_never_parked_so_there_is_no_livelock():
    """A pool that holds one whole job, and lanes for four: they end in order of arrival."""
    rig = EngineRig(fake_facts(num_blocks=8))
    jobs = [make_job((n,), max_tokens=31) for n in range(1, 5)]
    ended = []

    async def client(job):
        events = await read_all(rig.send(job))
        ended.append(job.job_id)
        return events

    async with rig.running():
        replies = await asyncio.gather(*(client(job) for job in jobs))
    assert ended == [job.job_id for job in jobs]
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]


class SeatingObserver(NoObserver):
    """Notes who sits down, and so who does it again."""

    def __init__(self, seatings):
        self._seatings = seatings

    def job_seated(self, job_id, lane_id, num_cached_tokens):
        self._seatings.append(job_id)
