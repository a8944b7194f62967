"""The lanes of a rank, and how one plan changes them; pure.

Laws: a plan is checked as a whole before anything of it is run, so that no collective
begins that a fellow rank would refuse; a plan runs only behind the very step that it
follows; a refused plan changes nothing; what two ranks hold after the same plans is the
same.

A lane's state is immutable: a plan makes new states beside the old ones, and the
executor takes them over when the step has been run. So is the open pass
(`ranks.staged_pass`): its lanes run nothing else, their `num_tokens` move and they draw with its
last slice only, and a step that failed with a slice of it drops it.
"""

from dataclasses import dataclass, replace

from ranks.errors import StepMismatch, StepSkipped
from ranks.plan import (
    Chunk,
    ChunkImage,
    Draw,
    LaneGrow,
    LaneJoin,
    ResolvedRows,
    StagedSlice,
    StepPlan,
    rows_digest,
)
from ranks.staged_pass import OpenPass, PassLimits, next_pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan is checked against.

    A pass goes through `num_layers` and has `max_staged_tokens` rows at most; 0 for no passes.
    """

    epoch: int
    num_lanes: int
    num_blocks: int
    block_size: int
    max_step_tokens: int
    vocab_size: int
    context_length: int
    num_layers: int = 1
    max_staged_tokens: int = 0

    @property
    def of_passes(self) -> PassLimits:
        """Those of staged passes."""
        return PassLimits(num_layers=self.num_layers, max_tokens=self.max_staged_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One occupied lane.

    `num_tokens` positions are written; `last_drawn` is the token that a decode feeds,
    None until one was drawn. `num_digested_blocks` are those that a digest has covered.
    """

    draw: Draw
    block_table: tuple[int, ...] = ()
    num_tokens: int = 0
    last_drawn: int | None = None
    num_digested_blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What one lane runs in one step: `token_ids` at positions from `start` on.

    The last `num_draws` of its rows draw. Behind the first of those, the tokens are a
    draft: `draft_ids`. `images` stand among them in a staged slice, which draws with the end
    of its pass.
    """

    lane_id: int
    start: int
    token_ids: tuple[int, ...]
    block_table: tuple[int, ...]
    num_digested_blocks: int
    draw: Draw
    num_draws: int
    images: tuple[ChunkImage, ...] = ()

    @property
    def end(self) -> int:
        """The position after the last: the one that a drawn token will take."""
        return self.start + len(self.token_ids)

    @property
    def draft_ids(self) -> tuple[int, ...]:
        """The guess that these rows check."""
        return self.token_ids[1:] if self.num_draws > 1 else ()

    @property
    def draw_positions(self) -> range:
        """The positions that the drawn tokens will take."""
        return range(self.end - self.num_draws + 1, self.end + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedStep:
    """A plan that fits: its rows in order, and the lanes as they are once it has run.

    `staged_rows` are those of its slice, and `open_pass` is the pass behind it.
    """

    plan: StepPlan
    rows: tuple[Rows, ...]
    lanes: dict[int, Lane]
    staged_rows: tuple[Rows, ...] = ()
    open_pass: OpenPass | None = None

    @property
    def ends_pass(self) -> bool:
        """Whether its slice is the last of its pass."""
        return self.plan.staged is not None and self.open_pass is None


class LaneTable:
    """All lanes of this rank."""

    def __init__(self, limits: Limits) -> None:
        """Start with every lane free."""
        self._limits = limits
        self._lanes: dict[int, Lane] = {}
        # The last step that came here, and the last of them that has run.
        self._last_step_id = 0
        self._last_run_id = 0
        self._open_pass: OpenPass | None = None
        # Of the passes that came here to be opened.
        self._last_pass_id = 0

    @property
    def open_pass(self) -> OpenPass | None:
        """The pass of which some layers have run."""
        return self._open_pass

    @property
    def lanes(self) -> dict[int, Lane]:
        """The occupied lanes, a copy."""
        return dict(self._lanes)

    def check(self, plan: StepPlan) -> CheckedStep:
        """Check a plan as a whole; changes nothing but the last ids of steps and passes.

        The id of a refused step is spent: the next plan carries a higher one. Ids may be
        passed over, since what a plan follows proves that none is missing. An id out of
        order spends nothing. The id of a pass is spent once its first slice fits.

        Raises:
            StepMismatch: The plan does not fit; the message names what and both values.
            StepSkipped: The plan may fit, but the step that it follows has not run.
        """
        if plan.epoch != self._limits.epoch:
            raise StepMismatch(f"epoch is {plan.epoch}, this rank is in {self._limits.epoch}")
        if plan.step_id <= self._last_step_id:
            raise StepMismatch(f"step is {plan.step_id}, the last was {self._last_step_id}")
        last_step_id, self._last_step_id = self._last_step_id, plan.step_id
        self._check_follows(plan, last_step_id)
        busy = frozenset() if self._open_pass is None else self._open_pass.lane_ids
        after = _LanesAfter(self._limits, dict(self._lanes), busy)
        after.move(plan)
        drafts = _drafts_by_lane(plan)
        rows = (
            *map(after.run_chunk, plan.chunks),
            *(after.run_decode(lane_id, drafts.get(lane_id, ())) for lane_id in plan.decodes),
        )
        open_pass = self._open_pass
        staged_rows: tuple[Rows, ...] = ()
        if plan.staged is not None:
            limits = self._limits.of_passes
            open_pass = next_pass(self._open_pass, plan.staged, self._last_pass_id, limits)
            staged_rows = after.run_slice(plan.staged, ends=open_pass is None)
        self._check_whole(plan, rows, staged_rows)
        if plan.staged is not None:
            self._last_pass_id = plan.staged.pass_id
        return CheckedStep(
            plan=plan, rows=rows, lanes=after.lanes, staged_rows=staged_rows, open_pass=open_pass
        )

    def commit(
        self,
        step: CheckedStep,
        drawn: dict[int, int],
        accepted: dict[int, tuple[int, ...]] | None = None,
    ) -> None:
        """Take over the lanes of a step that has run.

        Args:
            step: What was run.
            drawn: Lane → its new token.
            accepted: Lane → the part of its draft that was right; the positions of the
                rest are written again.
        """
        for lane_id, token_id in drawn.items():
            step.lanes[lane_id] = replace(step.lanes[lane_id], last_drawn=token_id)
        for rows in step.rows:
            if rows.draft_ids:
                num_tokens = rows.start + 1 + len((accepted or {}).get(rows.lane_id, ()))
                lane = step.lanes[rows.lane_id]
                step.lanes[rows.lane_id] = replace(lane, num_tokens=num_tokens)
        self._lanes = step.lanes
        self._open_pass = step.open_pass
        self._last_run_id = step.plan.step_id

    def fail(self, step: CheckedStep) -> None:
        """Take note that a step could not be run: a pass of which it had a slice is dropped."""
        if step.plan.staged is not None:
            self._open_pass = None

    def _check_follows(self, plan: StepPlan, last_step_id: int) -> None:
        if plan.follows == self._last_run_id:
            return
        if self._last_run_id < plan.follows <= last_step_id:
            raise StepSkipped(
                f"it follows step {plan.follows}, which has not run; "
                f"the last that has is {self._last_run_id}"
            )
        raise StepMismatch(
            f"it follows step {plan.follows}, the last that has run is {self._last_run_id}"
        )

    def _check_whole(
        self, plan: StepPlan, rows: tuple[Rows, ...], staged_rows: tuple[Rows, ...]
    ) -> None:
        if plan.num_tokens > self._limits.max_step_tokens:
            raise StepMismatch(
                f"the step has {plan.num_tokens} tokens, limit {self._limits.max_step_tokens}"
            )
        lane_ids = [row.lane_id for row in (*rows, *staged_rows)]
        if len(set(lane_ids)) != len(lane_ids):
            raise StepMismatch(f"a lane is there twice in the rows of lanes {lane_ids}")
        num_chunks = len(plan.chunks)
        resolved = [_resolved(row, row.token_ids) for row in rows[:num_chunks]]
        resolved += [_resolved(row, row.draft_ids or None) for row in rows[num_chunks:]]
        resolved += [_resolved(row, row.token_ids) for row in staged_rows]
        digest = rows_digest(plan.step_id, plan.epoch, resolved, plan.staged)
        if digest != plan.digest:
            raise StepMismatch(
                f"the rows' digest is {digest.hex()}, the plan has {plan.digest.hex()}"
            )


class _LanesAfter:
    """The lanes as a plan changes them, beside those that hold; `busy` are in the open pass."""

    def __init__(self, limits: Limits, lanes: dict[int, Lane], busy: frozenset[int]) -> None:
        self._limits = limits
        self._busy = busy
        self.lanes = lanes

    def move(self, plan: StepPlan) -> None:
        """Apply leaves, joins, grows."""
        for lane_id in plan.leaves:
            self._free_to_run(lane_id)
            del self.lanes[lane_id]
        for join in plan.joins:
            self._join(join)
        for grow in plan.grows:
            self._grow(grow)

    def run_chunk(self, chunk: Chunk) -> Rows:
        """Write a part of a prompt."""
        if chunk.images:
            raise StepMismatch(f"lane {chunk.lane_id} has images outside of a staged slice")
        lane = self._free_to_run(chunk.lane_id)
        rows = self._prompt_rows(lane, chunk)
        self._advance(lane, rows, rows.end)
        return rows

    def run_slice(self, staged: StagedSlice, *, ends: bool) -> tuple[Rows, ...]:
        """Run layers over parts of prompts, which are written once the pass `ends`."""
        found: list[Rows] = []
        for chunk in staged.chunks:
            lane = self._occupied(chunk.lane_id)
            found.append(self._prompt_rows(lane, chunk))
            self._advance(lane, found[-1], found[-1].end if ends else lane.num_tokens)
        return tuple(found)

    def _prompt_rows(self, lane: Lane, chunk: Chunk) -> Rows:
        if chunk.start != lane.num_tokens:
            raise StepMismatch(
                f"lane {chunk.lane_id} starts at {chunk.start}, it is at {lane.num_tokens}"
            )
        if not chunk.token_ids:
            raise StepMismatch(f"lane {chunk.lane_id} has a chunk of no tokens")
        if lane.last_drawn is not None:
            raise StepMismatch(f"lane {chunk.lane_id} has drawn, no chunk may follow")
        self._check_tokens(chunk.lane_id, chunk.token_ids)
        rows = self._rows(chunk.lane_id, lane, chunk.token_ids, num_draws=int(chunk.draws))
        return replace(rows, images=chunk.images)

    def run_decode(self, lane_id: int, draft_ids: tuple[int, ...]) -> Rows:
        """Feed the token that the lane drew last, and a guess of what follows it."""
        lane = self._free_to_run(lane_id)
        if lane.last_drawn is None:
            raise StepMismatch(f"lane {lane_id} has drawn no token to go on from")
        self._check_tokens(lane_id, draft_ids)
        token_ids = (lane.last_drawn, *draft_ids)
        rows = self._rows(lane_id, lane, token_ids, num_draws=len(token_ids))
        self._advance(lane, rows, rows.end)
        return rows

    def _check_tokens(self, lane_id: int, token_ids: tuple[int, ...]) -> None:
        for token_id in token_ids:
            if not 0 <= token_id < self._limits.vocab_size:
                raise StepMismatch(
                    f"lane {lane_id} has token id {token_id}, "
                    f"the vocabulary has {self._limits.vocab_size}"
                )

    def _rows(
        self, lane_id: int, lane: Lane, token_ids: tuple[int, ...], *, num_draws: int
    ) -> Rows:
        rows = Rows(
            lane_id=lane_id,
            start=lane.num_tokens,
            token_ids=token_ids,
            block_table=lane.block_table,
            num_digested_blocks=lane.num_digested_blocks,
            draw=lane.draw,
            num_draws=num_draws,
        )
        room = min(len(lane.block_table) * self._limits.block_size, self._limits.context_length)
        if rows.end > room:
            raise StepMismatch(
                f"lane {lane_id} would hold {rows.end} tokens, it has room for {room}"
            )
        return rows

    def _advance(self, lane: Lane, rows: Rows, num_tokens: int) -> None:
        self.lanes[rows.lane_id] = replace(
            lane, num_tokens=num_tokens, num_digested_blocks=len(lane.block_table)
        )

    def _join(self, join: LaneJoin) -> None:
        if not 0 <= join.lane_id < self._limits.num_lanes:
            raise StepMismatch(
                f"lane {join.lane_id} joins, there are lanes 0 to {self._limits.num_lanes - 1}"
            )
        if join.lane_id in self.lanes:
            raise StepMismatch(f"lane {join.lane_id} joins, it is occupied")
        if join.num_cached_tokens % self._limits.block_size:
            raise StepMismatch(
                f"lane {join.lane_id} joins with {join.num_cached_tokens} cached tokens, "
                f"no multiple of the block size {self._limits.block_size}"
            )
        self.lanes[join.lane_id] = Lane(draw=join.draw, num_tokens=join.num_cached_tokens)

    def _grow(self, grow: LaneGrow) -> None:
        lane = self._occupied(grow.lane_id)
        table = lane.block_table + grow.block_ids
        for block_id in grow.block_ids:
            if not 0 <= block_id < self._limits.num_blocks:
                raise StepMismatch(
                    f"lane {grow.lane_id} gets block {block_id}, "
                    f"there are blocks 0 to {self._limits.num_blocks - 1}"
                )
        if len(set(table)) != len(table):
            raise StepMismatch(f"lane {grow.lane_id} gets a block that it has: {table}")
        self.lanes[grow.lane_id] = replace(lane, block_table=table)

    def _free_to_run(self, lane_id: int) -> Lane:
        if lane_id in self._busy:
            raise StepMismatch(f"lane {lane_id} is in the open pass")
        return self._occupied(lane_id)

    def _occupied(self, lane_id: int) -> Lane:
        lane = self.lanes.get(lane_id)
        if lane is None:
            raise StepMismatch(f"lane {lane_id} is free")
        return lane


def _resolved(rows: Rows, token_ids: tuple[int, ...] | None) -> ResolvedRows:
    return ResolvedRows(
        lane_id=rows.lane_id,
        start=rows.start,
        num_blocks=len(rows.block_table),
        gained_blocks=rows.block_table[rows.num_digested_blocks :],
        token_ids=token_ids,
        images=rows.images,
    )


def _drafts_by_lane(plan: StepPlan) -> dict[int, tuple[int, ...]]:
    drafts = plan.drafts_by_lane
    if len(drafts) != len(plan.drafts) or not all(drafts.values()):
        raise StepMismatch(f"drafts {plan.drafts} name a lane twice, or hold nothing")
    if not set(drafts) <= set(plan.decodes):
        raise StepMismatch(f"drafts of lanes {sorted(drafts)}, decodes {plan.decodes}")
    return drafts
