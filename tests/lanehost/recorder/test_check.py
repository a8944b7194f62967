import asyncio
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanehost.recorder.check import check_trail, given_at
from lanehost.recorder.checker import PlanChecker
from lanehost.recorder.records import (
    Closed,
    Cut,
    JobArrived,
    JobEnded,
    JobSeated,
    StepReturned,
    StepSubmitted,
    StepTurnedDown,
)
from lanehost.recorder.story import DrawnAt, Story
from lanehost.recorder.trail import DamagedTrail, Trail
from ranks.plan import Draw, LaneFault
from tests.support.fake_ranks import fake_facts
from tests.support.jobs import make_job
from tests.support.trails import (
    VOCAB,
    fail_steps,
    mixed_jobs,
    notes_of,
    rewrite,
    run_recorded,
)


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
    await run_recorded(tmp_path, keeps_prompts=False)
    rewrite(tmp_path, change_step(3, drawn=lambda note: note.drawn[1:]))
    difference = checked(tmp_path).difference
    assert (difference.step_id, difference.what) == (3, "the lanes that drew")


async def test_a_changed_digest_of_a_result_is_seen(tmp_path):
    await run_recorded(tmp_path)
    rewrite(tmp_path, change_step(5, digest=lambda _: bytes(16)))
    difference = checked(tmp_path).difference
    assert (difference.step_id, difference.recorded) == (5, "00" * 16)


async def under_pressure(folder, **how):
    """Lanes park and go on: some positions are drawn for twice, by different steps."""
    facts = fake_facts(num_lanes=3, num_blocks=7, vocab_size=VOCAB)
    jobs = [make_job((1, 2, n), max_tokens=16, job_id=f"job-{n}") for n in range(4)]
    await run_recorded(folder, jobs=jobs, facts=facts, **how)


async def test_lanes_that_park_and_go_on_are_equal(tmp_path):
    await under_pressure(tmp_path)
    seatings = Counter(n.job_id for n in notes_of(tmp_path) if isinstance(n, JobSeated))
    assert max(seatings.values()) > 1
    assert checked(tmp_path).difference is None


def drawn_twice(folder):
    """Return a job's position for which two steps drew, and both draws."""
    story, checker = Story(), PlanChecker(Trail(folder).header.facts, proves_digests=False)
    plans, draws = {}, defaultdict(list)
    for note in notes_of(folder):
        story.take(note)
        if isinstance(note, StepSubmitted):
            plans[note.plan.step_id] = note.plan, story.joined(note.plan)
        elif isinstance(note, StepReturned):
            plan, jobs = plans[note.step_id]
            for row in filter(lambda row: row.draws, checker.check(plan)):
                checker.settle(row, len(dict(note.accepted).get(row.lane_id, ())))
                job_id = jobs[row.lane_id].job_id
                for position in given_at(row, note):
                    at = DrawnAt(step_id=note.step_id, lane_id=row.lane_id, given=0)
                    draws[job_id, position].append(at)
    return next((at, found) for at, found in draws.items() if len(found) == 2)


async def test_a_position_that_is_drawn_for_again_must_get_the_same_token(tmp_path):
    await under_pressure(tmp_path, keeps_prompts=False)
    (job_id, position), (first, second) = drawn_twice(tmp_path)

    def change_first(note):
        return tuple((lane, (t + (lane == first.lane_id)) % VOCAB) for lane, t in note.drawn)

    rewrite(tmp_path, change_step(first.step_id, drawn=change_first))
    difference = checked(tmp_path).difference
    assert difference.what == f"position {position}"
    assert (difference.step_id, difference.lane_id) == (second.step_id, second.lane_id)
    assert difference.job_id == job_id


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


def one_scope_or_two(*scopes):
    """Jobs one after the other that begin alike."""
    return [
        make_job((1, 2, 3, 4, 5, 6, number), max_tokens=2, job_id=f"job-{number}", scope=scope)
        for number, scope in enumerate(scopes)
    ]


async def test_a_block_that_was_computed_for_another_scope_is_seen(tmp_path):
    await run_recorded(tmp_path, keeps_prompts=False, jobs=one_scope_or_two("a", "a", "b"))
    seated = {n.job_id: n.num_cached_tokens for n in notes_of(tmp_path) if isinstance(n, JobSeated)}
    assert seated == {"job-0": 0, "job-1": 4, "job-2": 0}
    assert checked(tmp_path).difference is None

    def change(record):
        if isinstance(record, JobArrived) and record.job_id == "job-1":
            return replace(record, scope="b")
        return record

    rewrite(tmp_path, change)
    difference = checked(tmp_path).difference
    assert difference.job_id == "job-1"
    assert difference.what.startswith("the scope of the cached block")
    assert (difference.recorded, difference.got) == ("'b'", "'a', which computed it")


@pytest.mark.parametrize("keeps_prompts", [True, False])
async def test_a_job_that_only_warms_a_prompt_draws_nothing_and_is_equal(tmp_path, keeps_prompts):
    jobs = [
        make_job((1, 2, 3, 4, 1, 2, 3, 4, 5), max_tokens=0, job_id="warm"),
        make_job((1, 2, 3, 4, 1, 2, 3, 4, 6), max_tokens=3, job_id="after"),
    ]
    replies = await run_recorded(tmp_path, keeps_prompts=keeps_prompts, jobs=jobs)
    assert [len(reply) for reply in replies] == [0, 3]
    notes = notes_of(tmp_path)
    (ended,) = (n for n in notes if isinstance(n, JobEnded) and n.job_id == "warm")
    assert (ended.ending, ended.token_ids) == ("length", ())
    assert checked(tmp_path).difference is None


@settings(max_examples=25, deadline=None)
@given(data=st.data(), keeps_prompts=st.booleans(), num_blocks=st.integers(6, 20))
def test_whatever_the_schedule_its_trail_is_equal(data, keeps_prompts, num_blocks):
    tokens = st.integers(0, 3)
    jobs = [
        make_job(
            (1, 2, *data.draw(st.lists(tokens, min_size=1, max_size=6))),
            max_tokens=data.draw(st.integers(0, 14)),
            draw=Draw(temperature=data.draw(st.sampled_from((0.0, 0.8))), seed=number),
        )
        for number in range(data.draw(st.integers(1, 9)))
    ]
    facts = fake_facts(num_lanes=3, num_blocks=num_blocks, vocab_size=VOCAB)
    change = fail_steps(one_in=data.draw(st.sampled_from((2, 5, 10**9))))
    with TemporaryDirectory() as folder:
        path = Path(folder)
        run = run_recorded(path, jobs=jobs, facts=facts, keeps_prompts=keeps_prompts, change=change)
        asyncio.run(run)
        replayed = checked(path)
    assert replayed.difference is None
    assert isinstance(replayed.end, Closed)
