"""No reply is lost when the rank group is: the engine over fakes, epoch after epoch (ADR 20)."""

import asyncio

import pytest
import structlog

from lanehost.engine.inbox import Cancel, CancelCause, Drain, StepDone, Stop
from lanehost.engine.observer import NoObserver
from lanehost.errors import (
    Cancelled,
    DeadlinePassed,
    Draining,
    PoisonedRequest,
    RankGroupLost,
)
from lanehost.job import FinishReason, Priority, StopParams
from ranks.plan import Draw, StepResult
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_ranks import LostWhen, fake_facts
from tests.support.fake_target import solo_continuation
from tests.support.jobs import ending, make_job, read_all, text_of, token_ids

MANY = 99
KILLER = 13


def solo(job, vocab_size=251):
    return solo_continuation(job.prompt_ids, job.draw, job.max_tokens, vocab_size)


def lost_at(steps, when=LostWhen.AT_ONCE):
    """Lose the group at these steps of all that are planned, over all epochs."""
    left = set(steps)
    seen = []

    def loses(plan):
        seen.append(plan)
        return when if len(seen) in left else None

    return loses


def kills(ranks_of, seed=KILLER, *, from_position=0, when=LostWhen.AT_ONCE):
    """Lose the group by each step with a row of `seed` at this position or beyond."""

    def loses(plan):
        ranks = ranks_of()
        rows = {chunk.lane_id: chunk.start + len(chunk.token_ids) for chunk in plan.chunks}
        for lane_id in plan.decodes:
            rows[lane_id] = ranks._lanes[lane_id].num_written + 1
        draws = {lane_id: lane.draw for lane_id, lane in ranks._lanes.items()}
        draws |= {join.lane_id: join.draw for join in plan.joins}
        hit = any(draws[at].seed == seed and end > from_position for at, end in rows.items())
        return when if hit else None

    return loses


class Notes(NoObserver):
    def __init__(self):
        self.notes = []

    def job_seated(self, job_id, lane_id, num_cached_tokens):
        self.notes.append(("seated", job_id))

    def group_lost(self, lost):
        self.notes.append(("lost", lost.epoch))

    def job_carried(self, job_id):
        self.notes.append(("carried", job_id))

    def group_formed(self, epoch):
        self.notes.append(("formed", epoch))

    def job_ended(self, job_id, event, token_ids):
        self.notes.append(("ended", job_id))

    def of(self, what):
        return [name for note, name in self.notes if note == what]


def some_jobs():
    """Greedy and seeded, prompts in one chunk and in several, one warm, one in the background."""
    return [
        make_job((1, 2, 3), max_tokens=12),
        make_job(tuple(range(30)), max_tokens=9, draw=Draw(temperature=0.7, seed=3)),
        make_job((1, 2, 1, 2, 1), max_tokens=15),
        make_job(tuple(range(21)), max_tokens=0),
        make_job((4, 4), max_tokens=7, priority=Priority.BACKGROUND),
        make_job((1, 2, 3, 9), max_tokens=5, draw=Draw(temperature=0.7, seed=8)),
    ]


@pytest.mark.parametrize("prompt_cache", [True, False])
@pytest.mark.parametrize("max_drafts", [0, 4])
@pytest.mark.parametrize("when", LostWhen)
async def test_replies_are_those_of_the_undisturbed_run_wherever_the_group_is_lost(
    when, max_drafts, prompt_cache
):
    for at in range(1, 30):
        rig = EngineRig(
            fake_facts(num_lanes=3, vocab_size=3),
            num_epochs=MANY,
            max_drafts=max_drafts,
            prompt_cache=prompt_cache,
        )
        rig.ranks.loses = lost_at({at, at + 3}, when)
        jobs = some_jobs()
        async with rig.running():
            replies = await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
        assert [token_ids(events) for events in replies] == [solo(job, 3) for job in jobs]
        assert all(ending(events).reason is FinishReason.LENGTH for events in replies)


async def test_a_reply_goes_on_over_any_number_of_losses():
    rig = EngineRig(fake_facts(max_step_tokens=200), num_epochs=MANY)
    # Each loss has finished steps behind it: kills from outside, no poison.
    rig.ranks.loses = lambda plan: LostWhen.BEHIND if plan.step_id == 3 else None
    jobs = [make_job((n, n + 1, n + 2), max_tokens=25) for n in range(3)]
    async with rig.running():
        replies = await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
    assert len(rig.epochs.all) > 12
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]


async def test_each_epoch_begins_at_step_1_with_nothing_kept():
    rig = EngineRig(num_epochs=2)
    rig.ranks.lost_at_step = 5
    job = make_job(tuple(range(9)), max_tokens=8)
    async with rig.running():
        events = await read_all(rig.send(job))
    first = rig.epochs.last.plans[0]
    assert (first.step_id, first.follows, first.epoch) == (1, 0, 2)
    assert [join.num_cached_tokens for join in first.joins] == [0]
    assert first.leaves == ()
    assert first.chunks[0].token_ids[:9] == job.prompt_ids
    assert len(first.chunks[0].token_ids) > 9
    assert token_ids(events) == solo(job)


async def test_the_jobs_of_lanes_go_first_in_the_order_in_which_they_sat():
    notes = Notes()
    rig = EngineRig(fake_facts(num_lanes=2), num_epochs=2, is_manual=True, observer=notes)
    lengths = {"a": 2, "b": 9, "c": 9, "d": 9}
    jobs = [make_job(job_id=name, max_tokens=most) for name, most in lengths.items()]
    async with rig.running():
        streams = [rig.send(job) for job in jobs]
        while notes.of("seated") != ["a", "b", "c"]:
            await settle_loop()
            if rig.ranks._outcomes:
                rig.ranks.let_step_back()
                await settle_loop()
        # "c" has lane 0, and sat down behind "b" in lane 1.
        rig.ranks.lose()
        await settle_loop()
        assert notes.of("carried") == ["b", "c"]
        assert notes.of("seated")[3:] == ["b", "c"]
        await settle_loop()
        while rig.engine.num_open_jobs or rig.epochs.last._outcomes:
            if rig.epochs.last._outcomes:
                rig.epochs.last.let_step_back()
            await settle_loop()
        replies = [[event async for event in stream] for stream in streams]
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]


async def recovering(rig, *jobs):
    """Run jobs until the group is lost, and stop between two epochs."""
    rig.epochs.is_held = True
    run = asyncio.ensure_future(rig.engine.run())
    streams = [rig.send(job) for job in jobs]
    await settle_loop()
    for _ in range(3 if jobs else 0):
        rig.ranks.let_step_back()
        await settle_loop()
    rig.ranks.lose()
    await settle_loop()
    return run, streams


async def go_on(rig, run):
    rig.epochs.release()
    rig.inbox.put(Drain())
    while not run.done():
        if rig.epochs.last._outcomes:
            rig.epochs.last.let_step_back()
        await settle_loop()
    rig.check_all_free()


async def test_between_two_epochs_requests_arrive_and_leave():
    rig = EngineRig(num_epochs=2, is_manual=True)
    jobs = [make_job(max_tokens=9) for _ in range(3)]
    run, (leaves, late, stays) = await recovering(rig, *jobs)
    assert rig.engine.lanes.num_free == rig.engine.lanes.num_lanes
    assert rig.engine.blocks.num_free == rig.engine.blocks.num_blocks
    assert len(rig.line) == 3
    rig.inbox.put(Cancel(jobs[0].job_id, CancelCause.CLIENT))
    rig.inbox.put(Cancel(jobs[1].job_id, CancelCause.DEADLINE))
    new = make_job((7, 7), max_tokens=5)
    stream = rig.send(new)
    await settle_loop()
    assert len(rig.line) == 2
    await go_on(rig, run)
    assert isinstance(ending([e async for e in leaves]).error, Cancelled)
    assert isinstance(ending([e async for e in late]).error, DeadlinePassed)
    assert token_ids([e async for e in stays]) == solo(jobs[2])
    assert token_ids([e async for e in stream]) == solo(new)


async def test_a_drain_between_two_epochs_waits_for_the_next():
    rig = EngineRig(num_epochs=2, is_manual=True)
    job = make_job(max_tokens=9)
    run, (stream,) = await recovering(rig, job)
    rig.inbox.put(Drain())
    await settle_loop()
    assert not run.done()
    await go_on(rig, run)
    assert token_ids([e async for e in stream]) == solo(job)


async def test_a_drain_with_nothing_open_waits_for_no_epoch():
    rig = EngineRig(num_epochs=2, is_manual=True)
    run, _ = await recovering(rig)
    rig.inbox.put(Drain())
    await asyncio.wait_for(run, 5)


async def test_a_stop_between_two_epochs_ends_all_at_once():
    rig = EngineRig(num_epochs=2, is_manual=True)
    run, (stream,) = await recovering(rig, make_job(max_tokens=9))
    rig.inbox.put(Stop(Draining("too late")))
    await asyncio.wait_for(run, 5)
    assert isinstance(ending([e async for e in stream]).error, Draining)


async def test_ranks_that_are_given_up_end_every_open_job():
    rig = EngineRig(num_epochs=2, is_manual=True)
    run, (stream,) = await recovering(rig, make_job(max_tokens=9))
    rig.epochs.num_epochs = 1
    rig.epochs.release()
    with pytest.raises(RankGroupLost, match="given up"):
        await run
    assert isinstance(ending([e async for e in stream]).error, RankGroupLost)


async def test_a_result_of_the_old_epoch_that_comes_late_is_ignored():
    rig = EngineRig(num_epochs=2, is_manual=True)
    job = make_job(max_tokens=9)
    run, (stream,) = await recovering(rig, job)
    late = StepResult(step_id=4, epoch=1, drawn={0: 77}, failures={}, digest=b"")
    rig.inbox.put(StepDone(late))
    await go_on(rig, run)
    assert token_ids([e async for e in stream]) == solo(job)


async def test_ranks_out_of_step_end_the_epoch_and_no_reply():
    rig = EngineRig(num_epochs=2)
    rig.ranks.refused_at_step = 4
    jobs = [make_job(tuple(range(2 + n)), max_tokens=9) for n in range(3)]
    async with rig.running():
        replies = await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
    assert rig.ranks.is_lost
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]


async def test_stop_strings_hold_over_a_loss():
    job = make_job((5, 6, 7), max_tokens=12)
    reply = solo(job)
    stop = StopParams(strings=(f"w{reply[3]} w{reply[4]}",))
    for at in range(1, 9):
        rig = EngineRig(num_epochs=2)
        rig.ranks.loses = lost_at({at}, LostWhen.BEHIND)
        async with rig.running():
            events = await read_all(rig.send(job, stop=stop))
        assert text_of(events) == "".join(f" w{token}" for token in reply[:3]) + " "
        assert ending(events).matched == stop.strings[0]


@pytest.mark.parametrize("from_position", [0, 6])
async def test_a_poisoned_request_ends_alone_and_the_others_go_on(from_position):
    rig = EngineRig(num_epochs=MANY)
    bad = make_job((9, 8, 7, 6), max_tokens=9, draw=Draw(temperature=0.5, seed=KILLER))
    good = [make_job(tuple(range(3 + n)), max_tokens=12) for n in range(5)]
    rig.ranks.loses = kills(lambda: rig.epochs.last, from_position=from_position)
    async with rig.running():
        bad_events, *replies = await asyncio.gather(
            read_all(rig.send(bad)), *(read_all(rig.send(job)) for job in good)
        )
    assert isinstance(ending(bad_events).error, PoisonedRequest)
    got = token_ids(bad_events)
    assert got == solo(bad)[: len(got)]
    assert [token_ids(events) for events in replies] == [solo(job) for job in good]
    # At last it was alone.
    last = rig.epochs.all[-2].plans[-1]
    assert len(last.chunks) + len(last.decodes) == 1
    if from_position == 0:
        assert len(rig.epochs.all) == 4


async def test_several_poisoned_requests_end_each_alone():
    rig = EngineRig(num_epochs=MANY)
    seeds = (KILLER, KILLER + 1)
    bad = [make_job((9, 8), max_tokens=9, draw=Draw(temperature=0.5, seed=s)) for s in seeds]
    good = [make_job(tuple(range(3 + n)), max_tokens=6) for n in range(3)]
    rules = [kills(lambda: rig.epochs.last, seed) for seed in seeds]
    rig.ranks.loses = lambda plan: next((w for rule in rules if (w := rule(plan))), None)
    async with rig.running():
        replies = await asyncio.gather(*(read_all(rig.send(job)) for job in (*bad, *good)))
    assert all(isinstance(ending(events).error, PoisonedRequest) for events in replies[:2])
    assert [token_ids(events) for events in replies[2:]] == [solo(job) for job in good]


async def test_no_step_of_another_is_in_flight_with_one_of_a_suspect():
    rig = EngineRig(fake_facts(num_lanes=5), num_epochs=MANY)
    jobs = [make_job((n, n, n), max_tokens=9) for n in range(5)]
    # Two losses before anybody gets anywhere: all are suspects, and none is guilty.
    rig.ranks.loses = lost_at({1, 2})
    shared, alone = [], []

    def note(plan):
        plans = [plan, *rig.engine._flight._plans]
        rows = [lane for one in plans for lane in (*(c.lane_id for c in one.chunks), *one.decodes)]
        if any(rig.engine.lanes[lane].is_suspect for lane in rows):
            (shared if len(set(rows)) > 1 else alone).append(plan)

    rig.ranks.on_plan = note
    async with rig.running():
        replies = await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
    assert [token_ids(events) for events in replies] == [solo(job) for job in jobs]
    assert len(rig.epochs.all) == 3
    assert [plan for plan in shared if plan.epoch == 3] == []
    # A turn each, and then all go on together.
    assert len(alone) == 5
    assert max(len(plan.decodes) for plan in rig.epochs.last.plans) == 5


async def test_whoever_gets_further_is_cleared():
    rig = EngineRig(fake_facts(max_step_tokens=40), num_epochs=MANY)
    job = make_job((1, 2, 3), max_tokens=20)
    rig.ranks.loses = lambda plan: LostWhen.BEHIND if plan.step_id == 2 else None
    async with rig.running():
        events = await read_all(rig.send(job))
    assert token_ids(events) == solo(job)
    assert len(rig.epochs.all) > 15


async def test_ranks_that_are_lost_while_idle_condemn_nobody():
    rig = EngineRig(num_epochs=MANY)
    async with rig.running():
        for _ in range(5):
            await settle_loop()
            rig.epochs.last.lose()
            await settle_loop()
        job = make_job(max_tokens=5)
        assert token_ids(await read_all(rig.send(job))) == solo(job)
    assert rig.engine.facts.epoch == 6


async def test_a_loss_is_told_before_what_follows_from_it():
    notes = Notes()
    rig = EngineRig(num_epochs=2, is_manual=True, observer=notes)
    job = make_job(job_id="a", max_tokens=9)
    with structlog.testing.capture_logs() as logs:
        run, _ = await recovering(rig, job)
        assert notes.notes == [("seated", "a"), ("lost", 1), ("carried", "a")]
        await go_on(rig, run)
    assert notes.notes[3:] == [("formed", 2), ("seated", "a"), ("ended", "a")]
    names = [log["event"] for log in logs]
    assert names == [
        "job_started",
        "jobs_carried",
        "engine_resumed",
        "job_resumed",
        "job_ended",
        "engine_idle",
    ]
    assert logs[1]["job_ids"] == ["a"]
