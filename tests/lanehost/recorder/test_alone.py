from dataclasses import replace

import pytest

from lanehost.recorder.alone import find_request, replay_alone
from lanehost.recorder.records import JobEnded, StepReturned, StepSubmitted
from lanehost.recorder.trail import CannotReplay, Trail
from ranks.plan import LaneFault
from tests.support.fake_ranks import FakeRanks
from tests.support.jobs import make_job
from tests.support.trails import (
    FACTS,
    fail_steps,
    mixed_jobs,
    notes_of,
    rewrite,
    run_recorded,
)


def found(folder, job_id):
    trail = Trail(folder)
    return trail.header, find_request(trail.header, trail, job_id)


async def alone(folder, job_id, ranks=None):
    header, job = found(folder, job_id)
    return await replay_alone(ranks or FakeRanks(FACTS), header, job, on_step=lambda _: None)


async def test_every_request_alone_equals_itself_among_others(tmp_path):
    await run_recorded(tmp_path)
    for number, job in enumerate(mixed_jobs()):
        _, story = found(tmp_path, job.job_id)
        replayed = await alone(tmp_path, job.job_id)
        assert replayed.difference is None
        assert story.prompt_ids == job.prompt_ids
        if number % 5 != 4:
            assert replayed.num_tokens == len(job.prompt_ids) + len(story.drawn) - 1


async def test_every_request_alone_equals_itself_among_steps_that_failed(tmp_path):
    await run_recorded(tmp_path, change=fail_steps())
    endings = {n.job_id: n.ending for n in notes_of(tmp_path) if isinstance(n, JobEnded)}
    assert "length" in endings.values()
    for job in mixed_jobs():
        _, story = found(tmp_path, job.job_id)
        replayed = await alone(tmp_path, job.job_id)
        assert replayed.difference is None
        if endings[job.job_id] == "length":
            assert len(story.drawn) == job.max_tokens


async def test_a_job_that_only_warms_a_prompt_has_nothing_to_compare(tmp_path):
    jobs = [make_job((1, 2, 3, 4, 5), max_tokens=0, job_id="warm")]
    await run_recorded(tmp_path, jobs=jobs)
    _, story = found(tmp_path, "warm")
    assert (story.prompt_ids, story.drawn) == ((1, 2, 3, 4, 5), {})
    replayed = await alone(tmp_path, "warm")
    assert (replayed.difference, replayed.num_steps) == (None, 0)


async def test_a_prompt_of_several_chunks_runs_in_chunks(tmp_path):
    await run_recorded(tmp_path, jobs=[make_job(tuple([1, 2, 3] * 13), job_id="long")])
    ranks = FakeRanks(FACTS)
    assert (await alone(tmp_path, "long", ranks)).difference is None
    assert [len(chunk.token_ids) for plan in ranks.plans for chunk in plan.chunks] == [16, 16, 7]


async def test_a_changed_token_is_named_with_the_step_that_drew_it(tmp_path):
    await run_recorded(tmp_path)
    ended = next(n for n in notes_of(tmp_path) if isinstance(n, JobEnded) and n.job_id == "job-3")
    _, story = found(tmp_path, "job-3")
    at = story.drawn[len(story.prompt_ids) + 2]
    assert at.given == ended.token_ids[2]

    def change(record):
        if isinstance(record, StepReturned) and record.step_id == at.step_id:
            drawn = tuple((lane, (t + (lane == at.lane_id)) % 7) for lane, t in record.drawn)
            return replace(record, drawn=drawn)
        return record

    rewrite(tmp_path, change)
    difference = (await alone(tmp_path, "job-3")).difference
    assert difference.what.startswith("token ")
    assert difference.what.endswith(" of the reply")
    assert (difference.step_id, difference.lane_id) == (at.step_id, at.lane_id)
    assert difference.job_id == "job-3"


async def test_a_fault_that_is_there_alone_too_is_equal(tmp_path):
    def fail(rig):
        rig.ranks.nan_seed = 5

    await run_recorded(tmp_path, change=fail)
    _, story = found(tmp_path, "job-5")
    assert LaneFault.NAN in {at.given for at in story.drawn.values()}
    ranks = FakeRanks(FACTS)
    ranks.nan_seed = 5
    assert (await alone(tmp_path, "job-5", ranks)).difference is None
    difference = (await alone(tmp_path, "job-5")).difference
    assert "NAN" in difference.recorded


async def test_a_request_that_is_not_there_is_named_beside_those_that_are(tmp_path):
    await run_recorded(tmp_path)
    with pytest.raises(CannotReplay, match=r"no request nobody, the trail has 12: job-0, job-1"):
        found(tmp_path, "nobody")


async def test_a_trail_without_prompts_is_refused(tmp_path):
    await run_recorded(tmp_path, keeps_prompts=False)
    with pytest.raises(CannotReplay, match="--record-prompts"):
        await alone(tmp_path, "job-1")


async def test_ranks_that_refuse_say_why(tmp_path):
    await run_recorded(tmp_path)
    ranks = FakeRanks(FACTS)
    ranks.refused_at_step = 2
    with pytest.raises(CannotReplay, match="the ranks refused step 2: asked to"):
        await alone(tmp_path, "job-3", ranks)


async def test_a_trail_whose_plans_break_a_rule_is_not_read_for_a_request(tmp_path):
    await run_recorded(tmp_path)

    def change(record):
        if isinstance(record, StepSubmitted) and record.plan.step_id == 3:
            return replace(record, plan=replace(record.plan, leaves=(2, 2)))
        return record

    rewrite(tmp_path, change)
    with pytest.raises(CannotReplay, match="step 3 breaks a rule: lane 2 is free"):
        found(tmp_path, "job-1")
