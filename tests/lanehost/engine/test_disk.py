"""The disk tier in the whole engine, over the fake ranks."""

import asyncio

import pytest

from lanehost.disk_cache.interface import AdoptFile, CheckFile, FileReason, SaveFile
from lanehost.engine import disk as disk_module
from lanehost.engine.inbox import Cancel, CancelCause, Drain
from lanehost.job import DiskUse, Failed, Finished
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_files import FakeDisk
from tests.support.fake_ranks import fake_facts
from tests.support.fake_target import solo_continuation
from tests.support.jobs import ending, make_job, token_ids

PROMPT = tuple(range(1, 22))


async def reply_of(rig, job):
    """Run a job; sees that its reply is the one that it has alone."""
    events = [event async for event in rig.send(job)]
    assert isinstance(ending(events), Finished)
    assert token_ids(events) == solo_continuation(job.prompt_ids, job.draw, job.max_tokens)
    return ending(events).usage


async def saved_disk(*jobs, **rig_args):
    """A disk with what these jobs left, of a master that has ended."""
    disk = FakeDisk()
    rig = EngineRig(disk=disk, **rig_args)
    async with rig.running():
        for job in jobs or (make_job(PROMPT, max_tokens=3),):
            await reply_of(rig, job)
    return disk


async def test_a_prompt_hits_after_a_restart_and_has_the_same_reply():
    disk = await saved_disk()
    rig = EngineRig(disk=disk)
    async with rig.running():
        usage = await reply_of(rig, make_job(PROMPT, max_tokens=3))
    assert (usage.cached_tokens, usage.disk_cached_tokens) == (20, 20)
    assert rig.disk.tier.counters.hits == 1


async def test_the_next_turn_of_a_conversation_prefills_only_itself():
    first = make_job(PROMPT, max_tokens=8)
    disk = await saved_disk(first)
    turn = (*PROMPT, *solo_continuation(PROMPT, first.draw, 8), 77, 78, 79)
    rig = EngineRig(disk=disk)
    async with rig.running():
        usage = await reply_of(rig, make_job(turn, max_tokens=3))
    assert usage.disk_cached_tokens == 28


async def test_a_hit_in_memory_is_none_on_disk():
    disk = await saved_disk()
    rig = EngineRig(disk=disk)
    async with rig.running():
        await reply_of(rig, make_job(PROMPT, max_tokens=3))
        usage = await reply_of(rig, make_job(PROMPT, max_tokens=3))
    assert (usage.cached_tokens, usage.disk_cached_tokens) == (20, 0)


async def test_what_memory_has_is_not_counted_to_the_disk():
    rig = EngineRig(disk=FakeDisk(), facts=fake_facts(num_blocks=16))
    async with rig.running():
        await reply_of(rig, make_job(PROMPT, max_tokens=3))
        rig.engine.cache.clear()
        await reply_of(rig, make_job(PROMPT[:9], max_tokens=1, disk_use=DiskUse.OFF))
        usage = await reply_of(rig, make_job(PROMPT, max_tokens=3))
    assert (usage.cached_tokens, usage.disk_cached_tokens) == (20, 12)


async def test_another_scope_misses():
    disk = await saved_disk(make_job(PROMPT, max_tokens=3, scope="a"))
    rig = EngineRig(disk=disk)
    async with rig.running():
        usage = await reply_of(rig, make_job(PROMPT, max_tokens=3, scope="b"))
    assert usage.cached_tokens == 0


async def test_an_entry_that_is_shared_in_its_first_half_misses():
    disk = await saved_disk()
    rig = EngineRig(disk=disk)
    async with rig.running():
        usage = await reply_of(rig, make_job((*PROMPT[:12], 99, *PROMPT[12:]), max_tokens=3))
    assert usage.cached_tokens == 0


async def test_chat_boundaries_are_saved_and_hit():
    disk = await saved_disk(make_job(PROMPT, max_tokens=3, marks=(17,)))
    rig = EngineRig(disk=disk)
    async with rig.running():
        usage = await reply_of(rig, make_job((*PROMPT[:17], 99, 98, 97), max_tokens=3))
    assert usage.disk_cached_tokens == 16


@pytest.mark.parametrize(
    ("use", "num_saved"), [(DiskUse.OFF, 0), (DiskUse.READ, 0), (DiskUse.DEFAULT, 1)]
)
async def test_a_request_says_what_is_saved_of_it(use, num_saved):
    disk = await saved_disk(make_job(PROMPT, max_tokens=3, disk_use=use))
    assert len(disk.files) == num_saved


async def test_a_request_may_be_saved_whatever_the_mode():
    disk = await saved_disk(make_job(PROMPT, max_tokens=3, disk_use=DiskUse.FULL), disk_mode="off")
    assert len(disk.files) == 1


@pytest.mark.parametrize(
    ("use", "num_hit"), [(DiskUse.OFF, 0), (DiskUse.READ, 20), (DiskUse.FULL, 20)]
)
async def test_a_request_says_whether_it_is_given_what_is_there(use, num_hit):
    disk = await saved_disk()
    rig = EngineRig(disk=disk)
    async with rig.running():
        usage = await reply_of(rig, make_job(PROMPT, max_tokens=3, disk_use=use))
    assert usage.disk_cached_tokens == num_hit


async def test_auto_saves_what_a_second_request_shares():
    disk = await saved_disk(
        make_job(PROMPT, max_tokens=3),
        make_job((*PROMPT[:17], 99, 98), max_tokens=3),
        disk_mode="auto",
    )
    assert [len(rows) for _, rows in disk.files.values()] == [16]


@pytest.mark.parametrize("reason", [FileReason.CHECKSUM, FileReason.IO, FileReason.BUSY])
@pytest.mark.parametrize("phase", [CheckFile, AdoptFile])
async def test_any_fault_of_a_disk_is_a_cold_run(reason, phase):
    disk = await saved_disk()
    rig = EngineRig(disk=disk)
    rig.ranks.files.fault = lambda work: reason if isinstance(work, phase) else None
    async with rig.running():
        usage = await reply_of(rig, make_job(PROMPT, max_tokens=3))
    assert usage.cached_tokens == 0


async def test_no_space_stops_nobody():
    rig = EngineRig(disk=FakeDisk())
    rig.ranks.files.fault = lambda work: FileReason.NO_SPACE if isinstance(work, SaveFile) else None
    async with rig.running():
        for _ in range(3):
            await reply_of(rig, make_job(PROMPT, max_tokens=3))
    assert rig.disk.tier.counters.faults == {"no_space": 1}


async def test_a_disk_that_hangs_holds_a_job_up_for_a_bounded_time():
    disk = await saved_disk()
    rig = EngineRig(disk=disk)
    rig.ranks.files.turns = None
    async with rig.running():
        running = asyncio.create_task(reply_of(rig, make_job(PROMPT, max_tokens=3)))
        await settle_loop()
        assert not rig.ranks.plans
        rig.timers.run_out()
        usage = await running
        assert usage.cached_tokens == 0
        assert rig.disk.tier.counters.faults == {"late": 1}
        rig.ranks.files.turns = lambda: 0
        rig.ranks.files.let_all_back()


async def test_a_disk_that_hangs_while_it_fills_blocks_stops_no_reply():
    rig = EngineRig(disk=await saved_disk(), facts=fake_facts(num_blocks=16))
    rig.ranks.files.turns = None
    async with rig.running():
        first = asyncio.create_task(reply_of(rig, make_job(PROMPT, max_tokens=3)))
        await settle_loop()
        while rig.ranks.files.waiting and not isinstance(rig.ranks.files.waiting[0], AdoptFile):
            rig.ranks.files.let_one_back()
            await settle_loop()
        assert rig.disk.is_lending
        rig.timers.run_out()
        # Together they need more than what is left of the blocks, so one has to park.
        others = [
            asyncio.create_task(reply_of(rig, make_job(ids, max_tokens=24, scope="b")))
            for ids in (PROMPT[:4], PROMPT[4:8])
        ]
        await settle_loop(400)
        assert first.done()
        assert all(one.done() for one in others)
        assert rig.disk.is_late
        rig.ranks.files.turns = lambda: 0
        rig.ranks.files.let_all_back()
    assert not rig.disk.is_late


async def test_a_fetch_is_late_though_its_job_has_left():
    rig = EngineRig(disk=await saved_disk())
    rig.ranks.files.turns = None
    async with rig.running():
        job = make_job(PROMPT, max_tokens=3)
        stream = rig.send(job)
        await settle_loop()
        rig.inbox.put(Cancel(job.job_id, CancelCause.CLIENT))
        assert isinstance(ending([event async for event in stream]), Failed)
        while not isinstance(rig.ranks.files.waiting[0], AdoptFile):
            rig.ranks.files.let_one_back()
            await settle_loop()
        rig.timers.run_out()
        await settle_loop()
        assert (rig.disk.is_lending, rig.disk.is_late) == (False, True)
        rig.ranks.files.turns = lambda: 0
        rig.ranks.files.let_all_back()


async def test_a_fetch_of_an_epoch_that_is_over_makes_none_late():
    rig = EngineRig(disk=await saved_disk(), num_epochs=2)
    rig.ranks.files.turns = None
    async with rig.running():
        running = asyncio.create_task(reply_of(rig, make_job(PROMPT, max_tokens=3)))
        await settle_loop()
        before = list(rig.timers.waiting)
        assert before
        rig.ranks.lose()
        await settle_loop()
        for call in before:
            call()
        await settle_loop()
        assert not running.done()
        files = rig.epochs.all[1].files
        files.turns = lambda: 0
        files.let_all_back()
        assert (await running).disk_cached_tokens == 20


async def test_while_one_waits_for_the_disk_other_scopes_go_on():
    disk = await saved_disk(make_job(PROMPT, max_tokens=3, scope="a"))
    rig = EngineRig(disk=disk)
    rig.ranks.files.turns = None
    async with rig.running():
        waits = asyncio.create_task(reply_of(rig, make_job(PROMPT, max_tokens=3, scope="a")))
        await settle_loop()
        await reply_of(rig, make_job(PROMPT, max_tokens=3, scope="b"))
        assert not waits.done()
        rig.ranks.files.turns = lambda: 0
        rig.ranks.files.let_all_back()
        rig.ranks.files.let_all_back()
        assert (await waits).disk_cached_tokens == 20


async def test_one_that_leaves_while_it_waits_leaks_nothing():
    disk = await saved_disk()
    rig = EngineRig(disk=disk)
    rig.ranks.files.turns = lambda: 5
    async with rig.running():
        job = make_job(PROMPT, max_tokens=3)
        stream = rig.send(job)
        await settle_loop(3)
        rig.inbox.put(Cancel(job.job_id, CancelCause.CLIENT))
        events = [event async for event in stream]
        assert isinstance(ending(events), Failed)
        rig.timers.run_out()
        await settle_loop()


async def test_after_a_loss_the_prompt_is_not_computed_again():
    rig = EngineRig(disk=FakeDisk(), num_epochs=2)
    async with rig.running():
        await reply_of(rig, make_job(PROMPT, max_tokens=3))
        running = asyncio.create_task(reply_of(rig, make_job(PROMPT, max_tokens=30)))
        await settle_loop(12)
        rig.ranks.lose()
        await running
    chunks = [chunk for plan in rig.epochs.all[1].plans for chunk in plan.chunks]
    assert rig.disk.tier.counters.hits == 1
    assert sum(len(chunk.token_ids) for chunk in chunks) < len(PROMPT)


async def test_a_drain_waits_for_what_is_being_saved():
    rig = EngineRig(disk=FakeDisk())
    rig.ranks.files.turns = lambda: 50
    async with rig.running():
        await reply_of(rig, make_job(PROMPT, max_tokens=3))
    assert len(rig.ranks.files.disk.manifests) == 1


async def test_a_drain_does_not_wait_for_a_disk_from_which_nothing_comes_back():
    rig = EngineRig(disk=FakeDisk())
    rig.ranks.files.turns = None
    running = asyncio.create_task(rig.engine.run())
    await reply_of(rig, make_job(PROMPT, max_tokens=3))
    rig.inbox.put(Drain())
    rig.ranks.files.let_one_back()
    rig.timers.run_out()
    await settle_loop()
    # The sweep has come back meanwhile, so it is looked again.
    assert not rig.disk.is_quiet
    assert not running.done()
    rig.timers.run_out()
    await settle_loop()
    assert running.done()
    await running


async def test_saves_hold_a_quarter_of_the_blocks_at_most():
    rig = EngineRig(disk=FakeDisk(), facts=fake_facts(num_blocks=24))
    rig.ranks.files.turns = None
    async with rig.running():
        for first in (1, 51, 101):
            await reply_of(rig, make_job(tuple(range(first, first + 20)), max_tokens=1))
        assert rig.engine.cache.num_borrowed_blocks == 5
        rig.ranks.files.turns = lambda: 0
        while rig.ranks.files.waiting:
            rig.ranks.files.let_all_back()
            await settle_loop()
    assert rig.disk.tier.counters.dropped == {"memory": 2}


async def test_no_prefix_is_hashed_for_which_there_is_no_room(monkeypatch):
    hashed = []
    digest = disk_module.tokens_digest
    monkeypatch.setattr(
        disk_module, "tokens_digest", lambda ids: hashed.append(len(ids)) or digest(ids)
    )
    monkeypatch.setattr("lanehost.disk_cache.saves.MAX_WAITING_SAVES", 2)
    rig = EngineRig(disk=FakeDisk(), disk_mode="4", facts=fake_facts(num_blocks=64))
    rig.ranks.files.turns = None
    async with rig.running():
        await reply_of(rig, make_job(tuple(range(1, 42)), max_tokens=1))
        # One is with the ranks, two wait: the deepest of the seven.
        assert hashed == [40, 36, 32]
        assert rig.disk.tier.counters.dropped == {"queue_full": 4}
        rig.ranks.files.turns = lambda: 0
        while rig.ranks.files.waiting:
            rig.ranks.files.let_all_back()
            await settle_loop()


async def test_a_prefix_for_which_there_are_no_blocks_is_computed():
    disk = await saved_disk()
    rig = EngineRig(disk=disk, facts=fake_facts(num_blocks=10))
    async with rig.running():
        long = make_job(tuple(range(100, 117)), max_tokens=12, scope="b", disk_use=DiskUse.OFF)
        running = asyncio.create_task(reply_of(rig, long))
        await settle_loop(4)
        usage = await reply_of(rig, make_job(PROMPT, max_tokens=3))
        await running
    assert usage.cached_tokens == 0
    assert rig.disk.tier.counters.faults == {"no_blocks": 1}


async def test_while_a_disk_is_late_nobody_else_waits_for_it():
    first, second = make_job(PROMPT, max_tokens=3), make_job(tuple(range(50, 71)), max_tokens=3)
    rig = EngineRig(disk=await saved_disk(first, second))
    rig.ranks.files.turns = None
    async with rig.running():
        running = asyncio.create_task(reply_of(rig, make_job(PROMPT, max_tokens=3)))
        await settle_loop()
        rig.timers.run_out()
        await running
        usage = await reply_of(rig, make_job(second.prompt_ids, max_tokens=3))
        assert usage.cached_tokens == 0
        rig.ranks.files.turns = lambda: 0
        rig.ranks.files.let_all_back()
        await settle_loop(60)
        rig.engine.cache.clear()
        usage = await reply_of(rig, make_job(second.prompt_ids, max_tokens=3))
        assert usage.disk_cached_tokens == 20
