import asyncio

import pytest

from lanehost.engine.inbox import Inbox
from lanehost.engine.self_check import SelfCheck
from lanehost.errors import Draining, Overloaded
from lanehost.job import DiskUse, Priority
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_files import FakeDisk
from tests.support.fake_target import solo_continuation
from tests.support.jobs import make_job, read_all, token_ids

PROMPT = tuple(range(1, 22))


class Relay:
    """Implements `EngineObserver`: hands everything on to one that is made later."""

    def __init__(self):
        self.inner, self.jobs = None, []

    def job_arrived(self, job):
        self.jobs.append(job)
        self.inner.job_arrived(job)

    def __getattr__(self, name):
        return getattr(self.inner, name)


class CheckedRig(EngineRig):
    """An engine whose hits are checked; `jobs` are all that arrived."""

    def __init__(self, disk, *, every=1):
        relay = Relay()
        super().__init__(disk=disk, observer=relay)
        self.jobs = relay.jobs
        self.check = relay.inner = SelfCheck(
            every,
            self.disk,
            line=self.line,
            inbox=self.inbox,
            clock=self.clock,
            call_soon=lambda call: asyncio.get_running_loop().call_soon(call),
        )

    @property
    def counters(self):
        return self.disk.tier.counters


async def saved():
    disk = FakeDisk()
    rig = EngineRig(disk=disk)
    async with rig.running():
        await read_all(rig.send(make_job(PROMPT, max_tokens=3)))
    return disk


async def test_a_hit_is_computed_again_cold_and_in_the_background():
    rig = CheckedRig(await saved())
    async with rig.running():
        job = make_job(PROMPT, max_tokens=3)
        events = await read_all(rig.send(job))
        await settle_loop(60)
    assert token_ids(events) == solo_continuation(PROMPT, job.draw, 3)
    assert (rig.counters.checks, rig.counters.differences) == (1, 0)
    check = rig.jobs[1]
    assert (check.job_id, check.priority) == (f"{job.job_id}-check", Priority.BACKGROUND)
    assert (check.is_cold, check.disk_use) == (True, DiskUse.OFF)
    chunks = [chunk for plan in rig.ranks.plans for chunk in plan.chunks]
    assert sum(len(chunk.token_ids) for chunk in chunks) == 1 + len(PROMPT)


async def test_one_in_n_is_checked():
    disk = await saved()
    rig = CheckedRig(disk, every=2)
    async with rig.running():
        for _ in range(4):
            rig.engine.cache.clear()
            await read_all(rig.send(make_job(PROMPT, max_tokens=3)))
            await settle_loop(60)
    assert (rig.counters.hits, rig.counters.checks) == (4, 2)


async def test_what_did_not_hit_on_disk_is_not_checked():
    rig = CheckedRig(FakeDisk())
    async with rig.running():
        for _ in range(2):
            await read_all(rig.send(make_job(PROMPT, max_tokens=3)))
            await settle_loop(60)
    assert rig.counters.checks == 0


async def test_a_difference_is_counted_and_all_of_it_is_forgotten():
    disk = await saved()
    for name, (header, rows) in disk.files.items():
        disk.files[name] = (header, (rows[0] + 1, *rows[1:]))
    rig = CheckedRig(disk)
    async with rig.running():
        job = make_job(PROMPT, max_tokens=3)
        events = await read_all(rig.send(job))
        await settle_loop(60)
        assert token_ids(events) != solo_continuation(PROMPT, job.draw, 3)
        assert (rig.counters.checks, rig.counters.differences) == (1, 1)
        assert len(disk.aside) == 1
        again = await read_all(rig.send(make_job(PROMPT, max_tokens=3)))
        assert token_ids(again) == solo_continuation(PROMPT, job.draw, 3)


def fill(line):
    while True:
        line.promise()


async def test_a_full_line_has_no_check():
    rig = CheckedRig(await saved())
    calls = []
    rig.check._call_soon = calls.append
    async with rig.running():
        await read_all(rig.send(make_job(PROMPT, max_tokens=3)))
        with pytest.raises(Overloaded):
            fill(rig.line)
        calls.pop()()
        rig.engine.cache.clear()
        rig.line.withdraw()
        await read_all(rig.send(make_job(PROMPT, max_tokens=3)))
        assert len(calls) == 1, "the next hit is checked again"
    assert rig.counters.checks == 0


async def test_when_the_engine_has_ended_no_check_begins():
    rig = CheckedRig(await saved())
    calls = []
    rig.check._call_soon = calls.append
    async with rig.running():
        await read_all(rig.send(make_job(PROMPT, max_tokens=3)))
    (begin,) = calls
    assert rig.inbox.is_closed
    begin()
    assert len(rig.line) == 0


async def test_an_inbox_is_closed_once_it_takes_no_more():
    inbox = Inbox()
    assert not inbox.is_closed
    inbox.close(Draining("the end"))
    assert inbox.is_closed
