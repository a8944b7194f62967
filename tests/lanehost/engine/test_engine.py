import asyncio
import dataclasses

import pytest

from lanehost.engine.inbox import Cancel, CancelCause, Drain, GroupLost, Stop
from lanehost.errors import (
    Cancelled,
    DeadlinePassed,
    Draining,
    InternalFault,
    RankGroupLost,
    ReplyCorrupt,
)
from lanehost.job import Finished, FinishReason, Prefilled, StopParams, Tokens
from lanehost.lanes.lane import LaneState
from ranks.plan import Draw
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_ranks import FakeRanks, fake_facts
from tests.support.fake_target import solo_continuation
from tests.support.jobs import BrokenDetokenizer, ending, make_job, read_all, text_of, token_ids


def solo(job):
    return solo_continuation(job.prompt_ids, job.draw, job.max_tokens)


async def test_a_reply_equals_its_solo_continuation():
    rig = EngineRig()
    job = make_job((5, 6, 7), max_tokens=6)
    async with rig.running():
        events = await read_all(rig.send(job))
    assert token_ids(events) == solo(job)
    assert ending(events).reason is FinishReason.LENGTH


async def test_events_come_in_order_and_the_terminal_one_once_and_last():
    rig = EngineRig()
    async with rig.running():
        events = await read_all(rig.send(make_job(max_tokens=3)))
    assert [type(event) for event in events] == [Prefilled, Tokens, Tokens, Tokens, Finished]


async def test_more_jobs_than_lanes_all_end_and_equal_their_solo_runs():
    rig = EngineRig(fake_facts(num_lanes=3, num_blocks=12))
    jobs = [make_job(tuple(range(1, 2 + n % 9)), max_tokens=1 + n % 5) for n in range(20)]
    async with rig.running():
        replies = await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]


async def test_plan_n_plus_1_is_written_before_result_n_is_back():
    rig = EngineRig(is_manual=True)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(rig.engine.run())
        rig.send(make_job(max_tokens=4))
        await settle_loop()
        assert [plan.step_id for plan in rig.ranks.plans] == [1, 2]
        rig.ranks.let_step_back()
        await settle_loop()
        assert [plan.step_id for plan in rig.ranks.plans] == [1, 2, 3]
        run.cancel()


async def test_a_token_drawn_after_the_end_is_thrown_away():
    """The engine learns of a stop one step late; that late row must not be delivered."""
    rig = EngineRig()
    job = make_job((5, 6, 7), max_tokens=8)
    stop_id = solo(job)[2]
    async with rig.running():
        events = await read_all(rig.send(job, stop=StopParams(token_ids=(stop_id,))))
    assert token_ids(events) == solo(job)[:3]
    assert (ending(events).reason, ending(events).matched) == (FinishReason.STOP, stop_id)
    assert ending(events).usage.completion_tokens == 3


async def test_blocks_are_freed_when_the_step_in_flight_has_retired_and_not_before():
    rig = EngineRig(is_manual=True)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(rig.engine.run())
        stream = rig.send(make_job(max_tokens=8))
        await settle_loop()
        stream.cancel()
        await settle_loop()
        lane = rig.engine.lanes[0]
        assert lane.state is LaneState.DRAINING
        assert rig.engine.blocks.num_free < rig.engine.blocks.num_blocks
        rig.ranks.let_step_back()
        await settle_loop()
        assert lane.state is LaneState.DRAINING
        rig.ranks.let_step_back()
        await settle_loop()
        assert lane.state is LaneState.FREE
        assert rig.engine.blocks.num_free == rig.engine.blocks.num_blocks
        run.cancel()


async def test_the_reader_of_a_cancelled_job_is_told_at_once():
    rig = EngineRig(is_manual=True)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(rig.engine.run())
        stream = rig.send(make_job(max_tokens=8))
        await settle_loop()
        stream.cancel()
        events = [event async for event in stream]
        assert isinstance(ending(events).error, Cancelled)
        run.cancel()


async def test_cancel_is_idempotent_and_harmless_after_the_end_and_for_unknown_jobs():
    rig = EngineRig()
    job = make_job(max_tokens=2)
    async with rig.running():
        stream = rig.send(job)
        rig.inbox.put(Cancel("nobody", CancelCause.CLIENT))
        events = await read_all(stream)
        for _ in range(2):
            rig.inbox.put(Cancel(job.job_id, CancelCause.CLIENT))
            stream.cancel()
        await settle_loop()
    assert isinstance(ending(events), Finished)


async def test_a_job_cancelled_in_the_line_leaves_it():
    rig = EngineRig(fake_facts(num_lanes=1), is_manual=True)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(rig.engine.run())
        rig.send(make_job(max_tokens=8))
        waiting = rig.send(make_job())
        await settle_loop()
        assert len(rig.line) == 1
        waiting.cancel()
        await settle_loop()
        assert len(rig.line) == 0
        run.cancel()


@pytest.mark.parametrize("phase", ["waiting", "prefill", "decode"])
async def test_a_deadline_names_the_phase_in_which_it_passed(phase):
    rig = EngineRig(fake_facts(num_lanes=1), is_manual=True)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(rig.engine.run())
        if phase == "waiting":
            rig.send(make_job(max_tokens=8))
        job = make_job(max_tokens=8)
        stream = rig.send(job)
        await settle_loop()
        if phase == "decode":
            rig.ranks.let_step_back()
            await settle_loop()
        rig.inbox.put(Cancel(job.job_id, CancelCause.DEADLINE))
        events = [event async for event in stream]
        error = ending(events).error
        assert isinstance(error, DeadlinePassed)
        assert error.phase == phase
        run.cancel()


async def test_logits_that_are_not_numbers_fail_that_job_alone():
    rig = EngineRig()
    rig.ranks.nan_seed = 13
    good = [make_job((n, 2), max_tokens=5) for n in (1, 2, 3)]
    async with rig.running():
        bad, *replies = await asyncio.gather(
            read_all(rig.send(make_job(max_tokens=5, draw=Draw(seed=13)))),
            *(read_all(rig.send(job)) for job in good),
        )
    assert isinstance(ending(bad).error, ReplyCorrupt)
    assert [token_ids(events) for events in replies] == [solo(job) for job in good]


async def test_a_fault_in_one_reply_s_text_ends_that_job_alone():
    rig = EngineRig()
    good = make_job((9, 2), max_tokens=5)
    async with rig.running():
        bad, reply = await asyncio.gather(
            read_all(rig.send(make_job(), detokenizer=BrokenDetokenizer())),
            read_all(rig.send(good)),
        )
    assert isinstance(ending(bad).error, InternalFault)
    assert token_ids(reply) == solo(good)


async def test_stop_strings_cut_the_text_before_the_match():
    rig = EngineRig()
    job = make_job((5, 6, 7), max_tokens=8)
    first, second, *_ = solo(job)
    async with rig.running():
        events = await read_all(rig.send(job, stop=StopParams(strings=(f"{second}",))))
    assert text_of(events) == f" w{first} w"
    assert ending(events).matched == f"{second}"


async def test_eos_ends_a_reply():
    rig = EngineRig()
    job = make_job((5, 6, 7), max_tokens=8)
    eos = solo(job)[3]
    async with rig.running():
        events = await read_all(rig.send(job, eos_token_ids=frozenset({eos})))
    assert ending(events).reason is FinishReason.EOS
    assert token_ids(events) == solo(job)[:4]


@pytest.mark.parametrize("fault", ["lost", "refused"])
async def test_a_lost_group_ends_every_open_job_once_and_ends_the_engine(fault):
    rig = EngineRig(fake_facts(num_lanes=2))
    if fault == "lost":
        rig.ranks.lost_at_step = 3
    else:
        rig.ranks.refused_at_step = 3
    streams = [rig.send(make_job(max_tokens=9)) for _ in range(4)]
    with pytest.raises(RankGroupLost):
        await rig.engine.run()
    for stream in streams:
        assert isinstance(ending([e async for e in stream]).error, RankGroupLost)
    assert rig.engine.num_open_jobs == 0


async def test_a_group_lost_while_idle_ends_the_engine():
    rig = EngineRig()
    run = asyncio.ensure_future(rig.engine.run())
    await settle_loop()
    rig.ranks.lose()
    with pytest.raises(RankGroupLost):
        await run


async def test_stop_ends_open_jobs_with_its_error():
    rig = EngineRig(is_manual=True)
    stream = rig.send(make_job(max_tokens=9))
    run = asyncio.ensure_future(rig.engine.run())
    await settle_loop()
    rig.inbox.put(Stop(Draining("over")))
    await run
    assert isinstance(ending([e async for e in stream]).error, Draining)


async def test_drain_finishes_what_is_there_first():
    rig = EngineRig(fake_facts(num_lanes=1))
    jobs = [make_job(max_tokens=6) for _ in range(3)]
    streams = [rig.send(job) for job in jobs]
    rig.inbox.put(Drain())
    await rig.engine.run()
    for job, stream in zip(jobs, streams, strict=True):
        assert token_ids([e async for e in stream]) == solo(job)
    rig.check_all_free()


async def test_times_are_on_the_engine_s_clock():
    rig = EngineRig(is_manual=True)
    rig.clock.now_s = 3.0
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(rig.engine.run())
        stream = rig.send(make_job(max_tokens=2))
        await settle_loop()
        rig.clock.now_s = 5.0
        rig.ranks.let_step_back()
        await settle_loop()
        rig.clock.now_s = 9.0
        rig.ranks.let_step_back()
        timing = ending([e async for e in stream]).timing
        assert (timing.queue_s, timing.prefill_s, timing.decode_s) == (3.0, 2.0, 4.0)
        run.cancel()


async def test_at_idle_the_ranks_hold_no_lane():
    rig = EngineRig()
    async with rig.running():
        await read_all(rig.send(make_job()))
        await settle_loop()
        assert rig.ranks.num_lanes_held == 0


def test_repr_shows_lanes_blocks_and_line():
    assert "BlockPool 32/32 free" in repr(EngineRig().engine)


class BrokenRanks(FakeRanks):
    """At step 3 breaks an invariant: draws for a lane that is not there, or cannot answer."""

    def __init__(self, facts, where):
        super().__init__(facts)
        self._where = where

    async def next_outcome(self):
        outcome = await super().next_outcome()
        if outcome.step_id < 3:
            return outcome
        if self._where == "pump":
            raise LookupError("the pump broke")
        return dataclasses.replace(outcome, drawn={99: 1})


@pytest.mark.parametrize("where", ["loop", "pump"])
async def test_a_bug_of_ours_ends_every_job_with_a_record_id_and_is_raised(where):
    rig = EngineRig(wrap=lambda ranks: BrokenRanks(ranks.facts, where))
    streams = [rig.send(make_job(max_tokens=9)) for _ in range(3)]
    with pytest.raises(LookupError):
        await rig.engine.run()
    for stream in streams:
        error = ending([event async for event in stream]).error
        assert isinstance(error, InternalFault)
    assert len(rig.line) == 0


async def test_a_job_that_arrives_after_the_end_is_told_why():
    rig = EngineRig()
    rig.ranks.lost_at_step = 1
    rig.send(make_job())
    with pytest.raises(RankGroupLost):
        await rig.engine.run()
    late = rig.send(make_job())
    assert isinstance(ending([event async for event in late]).error, RankGroupLost)


async def test_a_job_that_arrives_with_the_loss_is_told_too():
    rig = EngineRig(is_manual=True)
    run = asyncio.ensure_future(rig.engine.run())
    rig.send(make_job())
    await settle_loop()
    rig.ranks.lose()
    rig.inbox.put(GroupLost(RankGroupLost("gone", epoch=1, rank=0)))
    late = rig.send(make_job())
    with pytest.raises(RankGroupLost):
        await run
    assert isinstance(ending([event async for event in late]).error, RankGroupLost)


class LostBehindOne(FakeRanks):
    """Takes one plan, and is lost at the next."""

    def submit(self, plan):
        if self.plans:
            self.plans.append(plan)
            self.lose()
            raise self._gone()
        super().submit(plan)


async def test_a_group_that_is_lost_at_a_plan_is_handed_no_other():
    ranks = LostBehindOne(fake_facts())
    rig = EngineRig(wrap=lambda _: ranks)
    rig.epochs.all = [ranks]
    stream = rig.send(make_job(max_tokens=9))
    with pytest.raises(RankGroupLost):
        await rig.engine.run()
    assert isinstance(ending([event async for event in stream]).error, RankGroupLost)
    assert len(ranks.plans) == 2


async def test_an_engine_that_is_cancelled_leaves_no_stream_open_and_nobody_in_the_line():
    rig = EngineRig(fake_facts(num_lanes=1), is_manual=True)
    run = asyncio.ensure_future(rig.engine.run())
    streams = [rig.send(make_job()), rig.send(make_job())]
    await settle_loop()
    assert len(rig.line) == 1
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    for stream in streams:
        assert isinstance(ending([event async for event in stream]).error, Draining)
    assert len(rig.line) == 0
