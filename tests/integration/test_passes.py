"""Prompts that share steps, on real ranks: the cases of tests/lanehost/engine/test_passes.py."""

import asyncio

import pytest

from lanehost.errors import Cancelled, StepFailed
from lanehost.job import Priority
from ranks.plan import Draw, RefusalKind
from tests.support.failing_rank import failing_rank_command
from tests.support.jobs import ending, make_job, read_all, token_ids
from tests.support.real_engine import engine_on_ranks, solo_replies
from tests.support.tiny_checkpoints import (
    VOCAB_SIZE,
    write_hf_checkpoint,
    write_repeating_checkpoint,
)

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(180)]
POISON = VOCAB_SIZE - 1


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    write_hf_checkpoint(folder, "llama")
    return folder


def jobs_of(count, *, poisoned=None, **values):
    return [
        make_job(
            (n, n + 1, POISON if n == poisoned else n + 2),
            **({"max_tokens": 6, "draw": Draw(temperature=n % 2, seed=n)} | values),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("tp", [1, 2])
async def test_who_is_free_shares_a_pass_and_every_reply_is_its_solo_one(checkpoint, tp):
    four, six = jobs_of(4), jobs_of(6, max_tokens=9)
    async with engine_on_ranks(checkpoint, tp=tp, prompt_cache=False) as rig:
        replies = await rig.run_all(four)
        assert rig.steps.passes == [4]
        replies += await rig.run_all(six)
        assert rig.steps.passes == [4, 4, 2]
    got = [token_ids(events) for events in replies]
    assert got == await solo_replies(checkpoint, four + six)


@pytest.mark.parametrize("tp", [1, 2])
async def test_room_for_two_and_one_that_fails_alone(checkpoint, tp):
    """A pass of four is refused whole; then one at a time; later, as many as fit."""
    first, later = jobs_of(4), jobs_of(4, max_tokens=5)
    spoilt = [jobs_of(4, poisoned=n) for n in range(4)]
    command = failing_rank_command(f"fail-prompts-above=2,fail-token={POISON}")
    async with engine_on_ranks(checkpoint, tp=tp, rank_command=command, prompt_cache=False) as rig:
        replies = await rig.run_all(first)
        assert rig.steps.refused[0].kind is RefusalKind.FAILED
        assert rig.steps.passes == [1, 1, 1, 1]
        replies += await rig.run_all(later)
        assert rig.steps.passes[4:] == [2, 2]
        ends = [await rig.run_all(jobs) for jobs in spoilt]
    sound = first + later
    for poisoned, (jobs, events_of_all) in enumerate(zip(spoilt, ends, strict=True)):
        assert isinstance(ending(events_of_all[poisoned]).error, StepFailed)
        assert token_ids(events_of_all[poisoned]) == []
        sound += [job for n, job in enumerate(jobs) if n != poisoned]
        replies += [events for n, events in enumerate(events_of_all) if n != poisoned]
    got = [token_ids(events) for events in replies]
    assert got == await solo_replies(checkpoint, sound)


async def test_a_cancel_of_any_participant_leaves_the_others_and_an_unrelated_lane(checkpoint):
    """The pass fails and is taken apart while one of it leaves."""
    command = failing_rank_command("fail-prompts-above=1")
    sound, got = [], []
    async with engine_on_ranks(checkpoint, rank_command=command, prompt_cache=False) as rig:
        for cancelled in range(3):
            unrelated = make_job((50, 51), max_tokens=40)
            jobs = jobs_of(3)
            reading = asyncio.ensure_future(read_all(rig.send(unrelated)))
            streams = [rig.send(job) for job in jobs]
            streams[cancelled].cancel()
            replies = await asyncio.gather(*map(read_all, streams))
            assert isinstance(ending(replies.pop(cancelled)).error, Cancelled)
            jobs.pop(cancelled)
            sound += [unrelated, *jobs]
            got += [token_ids(events) for events in (await reading, *replies)]
    assert got == await solo_replies(checkpoint, sound)


async def test_a_background_prompt_yields_at_a_chunk_and_all_replies_are_the_same(checkpoint):
    quiet = make_job(tuple(range(200)), max_tokens=5, priority=Priority.BACKGROUND)
    warm = make_job(tuple(range(100, 300)), max_tokens=0, priority=Priority.BACKGROUND)
    urgent = jobs_of(4)
    steps = {"num_lanes": 2, "max_step_tokens": 16, "kv_tokens": 1024}
    async with engine_on_ranks(checkpoint, group=steps) as rig:
        waiting = [asyncio.ensure_future(read_all(rig.send(job))) for job in (quiet, warm)]
        async with asyncio.timeout(60):
            await rig.steps.until(lambda: rig.num_progressed == 2)
        replies = await rig.run_all(urgent)
        replies += [await one for one in waiting]
        yielded = [job_id for what, job_id in rig.steps.notes if what == "yielded"]
        kept = await read_all(rig.send(make_job((*warm.prompt_ids, 5), max_tokens=1)))
    assert set(yielded) == {quiet.job_id, warm.job_id}
    assert ending(kept).usage.cached_tokens == 192
    got = [token_ids(events) for events in replies]
    assert got == await solo_replies(checkpoint, [*urgent, quiet, warm])


async def test_under_pressure_real_lanes_park_and_go_on_exactly_where_they_were(checkpoint):
    jobs = jobs_of(4, max_tokens=70)
    async with engine_on_ranks(checkpoint, group={"kv_tokens": 160}) as rig:
        replies = await rig.run_all(jobs)
        assert any(what == "parked" for what, _ in rig.steps.notes)
    got = [token_ids(events) for events in replies]
    assert got == await solo_replies(checkpoint, jobs)


async def test_a_draft_that_cannot_be_run_fails_nobody(tmp_path):
    write_repeating_checkpoint(tmp_path)
    jobs = [make_job((7, 8, n), max_tokens=20) for n in range(3)]
    command = failing_rank_command("fail-drafts")
    async with engine_on_ranks(tmp_path, rank_command=command, max_drafts=4) as rig:
        replies = await rig.run_all(jobs)
        assert any(refused.kind is RefusalKind.FAILED for refused in rig.steps.refused)
        assert not any(plan.drafts for plan in rig.steps.run)
    got = [token_ids(events) for events in replies]
    assert got == await solo_replies(tmp_path, jobs)
