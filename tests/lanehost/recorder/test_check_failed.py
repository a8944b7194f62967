"""Trails in which steps failed: they are left out, and what is said of them must be true."""

from dataclasses import replace

import pytest

from lanehost.recorder.check import TrailCheck, check_trail
from lanehost.recorder.records import StepReturned, StepSubmitted, StepTurnedDown
from lanehost.recorder.trail import Trail
from ranks.plan import RefusalKind, StepPlan
from tests.support.trails import fail_steps, header, notes_of, rewrite, run_recorded


def checked(path):
    trail = Trail(path)
    return check_trail(trail.header, trail, on_step=lambda _: None)


def turned_down(folder, kind):
    notes = [note for note in notes_of(folder) if isinstance(note, StepTurnedDown)]
    return [note for note in notes if note.refusal is kind]


@pytest.mark.parametrize("keeps_prompts", [True, False])
async def test_a_trail_with_steps_that_failed_is_equal_and_they_are_left_out(
    tmp_path, keeps_prompts
):
    await run_recorded(tmp_path, keeps_prompts=keeps_prompts, change=fail_steps())
    failed = turned_down(tmp_path, RefusalKind.FAILED)
    skipped = turned_down(tmp_path, RefusalKind.SKIPPED)
    assert len(failed) > 3
    assert skipped
    replayed = checked(tmp_path)
    assert replayed.difference is None
    assert replayed.num_left_out == len(failed) + len(skipped)
    assert replayed.num_steps == len([n for n in notes_of(tmp_path) if isinstance(n, StepReturned)])


def test_nothing_can_have_run_behind_a_plan_that_did_not_fit():
    check = TrailCheck(header())
    step = StepSubmitted(at_ns=1, plan=StepPlan(step_id=1, epoch=1, decodes=(0,)))
    behind = StepSubmitted(at_ns=2, plan=StepPlan(step_id=2, epoch=1))
    refused = StepTurnedDown(at_ns=3, step_id=1, epoch=1, reason="lane 0 is free")
    assert [check.take(note) for note in (step, behind, refused)] == [None] * 3
    difference = check.take(call_it_run(replace(refused, step_id=2), behind.plan))
    assert difference is not None
    assert difference.what == "the step behind one that was refused"


def call_it_run(note, plan):
    """Say that a step which failed has run, and drew what it was to draw."""
    lanes = [chunk.lane_id for chunk in plan.chunks if chunk.draws] + list(plan.decodes)
    return StepReturned(
        at_ns=note.at_ns,
        step_id=note.step_id,
        epoch=note.epoch,
        drawn=tuple((lane_id, 1) for lane_id in lanes),
        failures=(),
        digest=b"",
        compute_ns=1,
    )


async def test_a_step_that_is_said_to_have_run_where_it_failed_is_seen(tmp_path):
    await run_recorded(tmp_path, keeps_prompts=False, change=fail_steps())
    plans = {n.plan.step_id: n.plan for n in notes_of(tmp_path) if isinstance(n, StepSubmitted)}
    first = turned_down(tmp_path, RefusalKind.FAILED)[0]

    def change(record):
        return call_it_run(record, plans[record.step_id]) if record == first else record

    rewrite(tmp_path, change)
    assert str(checked(tmp_path).difference) == (
        f"step {first.step_id + 1}: the plan: recorded skipped (redacted), got a broken rule: "
        f"it follows step {first.step_id}, and not one that has not run since {first.step_id}"
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            RefusalKind.SKIPPED,
            "the plan: recorded skipped (asked to), got a broken rule: it follows",
        ),
        (RefusalKind.MISMATCH, "the plan: recorded refused (asked to), got no rule that it breaks"),
    ],
)
async def test_a_step_that_failed_and_is_said_to_be_of_another_kind_is_seen(tmp_path, kind, said):
    await run_recorded(tmp_path, change=fail_steps())
    first = turned_down(tmp_path, RefusalKind.FAILED)[0]

    def change(record):
        return replace(record, refusal=kind) if record == first else record

    rewrite(tmp_path, change)
    difference = checked(tmp_path).difference
    assert difference.step_id == first.step_id
    assert said in str(difference)


async def test_a_plan_that_breaks_a_rule_cannot_have_failed(tmp_path):
    await run_recorded(tmp_path, change=fail_steps())
    first = turned_down(tmp_path, RefusalKind.FAILED)[0]

    def change(record):
        if isinstance(record, StepSubmitted) and record.plan.step_id == first.step_id:
            return replace(record, plan=replace(record.plan, digest=bytes(16)))
        return record

    rewrite(tmp_path, change)
    assert "recorded failed (asked to), got a broken rule: digest is 0000" in str(
        checked(tmp_path).difference
    )
