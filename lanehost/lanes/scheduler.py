"""Decide what the next step computes.

A pure function of the lanes: no clock, no I/O, no memory of the step before.
Laws: a plan never exceeds its token budget; a lane is in it at most once; decode
lanes come first, so a long prompt cannot stall a running stream; prompts fill up in
the order in which their jobs were seated, so none waits for a later one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from lanehost.lanes.lane import Lane
from lanehost.lanes.table import LaneTable
from lanehost.settings import CHEAP_ROWS
from ranks.plan import Chunk, LaneDraft, LaneGrow, LaneJoin, ResolvedRows, StepPlan, rows_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFrame:
    """What a plan must say and keep to, whatever the lanes hold.

    `follows` is the step that will be the last to have run before this one, 0 for none.
    """

    step_id: int
    follows: int
    epoch: int
    max_step_tokens: int


def plan_step(lanes: LaneTable, frame: StepFrame) -> StepPlan | None:
    """Plan one step, or return None when there is nothing to run and nothing to tell."""
    decoding = [lane for lane in lanes if lane.can_decode]
    budget = frame.max_step_tokens - len(decoding)
    assert budget >= 0, "the step's budget must hold a token of every lane"
    chunks = _chunks(lanes, budget=budget)
    drafts = _drafts(decoding, budget=budget - sum(len(chunk.token_ids) for chunk in chunks))
    if not decoding and not chunks and not lanes.pending_leaves:
        return None
    running = [lanes[chunk.lane_id] for chunk in chunks] + decoding
    rows = [_rows(lanes[chunk.lane_id], chunk.token_ids) for chunk in chunks]
    guesses = {draft.lane_id: draft.token_ids for draft in drafts}
    rows += [_rows(lane, guesses.get(lane.lane_id)) for lane in decoding]
    return StepPlan(
        step_id=frame.step_id,
        epoch=frame.epoch,
        follows=frame.follows,
        leaves=lanes.pending_leaves,
        joins=tuple(
            LaneJoin(
                lane_id=lane.lane_id,
                draw=lane.job.draw,
                num_cached_tokens=lane.num_cached_tokens,
            )
            for lane in running
            if not lane.is_announced
        ),
        grows=tuple(
            LaneGrow(lane_id=lane.lane_id, block_ids=lane.block_ids[lane.num_announced_blocks :])
            for lane in running
            if lane.num_announced_blocks < len(lane.block_ids)
        ),
        chunks=tuple(chunks),
        decodes=tuple(lane.lane_id for lane in decoding),
        drafts=tuple(drafts),
        digest=rows_digest(frame.step_id, frame.epoch, rows),
    )


def _chunks(lanes: Iterable[Lane], *, budget: int) -> list[Chunk]:
    waiting = [lane for lane in lanes if lane.wants_prefill]
    chunks: list[Chunk] = []
    for lane in sorted(waiting, key=lambda lane: lane.seat_number):
        if budget == 0:
            break
        start = lane.num_planned_tokens
        end = min(start + budget, len(lane.prefill_ids))
        chunks.append(
            Chunk(
                lane_id=lane.lane_id,
                start=start,
                token_ids=lane.prefill_ids[start:end],
                draws=end == len(lane.prefill_ids),
            )
        )
        budget -= end - start
    return chunks


def _drafts(decoding: list[Lane], *, budget: int) -> list[LaneDraft]:
    """Guess for the lanes that decode, while rows are cheap: a few more cost next to nothing."""
    left = min(budget, CHEAP_ROWS - len(decoding))
    drafts: list[LaneDraft] = []
    for lane in decoding:
        token_ids = lane.guess(left) if lane.is_settled else ()
        if token_ids:
            drafts.append(LaneDraft(lane_id=lane.lane_id, token_ids=token_ids))
            left -= len(token_ids)
    return drafts


def _rows(lane: Lane, token_ids: tuple[int, ...] | None) -> ResolvedRows:
    return ResolvedRows(
        lane_id=lane.lane_id,
        start=lane.num_planned_tokens,
        num_blocks=len(lane.block_ids),
        gained_blocks=lane.block_ids[lane.num_announced_blocks :],
        token_ids=token_ids,
    )
