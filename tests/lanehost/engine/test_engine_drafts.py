"""Drafts change how fast a reply comes, and nothing else of it."""

import asyncio
import dataclasses

import pytest

from lanehost.errors import ReplyCorrupt
from lanehost.job import FinishReason, StopParams
from ranks.plan import Draw
from tests.support import fake_ranks, fake_target
from tests.support.fake_engine import EngineRig
from tests.support.fake_ranks import FakeRanks, fake_facts
from tests.support.fake_target import solo_continuation
from tests.support.jobs import ending, make_job, read_all, token_ids

CYCLE = (7, 8, 9, 10, 11)


def cyclic_token(history, draw, vocab_size=0):
    """A target that repeats itself: what prompt look-up is good at."""
    del draw, vocab_size
    return CYCLE[(CYCLE.index(history[-1]) + 1) % len(CYCLE)] if history[-1] in CYCLE else 7


@pytest.fixture
def _cyclic(monkeypatch):
    for one in (fake_ranks, fake_target):
        monkeypatch.setattr(one, "next_token", cyclic_token)


async def replies_of(jobs, *, max_drafts, **values):
    rig = EngineRig(fake_facts(num_blocks=64), max_drafts=max_drafts)
    async with rig.running():
        replies = await asyncio.gather(*(read_all(rig.send(job, **values)) for job in jobs))
    return rig, replies


def solo(job):
    return solo_continuation(job.prompt_ids, job.draw, job.max_tokens)


@pytest.mark.usefixtures("_cyclic")
async def test_a_reply_that_repeats_itself_takes_fewer_steps_and_is_the_same():
    jobs = [make_job((1, 2), max_tokens=40)]
    plain, plain_replies = await replies_of(jobs, max_drafts=0)
    drafted, drafted_replies = await replies_of(jobs, max_drafts=8)
    assert token_ids(drafted_replies[0]) == token_ids(plain_replies[0]) == solo(jobs[0])
    assert ending(drafted_replies[0]).usage.completion_tokens == 40
    assert len(drafted.ranks.plans) < len(plain.ranks.plans) / 2


@pytest.mark.usefixtures("_cyclic")
async def test_a_stop_in_the_middle_of_a_right_guess_ends_the_reply_there():
    job = make_job((1, 2), max_tokens=40)
    _, (events,) = await replies_of(
        [job], max_drafts=8, stop=StopParams(strings=("w9 w10 w11 w7",))
    )
    _, (plain,) = await replies_of([job], max_drafts=0, stop=StopParams(strings=("w9 w10 w11 w7",)))
    assert token_ids(events) == token_ids(plain)
    assert ending(events).reason is FinishReason.STOP


@pytest.mark.usefixtures("_cyclic")
async def test_with_many_lanes_decoding_nobody_guesses():
    facts = dataclasses.replace(fake_facts(num_blocks=128, max_step_tokens=64), num_lanes=16)
    rig = EngineRig(facts, max_drafts=8)
    jobs = [make_job((1, n), max_tokens=20) for n in range(16)]
    async with rig.running():
        await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
    full = [plan for plan in rig.ranks.plans if len(plan.decodes) >= 16]
    assert full
    assert all(not plan.drafts for plan in full)


@pytest.mark.parametrize("vocab_size", [2, 3, 5])
async def test_wrong_and_half_right_guesses_change_nothing(vocab_size):
    """A target of few tokens has said everything before, and goes on otherwise."""
    rig = EngineRig(fake_facts(num_blocks=64, vocab_size=vocab_size), max_drafts=8)
    jobs = [
        make_job((0, 1) * 4, max_tokens=30, draw=Draw(temperature=n % 2, seed=n)) for n in range(4)
    ]
    async with rig.running():
        replies = await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
    assert [token_ids(events) for events in replies] == [
        solo_continuation(job.prompt_ids, job.draw, job.max_tokens, vocab_size) for job in jobs
    ]
    assert any(plan.drafts for plan in rig.ranks.plans)


@pytest.mark.usefixtures("_cyclic")
async def test_a_fault_behind_a_right_guess_still_delivers_what_was_right():
    class SpoiledRanks(FakeRanks):
        """The first draft is right, and the token after it is not a number."""

        async def next_outcome(self):
            outcome = await super().next_outcome()
            if outcome.accepted and not self.spoiled:
                self.spoiled = True
                lane_id = next(iter(outcome.accepted))
                fault = fake_ranks.LaneFault.NAN
                return dataclasses.replace(outcome, drawn={}, failures={lane_id: fault})
            return outcome

        spoiled = False

    rig = EngineRig(
        fake_facts(num_blocks=64), max_drafts=8, wrap=lambda ranks: SpoiledRanks(ranks.facts)
    )
    async with rig.running():
        events = await read_all(rig.send(make_job((1, 2), max_tokens=40)))
    assert isinstance(ending(events).error, ReplyCorrupt)
    got = token_ids(events)
    assert got == solo(make_job((1, 2), max_tokens=len(got)))
