"""What is counted over whole runs of the engine: the sums must be those of what was run."""

import asyncio
from dataclasses import replace

import pytest

from lanehost.engine.inbox import Drain
from lanehost.errors import RankGroupLost
from lanehost.job import Failed, Priority
from lanehost.metrics.counted import COUNTED
from lanehost.metrics.tally import Tally
from ranks.plan import Draw
from tests.support.fake_ranks import fake_facts
from tests.support.jobs import ending, make_job, read_all, token_ids
from tests.support.metered import MeteredRig

PRESSURE = fake_facts(num_blocks=16)


async def run_all(rig, jobs):
    async with rig.running():
        return await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))


def mixed_jobs(num_jobs=12, **values):
    return [
        make_job((n % 3, n, n + 1, 5), max_tokens=n % 5 + 1, draw=Draw(seed=n), **values)
        for n in range(1, num_jobs + 1)
    ]


def test_every_metric_reads_as_0_before_anything_has_happened():
    for family in COUNTED:
        samples = list(family.read(Tally.of(("",))))
        assert samples, family.name
        for labels, value in samples:
            assert len(labels) == len(family.labels)
            assert value == 0 if isinstance(value, int) else value.total == 0


async def test_requests_in_equal_requests_out_and_their_tokens_are_those_that_clients_saw():
    rig, jobs = MeteredRig(fake_facts(num_lanes=2)), mixed_jobs()
    rig.ranks.nan_seed = 3
    replies = await run_all(rig, jobs)
    assert rig.value("requests_accepted_total", "foreground", "") == len(jobs)
    assert rig.sum("requests_ended_total") == len(jobs)
    assert rig.value("requests_ended_total", "ReplyCorrupt") == 1
    assert rig.value("requests_ended_total", "length") == len(jobs) - 1
    assert rig.value("prompt_tokens_total", "") == sum(len(job.prompt_ids) for job in jobs)
    said = sum(len(token_ids(events)) for events in replies)
    assert rig.value("generated_tokens_total", "") == said
    assert rig.value("requests_open") == 0


async def test_prompt_tokens_are_either_cached_or_run():
    rig = MeteredRig(fake_facts(num_blocks=64))
    system = tuple(range(1, 41))
    await run_all(rig, [make_job((*system, n, n), max_tokens=5) for n in range(12)])
    assert rig.value("cached_tokens_total", "") == 40 * 11
    run = rig.value("step_tokens_total", "prompt")
    assert run + rig.value("cached_tokens_total", "") == rig.value("prompt_tokens_total", "")


async def test_steps_and_passes_are_those_that_the_ranks_ran():
    rig = MeteredRig(fake_facts(num_lanes=4, max_step_tokens=12))
    await run_all(rig, mixed_jobs())
    plans = rig.ranks.plans_run
    passes = [len(plan.chunks) for plan in plans if len(plan.chunks) > 1]
    assert passes
    assert rig.value("steps_total") == rig.value("step_compute_seconds_count") == len(plans)
    assert rig.sum("step_tokens_total") == sum(plan.num_tokens for plan in plans)
    assert rig.value("step_tokens_total", "decode") == sum(len(plan.decodes) for plan in plans)
    assert rig.value("passes_total") == len(passes)
    assert rig.value("pass_prompts_total") == sum(passes)


async def test_steps_that_failed_and_lanes_that_ran_alone_are_counted_and_the_rest_goes_on():
    rig = MeteredRig()
    rig.ranks.room_prompts = 1
    jobs = mixed_jobs(4)
    await run_all(rig, jobs)
    refused = len(rig.ranks.plans) - len(rig.ranks.plans_run)
    assert rig.sum("steps_refused_total") == refused > 0
    assert rig.value("steps_refused_total", "failed") > 0
    assert rig.value("lanes_alone_total") > 0
    assert rig.value("requests_ended_total", "length") == len(jobs)


async def test_draft_tokens_are_those_that_were_guessed_and_right():
    """With two tokens in all, replies repeat themselves, and not always."""
    rig = MeteredRig(fake_facts(vocab_size=2, num_blocks=64), max_drafts=4)
    jobs = [make_job((n, 0, 1), max_tokens=40, draw=Draw(temperature=n, seed=n)) for n in (0, 1)]
    await run_all(rig, jobs)
    plans = rig.ranks.plans_run
    guessed = sum(len(draft.token_ids) for plan in plans for draft in plan.drafts)
    assert rig.value("draft_tokens_total") == rig.value("step_tokens_total", "draft") == guessed
    right = rig.value("draft_tokens_accepted_total")
    assert 0 < right < guessed
    # Every token of a reply is drawn after a prompt, behind a decode, or was guessed.
    assert 2 + rig.value("step_tokens_total", "decode") + right == 2 * 40


async def test_who_parks_and_sits_down_again_is_counted_once_as_a_request():
    rig = MeteredRig(PRESSURE)
    jobs = [make_job((n, n + 1, n + 2), max_tokens=28) for n in range(1, 5)]
    replies = await run_all(rig, jobs)
    assert rig.value("jobs_parked_total") > 0
    assert rig.value("queue_seconds_count", "foreground") == len(jobs)
    assert rig.value("time_to_first_token_seconds_count", "foreground") == len(jobs)
    cached = sum(ending(events).usage.cached_tokens for events in replies)
    assert rig.value("cached_tokens_total", "") == cached


async def test_every_reply_has_a_time_to_its_first_token_also_one_of_a_single_token():
    rig = MeteredRig()
    jobs = [make_job((1, 2, n), max_tokens=tokens) for n, tokens in enumerate((1, 1, 2, 7))]
    await run_all(rig, jobs)
    assert rig.value("time_to_first_token_seconds_count", "foreground") == 4
    assert rig.value("time_per_output_token_seconds_count", "foreground") == 2


async def test_warm_requests_are_counted_also_when_all_was_kept_already():
    rig = MeteredRig()
    async with rig.running():
        for _ in range(2):
            await read_all(rig.send(make_job(tuple(range(1, 10)), max_tokens=0)))
    assert rig.value("requests_ended_total", "length") == 2
    assert rig.value("queue_seconds_count", "foreground") == 2
    assert rig.value("time_to_first_token_seconds_count", "foreground") == 0
    assert rig.value("prompt_tokens_total", "") == 18
    assert rig.value("step_tokens_total", "prompt") == 9
    assert rig.value("cached_tokens_total", "") == 8


async def test_a_job_that_gave_way_is_counted_and_goes_on():
    rig = MeteredRig(fake_facts(num_lanes=1), is_manual=True)
    run = asyncio.ensure_future(rig.engine.run())
    background = replace(make_job((1, 2), max_tokens=20), priority=Priority.BACKGROUND)
    slow = rig.send(background)
    for _ in range(3):
        await rig.step()
    rig.send(make_job((3, 4), max_tokens=2))
    rig.inbox.put(Drain())
    while not run.done():
        await rig.step()
    assert slow.is_ended
    assert rig.value("jobs_yielded_total") == 1
    assert rig.value("queue_seconds_count", "background") == 1
    assert rig.value("generated_tokens_total", "") == 22


async def test_background_and_foreground_are_told_apart():
    rig = MeteredRig(fake_facts(num_lanes=1))
    background = replace(make_job(max_tokens=9), priority=Priority.BACKGROUND)
    await run_all(rig, [background, make_job(max_tokens=2)])
    for priority in ("background", "foreground"):
        assert rig.value("requests_accepted_total", priority, "") == 1
        assert rig.value("queue_seconds_count", priority) == 1


async def test_scopes_are_told_apart_and_one_without_requests_is_there_as_0():
    rig = MeteredRig(scopes=("a", "b", "c"))
    jobs = [make_job((1, 2), max_tokens=2, scope="a"), make_job((1, 2, 3), max_tokens=4, scope="b")]
    await run_all(rig, jobs)
    tokens = [rig.value("generated_tokens_total", scope) for scope in "abc"]
    assert tokens == [2, 4, 0]
    assert [rig.value("prompt_tokens_total", scope) for scope in "abc"] == [2, 3, 0]


async def test_requests_of_a_lost_group_have_ended():
    rig = MeteredRig()
    rig.ranks.lost_at_step = 2
    streams = [rig.send(make_job(max_tokens=9)) for _ in range(3)]
    with pytest.raises(RankGroupLost):
        await rig.engine.run()
    endings = [ending([event async for event in stream]) for stream in streams]
    assert all(isinstance(one, Failed) for one in endings)
    assert rig.value("requests_ended_total", "RankGroupLost") == 3
    assert rig.value("step_age_seconds") == 0
