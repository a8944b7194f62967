"""What is read off a running engine, at every moment of a run."""

import asyncio

from lanehost.engine.inbox import Drain
from lanehost.job import Priority
from lanehost.lanes.lane import LaneState
from tests.support.fake_engine import settle_loop
from tests.support.fake_ranks import fake_facts
from tests.support.jobs import make_job, read_all
from tests.support.metered import MeteredRig


def rooms_of(rig):
    """Return what the line and the engine are, in the words of the page."""
    engine, cache = rig.engine, rig.engine.cache
    states = {state.value: sum(lane.state is state for lane in engine.lanes) for state in LaneState}
    return {
        ("lanehost_tokens_waiting",): rig.line.num_tokens,
        ("lanehost_requests_open",): engine.num_open_jobs,
        **{("lanehost_lanes", state): num for state, num in states.items()},
        ("lanehost_lanes", "free"): engine.lanes.num_free,
        ("lanehost_kv_free_blocks",): engine.blocks.num_free,
        ("lanehost_kv_kept_blocks",): cache.num_kept_blocks,
        ("lanehost_cache_entries",): cache.num_entries,
        ("lanehost_cache_entries_kept_total",): cache.counters.kept,
        ("lanehost_cache_entries_refreshed_total",): cache.counters.refreshed,
        ("lanehost_cache_entries_evicted_total",): cache.counters.evicted,
    }


async def test_at_every_step_of_a_run_under_pressure_the_page_is_what_the_rooms_are():
    rig = MeteredRig(fake_facts(num_lanes=3, num_blocks=16), is_manual=True)
    run = asyncio.ensure_future(rig.engine.run())
    streams = [rig.send(make_job((n, n + 1, n + 2), max_tokens=28)) for n in range(1, 7)]
    num_waiting = []
    while not all(stream.is_ended for stream in streams):
        await rig.step()
        values, rooms = rig.values(), rooms_of(rig)
        assert {key: values[key] for key in rooms} == rooms
        num_waiting.append(len(rig.line))
        waiting = sum(num for key, num in values.items() if key[0] == "lanehost_requests_waiting")
        assert waiting == num_waiting[-1]
    assert max(num_waiting) > 2
    assert values["lanehost_jobs_parked_total",] > 0
    assert values["lanehost_cache_entries_evicted_total",] > 0
    rig.inbox.put(Drain())
    await rig.step()
    await run
    assert rig.value("kv_free_blocks") + rig.value("kv_kept_blocks") == rig.value("kv_blocks")


async def test_wait_age_rises_while_somebody_waits_and_falls_when_the_lane_is_theirs():
    rig = MeteredRig(fake_facts(num_lanes=1), is_manual=True)
    run = asyncio.ensure_future(rig.engine.run())
    rig.clock.now_s = 0.0  # when the jobs of tests arrive
    first, second = rig.send(make_job(max_tokens=1)), rig.send(make_job(max_tokens=1))
    await settle_loop()
    seen = [rig.value("wait_age_seconds", "foreground", "")]
    for _ in range(2):
        rig.clock.now_s += 5
        seen.append(rig.value("wait_age_seconds", "foreground", ""))
    assert seen == [0, 5, 10]
    while not first.is_ended:
        await rig.step()
    assert not second.is_ended
    assert rig.value("wait_age_seconds", "foreground", "") == 0
    rig.inbox.put(Drain())
    while not second.is_ended:
        await rig.step()
    await rig.step()
    await run


async def test_step_age_rises_while_the_ranks_are_silent():
    rig = MeteredRig(is_manual=True)
    run = asyncio.ensure_future(rig.engine.run())
    stream = rig.send(make_job(max_tokens=1))
    await settle_loop()
    rig.clock.now_s += 7
    assert rig.value("step_age_seconds") == 7
    rig.inbox.put(Drain())
    while not stream.is_ended:
        await rig.step()
    await rig.step()
    await run
    assert rig.value("step_age_seconds") == 0


def test_blocks_are_told_in_bytes_as_the_ranks_said():
    facts = fake_facts(num_blocks=10)
    rig = MeteredRig(facts)
    assert rig.value("kv_bytes") == 0
    object.__setattr__(facts, "kv_bytes_per_block", 1000)
    taken = rig.engine.blocks.take(3)
    rig.engine.cache.keep("", tuple(range(8)), taken)
    assert rig.value("kv_bytes") == 10_000
    assert rig.value("kv_free_bytes") == 7_000
    assert rig.value("kv_kept_bytes") == 2_000


def test_kept_blocks_are_told_by_what_holds_them():
    rig = MeteredRig(fake_facts(num_blocks=10))
    cache, blocks = rig.engine.cache, rig.engine.blocks
    taken = blocks.take(3)
    cache.keep("", tuple(range(12)), taken)
    blocks.give_back(taken)
    borrow = cache.borrow("", tuple(range(9)))
    assert (rig.value("kv_borrowed_blocks"), rig.value("kv_dead_blocks")) == (3, 0)
    cache.clear()
    assert (rig.value("kv_dead_blocks"), rig.value("cache_entries")) == (3, 0)
    cache.report(borrow)
    assert rig.value("kv_dead_blocks") == rig.value("kv_kept_blocks") == 0


def test_the_path_that_runs_is_told():
    rig = MeteredRig(max_drafts=3)
    labels = ("none", "fake", "fake", "3", "on", "fake", "1")  # in the order of their names
    assert rig.value("path_info", *labels) == 1
    assert rig.value("rank_group_epoch") == 1


async def test_an_observer_that_failed_shows():
    class Faulty:
        def __getattr__(self, name):
            raise RuntimeError("broken on purpose")

    rig = MeteredRig(others=(Faulty(),))
    assert rig.value("observers_failed") == 0
    async with rig.running():
        await read_all(rig.send(make_job()))
    assert rig.value("observers_failed") == 1
    assert rig.value("requests_ended_total", "length") == 1


def test_waiting_is_told_for_each_priority_and_scope_from_the_start():
    rig = MeteredRig(scopes=("a", "b"))
    waiting = {key[1:] for key in rig.values() if key[0] == "lanehost_requests_waiting"}
    assert waiting == {(one.value, scope) for one in Priority for scope in "ab"}
