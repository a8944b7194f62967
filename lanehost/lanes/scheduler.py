"""Decide what the next step computes.

A pure function of the lanes: no clock, no I/O, no memory of the step before.
Laws: a plan never exceeds its token budget; a lane is in it at most once; a long prompt
cannot stall a running stream: lanes that decode come first, and while any does, prompts
get `max_fill_tokens` of the step at most; prompts fill up in the order in which their
jobs were seated, scopes beside each other (`lanehost.lanes.fill`), those in the foreground
first, so none waits for a later one, and one in the background for no more than
`MAX_PASSED_OVER` steps in a row; a lane whose step could not be run has its next one for
itself; and however many of these there are, and whatever fails again, those that decode go
on in between.

A suspect, by which the group may have been lost (ADR 20), runs alone: no step of another is
in flight with one of its own. It takes turns with the others, a step each, so neither waits
for the other for long; a staged pass of the others is one turn, however many steps it takes.

Prompts with images run in staged passes beside all that (`lanehost.lanes.staged_pass`): they
take no row of the step, and no lane waits for them but those whose rows they have. While a pass
is open nobody guesses: a guess begins behind a token that is known, so each would wait for two
slices.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lanehost.lanes.fill import divide_fill
from lanehost.lanes.lane import Lane
from lanehost.lanes.staged_pass import StagedFrame, next_slice, whole_pass
from lanehost.lanes.staging import Staging
from lanehost.lanes.table import LaneTable
from lanehost.settings import CHEAP_ROWS
from ranks.plan import (
    Chunk,
    LaneDraft,
    LaneGrow,
    LaneJoin,
    ResolvedRows,
    StagedSlice,
    StepPlan,
    rows_digest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFrame:
    """What a plan must say and keep to, whatever the lanes hold.

    Attributes:
        step_id: The id of the step.
        follows: The step that will be the last to have run before it, 0 for none.
        epoch: The rank group's.
        max_step_tokens: Tokens that a step may run.
        max_fill_tokens: Those of prompts, in a step that streams wait for.
        max_prompts: Prompts that may share the step: a pass.
        weights: Of scopes, by which their prompts share it.
        staged: What staged passes keep to; None where the model takes no images.
    """

    step_id: int
    follows: int
    epoch: int
    max_step_tokens: int
    max_fill_tokens: int
    max_prompts: int
    weights: Mapping[str, int]
    staged: StagedFrame | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What the lanes run in one step."""

    chunks: tuple[Chunk, ...] = ()
    decoding: tuple[Lane, ...] = ()
    drafts: tuple[LaneDraft, ...] = ()
    staged: StagedSlice | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether no lane runs."""
        return not self.chunks and not self.decoding and self.staged is None

    @property
    def staged_chunks(self) -> tuple[Chunk, ...]:
        """The rows of the pass of which it runs some layers."""
        return () if self.staged is None else self.staged.chunks


def plan_step(lanes: LaneTable, frame: StepFrame) -> StepPlan | None:
    """Plan one step, or return None when there is nothing to run and nothing to tell."""
    work = _choose_work(lanes, frame)
    if work.is_nothing and not lanes.pending_leaves:
        return None
    prompts = (*work.chunks, *work.staged_chunks)
    running = [*(lanes[chunk.lane_id] for chunk in prompts), *work.decoding]
    rows = [_prompt_rows(lanes[chunk.lane_id], chunk) for chunk in work.chunks]
    guesses = {draft.lane_id: draft.token_ids for draft in work.drafts}
    rows += [_decode_rows(lane, guesses.get(lane.lane_id)) for lane in work.decoding]
    rows += [_prompt_rows(lanes[chunk.lane_id], chunk) for chunk in work.staged_chunks]
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
        chunks=work.chunks,
        decodes=tuple(lane.lane_id for lane in work.decoding),
        drafts=work.drafts,
        staged=work.staged,
        digest=rows_digest(frame.step_id, frame.epoch, rows, work.staged),
    )


def _choose_work(lanes: LaneTable, frame: StepFrame) -> _Work:
    suspects = [lane for lane in lanes if lane.is_suspect]
    if not suspects:
        return _of_others(list(lanes), lanes.staging, frame)
    if any(not lane.is_settled for lane in suspects):
        return _Work()
    others = [lane for lane in lanes if not lane.is_suspect]
    work = _of_others(others, lanes.staging, frame)
    if lanes.staging.open is not None:
        return work
    turn = _turn_of(suspects, lanes.staging, frame)
    ran_last = max((lane.last_step_id for lane in others), default=0)
    if turn is None or (ran_last < turn.lane.last_step_id and not work.is_nothing):
        return work
    # It waits for what is in flight, and nothing more leaves before it.
    is_one_out = any(not lane.is_settled for lane in others)
    return _Work() if is_one_out else turn.work


@dataclass(frozen=True, slots=True)
class _Turn:
    """A lane that runs alone, and what."""

    lane: Lane
    work: _Work


def _turn_of(suspects: list[Lane], staging: Staging, frame: StepFrame) -> _Turn | None:
    """Return the turn of the suspect that has waited longest for a step that it can run."""
    for lane in sorted(suspects, key=lambda lane: (lane.last_step_id, lane.seat_number)):
        work = _work_alone(lane, staging, frame)
        if not work.is_nothing:
            return _Turn(lane, work)
    return None


def _work_alone(lane: Lane, staging: Staging, frame: StepFrame) -> _Work:
    if lane.wants_prefill:
        return _Work(chunks=(_next_chunk(lane, frame.max_step_tokens),))
    if lane.wants_staging and frame.staged is not None:
        return _Work(staged=whole_pass(staging, lane, frame.staged))
    return _Work(decoding=(lane,) if lane.can_decode else ())


def _of_others(lanes: list[Lane], staging: Staging, frame: StepFrame) -> _Work:
    """Return the work of those that are no suspects."""
    # Who guesses waits for what is in flight: each token would wait for two slices.
    guesses = staging.open is None
    decoding = [
        lane
        for lane in lanes
        if not lane.is_alone and (lane.can_decode if guesses else lane.can_decode_now)
    ]
    if any(lane.is_owed for lane in decoding):
        return _owed(decoding, frame)
    alone = _alone(lanes, staging, frame)
    together = _together(lanes, decoding, staging, frame)
    # One by one, and the others between them: what runs behind one that fails is lost.
    is_one_out = any(lane.is_alone and not lane.is_settled for lane in lanes)
    return together if alone is None or (is_one_out and not together.is_nothing) else alone


def _owed(decoding: list[Lane], frame: StepFrame) -> _Work:
    """Return the work of the lanes that decode, without prompts: a step was undone for one.

    A prompt that cannot be run takes everybody's step along. If the next step had a prompt
    again, whoever sends such prompts one by one would stop all that decode.
    """
    budget = frame.max_step_tokens - len(decoding)
    return _Work(decoding=tuple(decoding), drafts=tuple(_drafts(decoding, budget=budget)))


def _alone(lanes: list[Lane], staging: Staging, frame: StepFrame) -> _Work | None:
    """Return the work of the first lane that must run alone and can, if there is one."""
    for lane in sorted(lanes, key=lambda lane: lane.seat_number):
        if lane.is_alone and lane.is_settled:
            work = _work_alone(lane, staging, frame)
            if not work.is_nothing:
                return work
    return None


def _together(lanes: list[Lane], decoding: list[Lane], staging: Staging, frame: StepFrame) -> _Work:
    by_id = {lane.lane_id: lane for lane in lanes}
    sharing = [lane for lane in lanes if not lane.is_alone]
    budget = frame.max_step_tokens - len(decoding)
    assert budget >= 0, "the step's budget must hold a token of every lane"
    # Also those that let this step pass, for a guess: they wait for its end.
    streams_wait = any(lane.wants_decode for lane in lanes)
    fill = min(budget, frame.max_fill_tokens) if streams_wait else budget
    given = divide_fill(sharing, budget=fill, max_prompts=frame.max_prompts, weights=frame.weights)
    return _Work(
        chunks=tuple(_next_chunk(by_id[lane_id], tokens) for lane_id, tokens in given.items()),
        decoding=tuple(decoding),
        drafts=()
        if staging.open is not None
        else tuple(_drafts(decoding, budget=budget - sum(given.values()))),
        staged=None
        if frame.staged is None
        else next_slice(staging, sharing, frame.staged, max_prompts=frame.max_prompts),
    )


def _next_chunk(lane: Lane, budget: int) -> Chunk:
    start = lane.num_planned_tokens
    end = min(start + budget, lane.fill_end)
    return Chunk(
        lane_id=lane.lane_id,
        start=start,
        token_ids=lane.prefill_ids[start:end],
        draws=end == len(lane.prefill_ids) and not lane.is_warm,
    )


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


def _prompt_rows(lane: Lane, chunk: Chunk) -> ResolvedRows:
    return ResolvedRows(
        lane_id=lane.lane_id,
        start=chunk.start,
        num_blocks=len(lane.block_ids),
        gained_blocks=lane.block_ids[lane.num_announced_blocks :],
        token_ids=chunk.token_ids,
        images=chunk.images,
    )


def _decode_rows(lane: Lane, draft_ids: tuple[int, ...] | None) -> ResolvedRows:
    return ResolvedRows(
        lane_id=lane.lane_id,
        start=lane.num_planned_tokens,
        num_blocks=len(lane.block_ids),
        gained_blocks=lane.block_ids[lane.num_announced_blocks :],
        token_ids=draft_ids,
    )
