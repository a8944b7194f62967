from dataclasses import replace

import pytest

from lanehost.recorder.checker import PlanChecker, PlanFault
from lanehost.recorder.records import StepReturned, StepSubmitted
from ranks.plan import Chunk, Draw, LaneDraft, LaneGrow, LaneJoin, StepPlan
from tests.support.fake_ranks import fake_facts
from tests.support.trails import FACTS as RUN_FACTS
from tests.support.trails import notes_of, run_recorded

FACTS = fake_facts()


def check(*plans, guessing=frozenset()):
    """Follow plans whose digests are not looked at; some lanes guessed when each was written."""
    checker = PlanChecker(FACTS, proves_digests=False)
    for number, plan in enumerate(plans, start=1):
        rows = checker.check(placed(plan, number), guessing=guessing)
    return checker, rows


def plan(**fields):
    return StepPlan(**({"step_id": 0, "epoch": 1} | fields))


def placed(plan, step_id, follows=None):
    """The plan with this id, behind the one before, unless it says otherwise itself."""
    follows = step_id - 1 if follows is None else follows
    return replace(plan, step_id=plan.step_id or step_id, follows=plan.follows or follows)


def join(lane_id, cached=0):
    return LaneJoin(lane_id=lane_id, draw=Draw(), num_cached_tokens=cached)


def grow(lane_id, *block_ids):
    return LaneGrow(lane_id=lane_id, block_ids=block_ids)


def chunk(lane_id, start, *token_ids, draws=True):
    return Chunk(lane_id=lane_id, start=start, token_ids=token_ids, draws=draws)


def seat(lane_id=0, blocks=(0, 1), tokens=(1, 2, 3)):
    return plan(
        joins=(join(lane_id),),
        grows=(grow(lane_id, *blocks),),
        chunks=(chunk(lane_id, 0, *tokens),),
    )


WRONG = [
    ("epoch is 2", [plan(epoch=2)]),
    ("step is 7, the last was 0", [plan(step_id=7)]),
    ("it follows step 9, the last that has run is 0", [plan(follows=9)]),
    ("it follows step 5, the last that has run is 1", [seat(), plan(follows=5)]),
    ("17 tokens, limit 16", [seat(blocks=range(5), tokens=range(17))]),
    ("lane 0 runs 2 times", [seat(), plan(decodes=(0, 0))]),
    ("lane 0 is free", [plan(leaves=(0,))]),
    ("lane 0 is free", [plan(decodes=(0,))]),
    ("lane 0 is free", [plan(chunks=(chunk(0, 0, 1),))]),
    ("lane 0 is free", [plan(grows=(grow(0, 1),))]),
    ("lane 4 joins, there are 4", [plan(joins=(join(4),))]),
    ("lane 0 joins, it is taken", [seat(), plan(joins=(join(0),))]),
    ("joins with 3 cached tokens, no whole blocks of 4", [plan(joins=(join(0, cached=3),))]),
    ("gets block 32, there are 32", [plan(joins=(join(0),), grows=(grow(0, 32),))]),
    ("has a block twice", [plan(joins=(join(0),), grows=(grow(0, 1, 1),))]),
    ("8 cached tokens and 1 blocks", [plan(joins=(join(0, cached=8),), grows=(grow(0, 1),))]),
    (
        "begins with block 1, of which 0 positions are written",
        [plan(joins=(join(0, cached=4),), grows=(grow(0, 1, 2),))],
    ),
    ("starts at 2, it is at 3", [seat(), plan(chunks=(chunk(0, 2, 5),))]),
    ("has drawn before its chunk", [seat(), plan(chunks=(chunk(0, 3, 5),))]),
    ("has an empty chunk", [plan(joins=(join(0),), chunks=(chunk(0, 0),))]),
    ("outside the vocabulary", [seat(tokens=(251,))]),
    ("writes to 5, it has 4", [seat(blocks=(0,), tokens=range(5))]),
    (
        "decodes before it has drawn",
        [
            plan(
                joins=(join(0),),
                grows=(grow(0, 0),),
                chunks=(chunk(0, 0, 1, draws=False),),
            ),
            plan(decodes=(0,)),
        ],
    ),
    (
        "writes block 0, which another has too",
        [seat(), plan(joins=(join(1),), grows=(grow(1, 0),), chunks=(chunk(1, 0, 9),))],
    ),
    ("drafts for lanes", [seat(), plan(drafts=(LaneDraft(lane_id=0, token_ids=(1,)),))]),
]


@pytest.mark.parametrize(("message", "plans"), WRONG)
def test_a_plan_that_breaks_a_rule_is_refused_with_both_values(message, plans):
    check(*plans[:-1]) if plans[:-1] else None
    with pytest.raises(PlanFault) as raised:
        check(*plans)
    assert message in str(raised.value)


def test_a_lane_that_decodes_behind_its_draft_in_flight_breaks_a_rule():
    with pytest.raises(PlanFault, match="lane 0 decodes behind a draft in flight"):
        check(seat(), plan(decodes=(0,)), guessing=frozenset({0, 3}))
    check(seat(), plan(decodes=(0,)), guessing=frozenset({3}))


def test_a_whole_written_block_may_be_begun_with_and_is_not_written():
    first = seat(tokens=range(8))
    second = plan(joins=(join(1, cached=4),), grows=(grow(1, 0, 5),), chunks=(chunk(1, 4, 7, 8),))
    _, rows = check(first, second)
    assert (rows[0].cached_block_ids, rows[0].gained_block_ids) == ((0,), (0, 5))


def test_positions_of_a_draft_that_was_wrong_are_not_written_and_run_again():
    draft = plan(decodes=(0,), drafts=(LaneDraft(lane_id=0, token_ids=(5, 6, 7, 8)),))
    checker, rows = check(seat(), draft)
    assert (rows[0].start, rows[0].num_tokens) == (3, 5)
    checker.settle(rows[0], 1)
    (again,) = checker.check(placed(plan(decodes=(0,)), 3))
    assert again.start == 5


def test_a_block_is_not_whole_by_a_draft_that_was_wrong():
    draft = plan(decodes=(0,), drafts=(LaneDraft(lane_id=0, token_ids=(5, 6, 7, 8)),))
    checker, rows = check(seat(), draft)
    checker.settle(rows[0], 1)
    late = placed(plan(joins=(join(1, cached=8),), grows=(grow(1, 0, 1, 2),)), 3)
    with pytest.raises(PlanFault, match="block 1, of which 1 positions are written"):
        checker.check(late)


async def test_every_plan_of_a_real_schedule_passes_and_none_with_another_digest(tmp_path):
    await run_recorded(tmp_path)
    notes = notes_of(tmp_path)
    checker = PlanChecker(RUN_FACTS)
    plans = {note.plan.step_id: note.plan for note in notes if isinstance(note, StepSubmitted)}
    for note in notes:
        if isinstance(note, StepReturned):
            accepted = dict(note.accepted)
            for row in checker.check(plans[note.step_id]):
                checker.settle(row, len(accepted.get(row.lane_id, ())))
    assert len(plans) > 10
    first = next(note.plan for note in notes if isinstance(note, StepSubmitted))
    with pytest.raises(PlanFault, match="digest is 0000"):
        PlanChecker(RUN_FACTS).check(replace(first, digest=bytes(16)))


WHOLE = [
    seat(tokens=range(8), blocks=(0, 1, 2)),
    plan(joins=(join(1, cached=4),), grows=(grow(1, 0, 5),), chunks=(chunk(1, 4, 7, draws=False),)),
]


def test_what_failed_has_changed_no_lane_and_its_rows_run_again():
    checker, _ = check(WHOLE[0])
    checker.check_failed(placed(WHOLE[1], 2))
    checker.check_skipped(placed(plan(decodes=(3,)), 3))
    (again,) = checker.check(placed(WHOLE[1], 4, follows=1))
    assert (again.lane_id, again.start, again.gained_block_ids) == (1, 4, (0, 5))
    (behind,) = checker.check(placed(plan(chunks=(chunk(1, 5, 9),)), 5))
    assert behind.start == 5


def test_a_block_that_a_failed_step_may_have_written_is_not_begun_with():
    """Lane 0 filled blocks 0 and 1 and left; a failed step was to write into block 1."""
    checker, _ = check(WHOLE[0], plan(leaves=(0,)))
    taken = plan(joins=(join(2),), grows=(grow(2, 1),), chunks=(chunk(2, 0, 4),))
    checker.check_failed(placed(taken, 3))
    late = plan(joins=(join(3, cached=8),), grows=(grow(3, 0, 1, 9),))
    with pytest.raises(PlanFault, match="block 1, of which 0 positions are written"):
        checker.check(placed(late, 4, follows=2))


def test_a_failed_step_leaves_what_its_lanes_held_before():
    checker, _ = check(seat(tokens=range(6), blocks=(0, 1)))
    checker.check_failed(placed(plan(decodes=(0,)), 2))
    late = plan(joins=(join(1, cached=4),), grows=(grow(1, 0, 9),), chunks=(chunk(1, 4, 7),))
    assert checker.check(placed(late, 3, follows=1))
    with pytest.raises(PlanFault, match="block 1, of which 2 positions are written"):
        checker.check(placed(plan(joins=(join(2, cached=8),), grows=(grow(2, 0, 1),)), 4))


@pytest.mark.parametrize(
    ("failed", "message"),
    [
        (plan(leaves=(3,)), "lane 3 is free"),
        (plan(step_id=9), "step is 9, the last was 1"),
        (plan(follows=7), "it follows step 7"),
    ],
)
def test_a_step_that_failed_keeps_to_every_rule(failed, message):
    checker, _ = check(seat())
    with pytest.raises(PlanFault, match=message):
        checker.check_failed(placed(failed, 2))


@pytest.mark.parametrize(
    ("skipped", "message"),
    [
        (placed(plan(), 3, follows=1), "it follows step 1, and not one that has not run since 1"),
        (placed(plan(), 3, follows=3), "it follows step 3"),
        (placed(plan(), 4, follows=2), "step is 4, the last was 2"),
    ],
)
def test_only_what_follows_a_step_that_has_not_run_is_skipped(skipped, message):
    checker, _ = check(seat())
    checker.check_failed(placed(plan(decodes=(0,)), 2))
    with pytest.raises(PlanFault, match=message):
        checker.check_skipped(skipped)
