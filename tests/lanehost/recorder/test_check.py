from dataclasses import replace

import pytest

from lanehost.recorder.check import check_trail
from lanehost.recorder.records import (
    Closed,
    Cut,
    JobArrived,
    StepReturned,
    StepSubmitted,
    StepTurnedDown,
)
from lanehost.recorder.trail import DamagedTrail, Trail
from ranks.plan import LaneFault
from tests.support.trails import VOCAB, mixed_jobs, notes_of, rewrite, run_recorded


def checked(path):
    trail = Trail(path)
    return check_trail(trail.header, trail, on_step=lambda _: None)


def steps_of(folder):
    return [note for note in notes_of(folder) if isinstance(note, StepReturned)]


def change_step(at, /, **changes):
    def change(record):
        if isinstance(record, StepReturned) and record.step_id == at:
            return replace(record, **{name: to(record) for name, to in changes.items()})
        return record

    return change


def one_more(pairs):
    (lane_id, token_id), *rest = pairs
    return ((lane_id, (token_id + 1) % VOCAB), *rest)


@pytest.mark.parametrize("keeps_prompts", [True, False])
async def test_a_trail_of_mixed_requests_is_equal(tmp_path, keeps_prompts):
    await run_recorded(tmp_path, keeps_prompts=keeps_prompts)
    replayed = checked(tmp_path)
    assert replayed.difference is None
    assert replayed.num_steps == len(steps_of(tmp_path))
    assert replayed.num_tokens > 60
    assert isinstance(replayed.end, Closed)


@pytest.mark.parametrize("keeps_prompts", [True, False])
async def test_a_changed_token_is_named_by_step_lane_and_request(tmp_path, keeps_prompts):
    await run_recorded(tmp_path, keeps_prompts=keeps_prompts)
    (step, *_) = (one for one in steps_of(tmp_path) if one.step_id > 3 and one.drawn)
    rewrite(tmp_path, change_step(step.step_id, drawn=lambda note: one_more(note.drawn)))
    difference = checked(tmp_path).difference
    assert difference.step_id == step.step_id
    if not keeps_prompts:
        assert difference.lane_id == step.drawn[0][0]
        assert difference.job_id.startswith("job-")


async def test_a_changed_prompt_is_seen_in_the_rows_that_run_it(tmp_path):
    await run_recorded(tmp_path)

    def change(record):
        if isinstance(record, JobArrived) and record.job_id == "job-0":
            return replace(record, prompt_ids=(3, *record.prompt_ids[1:]))
        return record

    rewrite(tmp_path, change)
    difference = checked(tmp_path).difference
    assert (difference.job_id, difference.what) == ("job-0", "the token at position 0")


async def test_a_lane_that_drew_and_was_not_to_is_seen(tmp_path):
    await run_recorded(tmp_path)
    rewrite(tmp_path, change_step(2, drawn=lambda note: ((2, 1), *note.drawn[:1], (1, 3))))
    assert checked(tmp_path).difference.step_id == 2


async def test_a_token_outside_the_vocabulary_is_seen(tmp_path):
    await run_recorded(tmp_path, keeps_prompts=False)
    rewrite(tmp_path, change_step(2, drawn=lambda n: tuple((lane, 9999) for lane, _ in n.drawn)))
    assert "a vocabulary of 7" in str(checked(tmp_path).difference)


async def test_a_plan_that_breaks_a_rule_and_was_run_is_seen(tmp_path):
    await run_recorded(tmp_path, keeps_prompts=False)

    def change(record):
        if isinstance(record, StepSubmitted) and record.plan.step_id == 3:
            return replace(record, plan=replace(record.plan, leaves=(2, 2)))
        return record

    rewrite(tmp_path, change)
    assert "step 3" in str(checked(tmp_path).difference)
    assert "a broken rule: lane 2 is free" in str(checked(tmp_path).difference)


async def test_a_refusal_without_a_broken_rule_is_seen(tmp_path):
    def refuse(rig):
        rig.ranks.refused_at_step = 3

    await run_recorded(tmp_path, change=refuse)
    difference = checked(tmp_path).difference
    assert str(difference) == (
        "step 3: the plan: recorded refused (asked to), got no rule that it breaks"
    )


async def test_a_refusal_of_a_plan_that_breaks_a_rule_is_equal(tmp_path):
    def refuse(rig):
        rig.ranks.refused_at_step = 3

    await run_recorded(tmp_path, change=refuse)

    def change(record):
        if isinstance(record, StepSubmitted) and record.plan.step_id == 3:
            return replace(record, plan=replace(record.plan, digest=bytes(16)))
        return record

    rewrite(tmp_path, change)
    refused = [one for one in notes_of(tmp_path) if isinstance(one, StepTurnedDown)]
    replayed = checked(tmp_path)
    assert replayed.difference is None
    assert replayed.num_steps == len(refused) + 2


async def test_a_result_that_no_plan_was_for_is_damage(tmp_path):
    await run_recorded(tmp_path)
    rewrite(tmp_path, change_step(2, step_id=lambda _: 7))
    with pytest.raises(DamagedTrail, match="step 7 came back, and was not the next in flight"):
        checked(tmp_path)


async def test_a_lane_that_failed_alone_is_part_of_an_equal_trail(tmp_path):
    def fail(rig):
        rig.ranks.nan_seed = 5

    await run_recorded(tmp_path, change=fail)
    assert any(dict(step.failures).values() for step in steps_of(tmp_path))
    assert {f for step in steps_of(tmp_path) for f in dict(step.failures).values()} == {
        LaneFault.NAN
    }
    assert checked(tmp_path).difference is None


async def test_a_cut_trail_is_equal_as_far_as_it_goes(tmp_path):
    await run_recorded(tmp_path)

    def change(record):
        return Cut(at_ns=1, reason="full") if isinstance(record, Closed) else record

    rewrite(tmp_path, change)
    replayed = checked(tmp_path)
    assert (replayed.difference, replayed.end) == (None, Cut(at_ns=1, reason="full"))


async def test_a_cached_block_with_other_tokens_is_seen(tmp_path):
    await run_recorded(tmp_path, jobs=mixed_jobs(4))
    seen = set()

    def change(record):
        """Change the prompt of a job only at a position that it had cached."""
        if isinstance(record, JobArrived) and record.job_id == "job-2":
            seen.add(record.job_id)
            return replace(record, prompt_ids=(1, 4, *record.prompt_ids[2:]))
        return record

    rewrite(tmp_path, change)
    difference = checked(tmp_path).difference
    assert seen
    assert difference.job_id == "job-2"
    assert "cached block" in difference.what
