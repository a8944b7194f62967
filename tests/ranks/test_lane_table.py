"""A plan is checked whole, before anything of it holds; a refused plan changes nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranks.errors import StepMismatch, StepSkipped
from ranks.lane_table import LaneTable, Limits
from ranks.plan import Chunk, Draw, LaneDraft, LaneGrow, LaneJoin, ResolvedRows, rows_digest
from tests.support.plan_writer import PlanWriter

LIMITS = Limits(
    epoch=1,
    num_lanes=4,
    num_blocks=16,
    block_size=4,
    max_step_tokens=12,
    vocab_size=100,
    context_length=40,
)


def table_with_lane_0():
    """Lane 0 holds 5 tokens in 2 blocks and has drawn token 7; lane 1 holds 3, not all of it."""
    table, writer = LaneTable(LIMITS), PlanWriter(block_size=4)
    step = table.check(writer.plan(prompts={0: [1, 2, 3, 4, 5]}))
    table.commit(step, {0: 7})
    step = table.check(writer.plan(prompts={1: [1, 2, 3]}, draws=False))
    table.commit(step, {})
    return table, writer


def test_a_plan_that_fits_gives_its_rows_in_order():
    table, writer = table_with_lane_0()
    step = table.check(writer.plan(more={1: [8, 9]}, decodes=(0,)))
    assert [(r.lane_id, r.start, r.token_ids, r.num_draws) for r in step.rows] == [
        (1, 3, (8, 9), 1),
        (0, 5, (7,), 1),
    ]


def test_nothing_holds_before_the_commit():
    table, writer = table_with_lane_0()
    before = table.lanes
    table.check(writer.plan(more={1: [8, 9]}, decodes=(0,)))
    assert table.lanes == before


def test_a_decode_feeds_what_the_lane_drew_last():
    table, writer = table_with_lane_0()
    for token_id in (11, 12):
        table.commit(table.check(writer.plan(decodes=(0,))), {0: token_id})
    assert table.check(writer.plan(decodes=(0,))).rows[0].token_ids == (12,)


def test_a_lane_may_leave_and_join_anew_in_one_plan():
    table, writer = table_with_lane_0()
    step = table.check(writer.plan(leaves=(0,), prompts={0: [5]}))
    assert step.rows[0].start == 0
    assert step.lanes[0].last_drawn is None


BROKEN = {
    "epoch is 2": lambda p: replace(p, epoch=2),
    "step is 2, the last was 2": lambda p: replace(p, step_id=2),
    "step is 1, the last was 2": lambda p: replace(p, step_id=1),
    "it follows step 1, the last that has run is 2": lambda p: replace(p, follows=1),
    "it follows step 3, the last that has run is 2": lambda p: replace(p, follows=3),
    "lane 3 is free": lambda p: replace(p, leaves=(3,)),
    "lane 1 is free": lambda p: replace(p, leaves=(1, 1)),
    "lane 0 joins, it is occupied": lambda p: replace(p, joins=(LaneJoin(lane_id=0, draw=Draw()),)),
    "lane 4 joins, there are lanes 0 to 3": lambda p: replace(
        p, joins=(LaneJoin(lane_id=4, draw=Draw()),)
    ),
    "lane 2 is free": lambda p: replace(p, grows=(LaneGrow(lane_id=2, block_ids=(9,)),)),
    "gets block 16, there are blocks 0 to 15": lambda p: replace(
        p, grows=(LaneGrow(lane_id=0, block_ids=(16,)),)
    ),
    "gets a block that it has": lambda p: replace(p, grows=(LaneGrow(lane_id=0, block_ids=(0,)),)),
    "lane 1 starts at 2, it is at 3": lambda p: replace(p, chunks=(chunk(1, 2, 8),)),
    "lane 1 has a chunk of no tokens": lambda p: replace(p, chunks=(chunk(1, 3),)),
    "token id 100, the vocabulary has 100": lambda p: replace(p, chunks=(chunk(1, 3, 100),)),
    "lane 0 has drawn, no chunk may follow": lambda p: replace(p, chunks=(chunk(0, 5, 8),)),
    "lane 1 has drawn no token": lambda p: replace(p, chunks=(), decodes=(1,)),
    "would hold 5 tokens, it has room for 4": lambda p: replace(p, chunks=(chunk(1, 3, 8, 8),)),
    "a lane is there twice": lambda p: replace(p, decodes=(0, 0)),
    "13 tokens, limit 12": lambda p: replace(
        p,
        grows=(LaneGrow(lane_id=1, block_ids=(9, 10, 11)),),
        chunks=(chunk(1, 3, *[8] * 12),),
        decodes=(0,),
    ),
    "the rows' digest is": lambda p: replace(p, digest=bytes(16)),
}


def chunk(lane_id, start, *token_ids):
    return Chunk(lane_id=lane_id, start=start, token_ids=token_ids, draws=True)


@pytest.mark.parametrize("says", BROKEN)
def test_a_plan_that_does_not_fit_is_refused_by_name_and_changes_nothing(says):
    table, writer = table_with_lane_0()
    before = table.lanes
    good = writer.plan(more={1: [8]}, decodes=(0,))
    with pytest.raises(StepMismatch, match=says):
        table.check(BROKEN[says](good))
    assert table.lanes == before


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_block_or_a_token_that_the_master_did_not_mean_is_refused(at):
    table, writer = LaneTable(LIMITS), PlanWriter(block_size=4)
    plan = writer.plan(prompts={0: list(range(12))})
    blocks, tokens = list(plan.grows[0].block_ids), list(plan.chunks[0].token_ids)
    blocks[at], tokens[at] = 14, 40
    for changes in (
        {"grows": (replace(plan.grows[0], block_ids=tuple(blocks)),)},
        {"chunks": (replace(plan.chunks[0], token_ids=tuple(tokens)),)},
    ):
        with pytest.raises(StepMismatch, match="the rows' digest is"):
            LaneTable(LIMITS).check(replace(plan, **changes))
    assert table.check(plan).rows


def test_blocks_that_a_lane_gained_without_running_are_digested_when_it_runs():
    table, writer = table_with_lane_0()
    silent = replace(
        writer.plan(more={1: [8]}), grows=(LaneGrow(lane_id=0, block_ids=(14, 15)),), chunks=()
    )
    table.commit(table.check(replace(silent, digest=rows_digest(silent.step_id, 1, []))), {})
    plan = writer.plan(decodes=(0,))
    lane = table.lanes[0]
    row = ResolvedRows(
        lane_id=0, start=lane.num_tokens, num_blocks=len(lane.block_table), gained_blocks=(14, 15),
        token_ids=None,
    )  # fmt: skip
    wrong = replace(row, gained_blocks=(15, 14))
    with pytest.raises(StepMismatch, match="the rows' digest is"):
        table.check(replace(plan, digest=rows_digest(plan.step_id, 1, [wrong])))
    writer.take_back(plan)
    plan = writer.plan(decodes=(0,))
    digest = rows_digest(plan.step_id, 1, [row])
    assert table.check(replace(plan, grows=(), digest=digest)).rows


def test_the_id_of_a_refused_step_is_spent():
    table, writer = table_with_lane_0()
    plan = writer.plan(decodes=(0,))
    with pytest.raises(StepMismatch):
        table.check(replace(plan, digest=bytes(16)))
    with pytest.raises(StepMismatch, match="step is 3, the last was 3"):
        table.check(plan)


def test_an_id_out_of_order_spends_nothing():
    table, writer = table_with_lane_0()
    plan = writer.plan(decodes=(0,))
    with pytest.raises(StepMismatch, match="step is 2"):
        table.check(replace(plan, step_id=2))
    assert table.check(plan).rows


def fails(table, plan):
    """A plan that fits, and is not committed: it could not be run."""
    return table.check(plan)


def test_a_plan_behind_one_that_has_not_run_is_skipped_and_changes_nothing():
    table, writer = table_with_lane_0()
    before = table.lanes
    failed, behind, further, last = (writer.plan(decodes=(0,)) for _ in range(4))
    last = replace(last, follows=3)
    fails(table, failed)
    for plan, names in ((behind, "step 3"), (further, "step 4"), (last, "step 3")):
        with pytest.raises(StepSkipped, match=f"follows {names}, which has not run.* is 2$"):
            table.check(plan)
    assert table.lanes == before


def test_what_follows_the_last_step_that_ran_runs_behind_failed_and_skipped_ones():
    table, writer = table_with_lane_0()
    failed, behind = (writer.plan(decodes=(0,)) for _ in range(2))
    fails(table, failed)
    with pytest.raises(StepSkipped):
        table.check(behind)
    writer.take_back(behind)
    writer.take_back(failed)
    again = writer.plan(decodes=(0,))
    assert (again.step_id, again.follows) == (5, 2)
    table.commit(table.check(again), {0: 8})
    assert table.lanes[0].num_tokens == 6
    assert table.check(writer.plan(decodes=(0,))).rows[0].token_ids == (8,)


def test_a_plan_that_follows_an_older_step_than_the_last_is_a_mismatch():
    table, writer = table_with_lane_0()
    plan = writer.plan(decodes=(0,))
    with pytest.raises(StepMismatch, match="it follows step 0, the last that has run is 2"):
        table.check(replace(plan, follows=0))


def test_ids_may_be_passed_over_but_no_step_may_be_missed():
    table, writer = table_with_lane_0()
    missed = writer.plan(decodes=(0,))
    with pytest.raises(StepMismatch, match="it follows step 3, the last that has run is 2"):
        table.check(writer.plan(decodes=(0,)))
    writer.next_step_id, writer.follows = 9, missed.follows
    writer.positions[0] -= 2
    table.commit(table.check(writer.plan(decodes=(0,))), {0: 8})
    assert table.lanes[0].num_tokens == 6


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12))
def test_a_rank_that_hears_only_of_what_ran_ends_in_the_same_state(turns):
    """Each turn is a plan that runs or fails, with another behind it in flight or not."""
    table, only_ran, writer = LaneTable(LIMITS), LaneTable(LIMITS), PlanWriter(block_size=4)
    joined = writer.plan(prompts={0: [1]})
    for one in (table, only_ran):
        one.commit(one.check(joined), {0: 7})
    for does_run, has_another in turns:
        plans = [writer.plan(decodes=(0,)) for _ in range(1 + has_another)]
        if does_run:
            for plan in plans:
                for one in (table, only_ran):
                    one.commit(one.check(plan), {0: plan.step_id})
            continue
        fails(table, plans[0])
        for plan in plans[1:]:
            with pytest.raises(StepSkipped):
                table.check(plan)
        for plan in reversed(plans):
            writer.take_back(plan)
    assert table.lanes == only_ran.lanes
    assert table.lanes[0].num_tokens == writer.positions[0]


def test_no_lane_passes_the_context_length():
    limits = replace(LIMITS, context_length=6)
    table, writer = LaneTable(limits), PlanWriter(block_size=4)
    table.commit(table.check(writer.plan(prompts={0: [1] * 6})), {0: 7})
    with pytest.raises(StepMismatch, match="would hold 7 tokens, it has room for 6"):
        table.check(writer.plan(decodes=(0,)))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(0, 5))
def test_a_prompt_in_any_chunks_ends_in_the_same_lane(lengths, num_decodes):
    prompt = list(range(sum(lengths)))[:30]

    def lane_after(parts):
        table, writer = LaneTable(LIMITS), PlanWriter(block_size=4)
        done = 0
        for part in parts:
            ids = prompt[done : done + part]
            kind = {"prompts": {2: ids}} if done == 0 else {"more": {2: ids}}
            done += part
            last = done >= len(prompt)
            step = table.check(writer.plan(**kind, draws=last))
            table.commit(step, {2: 50} if last else {})
            if last:
                break
        for turn in range(num_decodes):
            table.commit(table.check(writer.plan(decodes=(2,))), {2: turn})
        lane = table.lanes[2]
        return lane.num_tokens, lane.last_drawn, lane.block_table

    assert lane_after(lengths) == lane_after([1] * len(prompt))


def test_a_lane_that_joins_with_cached_tokens_goes_on_after_them():
    table, writer = table_with_lane_0()
    plan = writer.plan(prompts={2: [1, 2, 3]})
    joins = (LaneJoin(lane_id=2, draw=Draw(), num_cached_tokens=4),)
    grows = (LaneGrow(lane_id=2, block_ids=(0, 15)),)
    chunks = (Chunk(lane_id=2, start=4, token_ids=(5, 6, 7), draws=True),)
    row = ResolvedRows(lane_id=2, start=4, num_blocks=2, gained_blocks=(0, 15), token_ids=(5, 6, 7))
    digest = rows_digest(plan.step_id, plan.epoch, [row])
    step = table.check(replace(plan, joins=joins, grows=grows, chunks=chunks, digest=digest))
    assert [(rows.start, rows.end, rows.block_table) for rows in step.rows] == [(4, 7, (0, 15))]
    assert step.lanes[2].num_tokens == 7


def test_cached_tokens_that_end_within_a_block_are_refused():
    table, writer = table_with_lane_0()
    plan = writer.plan(prompts={2: [1, 2, 3]})
    joins = (LaneJoin(lane_id=2, draw=Draw(), num_cached_tokens=6),)
    with pytest.raises(StepMismatch, match="6 cached tokens, no multiple of the block size 4"):
        table.check(replace(plan, joins=joins))


def drafted(table_and_writer, draft_ids, *, lane_id=0):
    """A plan in which lane 0 decodes with a guess behind it."""
    _, writer = table_and_writer
    plan = writer.plan(decodes=(0,))
    row = ResolvedRows(
        lane_id=0, start=5, num_blocks=2, gained_blocks=(), token_ids=draft_ids or None
    )
    return replace(
        plan,
        drafts=(LaneDraft(lane_id=lane_id, token_ids=draft_ids),),
        digest=rows_digest(plan.step_id, plan.epoch, [row]),
    )


@pytest.mark.parametrize("accepted", [(), (8,), (8, 9)])
def test_a_lane_goes_on_behind_the_part_of_its_draft_that_was_right(accepted):
    rig = table, _ = table_with_lane_0()
    step = table.check(drafted(rig, (8, 9)))
    (rows,) = step.rows
    assert (rows.token_ids, rows.num_draws, rows.draft_ids) == ((7, 8, 9), 3, (8, 9))
    assert list(rows.draw_positions) == [6, 7, 8]
    table.commit(step, {0: 50}, {0: accepted})
    assert table.lanes[0].num_tokens == 6 + len(accepted)
    assert table.lanes[0].last_drawn == 50


@pytest.mark.parametrize(
    ("draft_ids", "lane_id", "match"),
    [
        ((), 0, "hold nothing"),
        ((8,), 1, "drafts of lanes"),
        ((100,), 0, "token id 100"),
        ((8, 8, 8), 0, "room for 8"),
    ],
)
def test_a_draft_that_does_not_fit_is_refused(draft_ids, lane_id, match):
    rig = table, _ = table_with_lane_0()
    with pytest.raises(StepMismatch, match=match):
        table.check(drafted(rig, draft_ids, lane_id=lane_id))
