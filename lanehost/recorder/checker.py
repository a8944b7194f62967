"""Check plans against every rule that a rank holds them to, without a rank; pure.

A plan that passes: its step id is the next one, and it follows the last step that ran;
lanes that leave are taken, lanes that join are free; blocks are within the pool and none
is twice in a lane; what is said to be cached is whole and computed; a chunk goes on where
its lane is, a decode has a token to feed; no block is written that another lane has too;
the budget holds; a staged pass goes on where it stopped, and its lanes do nothing else; an
image is whole; the digest is that of the rows. After a fault the checker is of no more
use, like the group that refused.

A plan is followed once its outcome is known, so there is nothing to take back: what
failed or was skipped has never been followed.
"""

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace

from lanehost.rank_group.facts import GroupFacts
from ranks.plan import (
    Chunk,
    ChunkImage,
    LaneGrow,
    LaneJoin,
    ResolvedRows,
    StagedSlice,
    StepPlan,
    rows_digest,
)

_NOBODY: frozenset[int] = frozenset()


class PlanFault(Exception):
    """A plan breaks a rule; `lane_id` is whose, None when it is the plan's own."""

    def __init__(self, message: str, *, lane_id: int | None = None) -> None:
        """Say which rule, with both values."""
        super().__init__(message)
        self.lane_id = lane_id


@dataclass(slots=True, kw_only=True)
class CheckedLane:
    """A lane that is taken: its block table, and how far it is written."""

    block_ids: list[int] = field(default_factory=list)
    num_cached_tokens: int = 0
    num_tokens: int = 0
    num_digested_blocks: int = 0
    has_drawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRows:
    """What a lane runs in a step; `token_ids` None feeds what it drew last.

    `draft_ids` are run behind that. `cached_block_ids` are blocks that the lane begins
    with, in its first rows alone. Rows of a staged pass are done with its last slice.
    """

    lane_id: int
    start: int
    num_tokens: int
    token_ids: tuple[int, ...] | None
    draft_ids: tuple[int, ...]
    block_ids: tuple[int, ...]
    gained_block_ids: tuple[int, ...]
    cached_block_ids: tuple[int, ...]
    draws: bool
    images: tuple[ChunkImage, ...] = ()
    is_done: bool = True


class PlanChecker:
    """Lanes and blocks as the plans so far have made them."""

    def __init__(self, facts: GroupFacts, *, proves_digests: bool = True) -> None:
        """Begin with every lane free and no block written.

        Args:
            facts: What the ranks agreed on.
            proves_digests: Whether the plans are as they were: they digest token ids.
        """
        self._facts = facts
        self._proves_digests = proves_digests
        self._lanes: dict[int, CheckedLane] = {}
        self._last_step_id = 0
        self._last_run_id = 0
        # How many lanes have a block, and how many positions of it are written.
        self._holders: Counter[int] = Counter()
        self._num_written: Counter[int] = Counter()
        self._open_pass: StagedSlice | None = None
        self._last_pass_id = 0

    def check(
        self, plan: StepPlan, *, guessing: frozenset[int] = _NOBODY
    ) -> tuple[CheckedRows, ...]:
        """Follow a plan that has run and return its rows; `settle` takes each.

        Args:
            plan: The plan.
            guessing: Lanes of which a draft was in flight when it was written.

        Raises:
            PlanFault: It breaks a rule.
        """
        self._check_frame(plan)
        self._check_follows(plan)
        self._check_behind(plan, guessing)
        self._check_pass(plan)
        for lane_id in plan.leaves:
            self._leave(lane_id)
        for join in plan.joins:
            self._join(join)
        for grow in plan.grows:
            self._grow(grow)
        for join in plan.joins:
            self._check_cached(join)
        drafts = plan.drafts_by_lane
        if not drafts.keys() <= set(plan.decodes):
            raise PlanFault(f"drafts for lanes {sorted(drafts)}, decodes {plan.decodes}")
        rows = (
            *(self._run_chunk(chunk) for chunk in plan.chunks),
            *(self._run_decode(lane_id, drafts.get(lane_id, ())) for lane_id in plan.decodes),
            *self._run_slice(plan.staged),
        )
        if not self._proves_digests:
            return rows
        digest = rows_digest(plan.step_id, plan.epoch, self._resolved(rows), plan.staged)
        if digest != plan.digest:
            raise PlanFault(f"digest is {plan.digest.hex()}, that of its rows {digest.hex()}")
        return rows

    def settle(self, row: CheckedRows, num_accepted: int) -> None:
        """Follow a result: `num_accepted` tokens of a draft were right, the rest is not there."""
        if not row.draft_ids:
            return
        size = self._facts.block_size
        end = row.start + 1 + num_accepted
        for index in range(end // size, -(-(row.start + row.num_tokens) // size)):
            self._num_written[row.block_ids[index]] = max(end - index * size, 0)
        self._lanes[row.lane_id].num_tokens = end

    def check_failed(self, plan: StepPlan, *, guessing: frozenset[int] = _NOBODY) -> None:
        """Follow a plan that could not be run: the lanes are as they were before.

        How much of its rows it has written nobody knows: no lane may begin with that.

        Raises:
            PlanFault: It breaks a rule, so no rank can have begun it.
        """
        rows = deepcopy(self).check(plan, guessing=guessing)
        self._last_step_id = plan.step_id
        if plan.staged is not None:
            self._open_pass = None
        for row in rows:
            self._unwrite(row)

    def check_skipped(self, plan: StepPlan) -> None:
        """Follow a plan that was not run since one before it had failed.

        What it does is no matter: it was written for lanes that never came to be.

        Raises:
            PlanFault: Its id is not the next one, or the step that it follows has run.
        """
        self._check_frame(plan)
        if not self._last_run_id < plan.follows < plan.step_id:
            raise PlanFault(
                f"it follows step {plan.follows}, and not one that has not run since "
                f"{self._last_run_id}"
            )

    def _check_follows(self, plan: StepPlan) -> None:
        if plan.follows != self._last_run_id:
            raise PlanFault(
                f"it follows step {plan.follows}, the last that has run is {self._last_run_id}"
            )
        self._last_run_id = plan.step_id

    def _check_frame(self, plan: StepPlan) -> None:
        if plan.epoch != self._facts.epoch:
            raise PlanFault(f"epoch is {plan.epoch}, the group is in {self._facts.epoch}")
        if plan.step_id != self._last_step_id + 1:
            raise PlanFault(f"step is {plan.step_id}, the last was {self._last_step_id}")
        self._last_step_id = plan.step_id
        if plan.num_tokens > self._facts.max_step_tokens:
            raise PlanFault(f"{plan.num_tokens} tokens, limit {self._facts.max_step_tokens}")
        running = Counter([*(chunk.lane_id for chunk in plan.prompts), *plan.decodes])
        for lane_id, count in running.items():
            if count > 1:
                raise PlanFault(f"lane {lane_id} runs {count} times", lane_id=lane_id)

    def _check_pass(self, plan: StepPlan) -> None:
        """See that a slice begins a pass or goes on with the open one, and nobody touches that."""
        staged, begun = plan.staged, self._open_pass
        if begun is not None:
            busy = {chunk.lane_id for chunk in begun.chunks}
            others = (*plan.leaves, *plan.decodes, *(chunk.lane_id for chunk in plan.chunks))
            for lane_id in busy.intersection(others):
                raise PlanFault(f"lane {lane_id} is in the open pass", lane_id=lane_id)
        if staged is None:
            return
        first_layer = 0 if begun is None else begun.stop_layer
        if not staged.first_layer == first_layer < staged.stop_layer <= self._facts.num_layers:
            raise PlanFault(
                f"layers {staged.first_layer} to {staged.stop_layer} of {self._facts.num_layers}, "
                f"the pass is at {first_layer}"
            )
        if begun is None:
            self._check_new_pass(staged)
        elif (staged.pass_id, staged.chunks) != (begun.pass_id, begun.chunks):
            raise PlanFault(f"pass {staged.pass_id} is not the one that is open, {begun.pass_id}")

    def _check_new_pass(self, staged: StagedSlice) -> None:
        if staged.pass_id <= self._last_pass_id:
            raise PlanFault(f"pass {staged.pass_id} after pass {self._last_pass_id}")
        if not 0 < staged.num_tokens <= self._facts.max_staged_tokens:
            raise PlanFault(
                f"a pass has {staged.num_tokens} rows, limit {self._facts.max_staged_tokens}"
            )
        for chunk in staged.chunks:
            position = chunk.start
            for image in chunk.images:
                if not position <= image.start < image.stop <= chunk.start + len(chunk.token_ids):
                    raise PlanFault(
                        f"image {image.image_id} is not whole in its chunk", lane_id=chunk.lane_id
                    )
                position = image.stop
        self._last_pass_id = staged.pass_id

    def _run_slice(self, staged: StagedSlice | None) -> Iterator[CheckedRows]:
        if staged is None:
            return
        is_done = staged.stop_layer == self._facts.num_layers
        self._open_pass = None if is_done else staged
        for chunk in staged.chunks:
            lane = self._taken(chunk.lane_id)
            before = (lane.num_tokens, lane.has_drawn)
            rows = self._run_chunk(chunk)
            if not is_done:
                lane.num_tokens, lane.has_drawn = before
                self._unwrite(rows)
            yield replace(rows, images=chunk.images, is_done=is_done, draws=chunk.draws and is_done)

    @staticmethod
    def _check_behind(plan: StepPlan, guessing: frozenset[int]) -> None:
        """See that no lane decodes from a position that nobody can have known."""
        for lane_id in guessing.intersection(plan.decodes):
            message = f"lane {lane_id} decodes behind a draft in flight"
            raise PlanFault(message, lane_id=lane_id)

    def _leave(self, lane_id: int) -> None:
        self._holders.subtract(self._taken(lane_id).block_ids)
        del self._lanes[lane_id]

    def _join(self, join: LaneJoin) -> None:
        if not 0 <= join.lane_id < self._facts.num_lanes:
            raise PlanFault(
                f"lane {join.lane_id} joins, there are {self._facts.num_lanes}",
                lane_id=join.lane_id,
            )
        if join.lane_id in self._lanes:
            raise PlanFault(f"lane {join.lane_id} joins, it is taken", lane_id=join.lane_id)
        if join.num_cached_tokens % self._facts.block_size or join.num_cached_tokens < 0:
            raise PlanFault(
                f"lane {join.lane_id} joins with {join.num_cached_tokens} cached tokens, "
                f"no whole blocks of {self._facts.block_size}",
                lane_id=join.lane_id,
            )
        self._lanes[join.lane_id] = CheckedLane(
            num_cached_tokens=join.num_cached_tokens, num_tokens=join.num_cached_tokens
        )

    def _grow(self, grow: LaneGrow) -> None:
        lane = self._taken(grow.lane_id)
        for block_id in grow.block_ids:
            if not 0 <= block_id < self._facts.num_blocks:
                raise PlanFault(
                    f"lane {grow.lane_id} gets block {block_id}, there are "
                    f"{self._facts.num_blocks}",
                    lane_id=grow.lane_id,
                )
        lane.block_ids.extend(grow.block_ids)
        self._holders.update(grow.block_ids)
        if len(set(lane.block_ids)) != len(lane.block_ids):
            raise PlanFault(f"lane {grow.lane_id} has a block twice", lane_id=grow.lane_id)

    def _check_cached(self, join: LaneJoin) -> None:
        """See that all cached positions are there."""
        cached = self._cached_blocks(self._lanes[join.lane_id])
        if len(cached) * self._facts.block_size != join.num_cached_tokens:
            raise PlanFault(
                f"lane {join.lane_id} joins with {join.num_cached_tokens} cached tokens and "
                f"{len(cached)} blocks",
                lane_id=join.lane_id,
            )
        for block_id in cached:
            if self._num_written[block_id] != self._facts.block_size:
                raise PlanFault(
                    f"lane {join.lane_id} begins with block {block_id}, of which "
                    f"{self._num_written[block_id]} positions are written",
                    lane_id=join.lane_id,
                )

    def _run_chunk(self, chunk: Chunk) -> CheckedRows:
        lane = self._taken(chunk.lane_id)
        if chunk.start != lane.num_tokens:
            raise PlanFault(
                f"lane {chunk.lane_id} starts at {chunk.start}, it is at {lane.num_tokens}",
                lane_id=chunk.lane_id,
            )
        if lane.has_drawn or not chunk.token_ids:
            what = "has drawn before its chunk" if lane.has_drawn else "has an empty chunk"
            raise PlanFault(f"lane {chunk.lane_id} {what}", lane_id=chunk.lane_id)
        if any(not 0 <= token_id < self._facts.vocab_size for token_id in chunk.token_ids):
            raise PlanFault(
                f"lane {chunk.lane_id} has a token id outside the vocabulary",
                lane_id=chunk.lane_id,
            )
        end = lane.num_tokens + len(chunk.token_ids)
        self._write(chunk.lane_id, lane, end=end)
        rows = self._rows(chunk.lane_id, lane, end=end, token_ids=chunk.token_ids)
        lane.num_tokens = end
        lane.has_drawn = chunk.draws
        return replace(rows, draws=chunk.draws)

    def _run_decode(self, lane_id: int, draft_ids: tuple[int, ...]) -> CheckedRows:
        lane = self._taken(lane_id)
        if not lane.has_drawn:
            raise PlanFault(f"lane {lane_id} decodes before it has drawn", lane_id=lane_id)
        end = lane.num_tokens + 1 + len(draft_ids)
        self._write(lane_id, lane, end=end)
        rows = self._rows(lane_id, lane, end=end, token_ids=None)
        lane.num_tokens += 1
        return replace(rows, draft_ids=draft_ids)

    def _write(self, lane_id: int, lane: CheckedLane, *, end: int) -> None:
        start, size = lane.num_tokens, self._facts.block_size
        room = min(len(lane.block_ids) * size, self._facts.context_length)
        if end > room:
            raise PlanFault(f"lane {lane_id} writes to {end}, it has {room}", lane_id=lane_id)
        for index in range(start // size, -(-end // size)):
            block_id = lane.block_ids[index]
            if self._holders[block_id] > 1:
                raise PlanFault(
                    f"lane {lane_id} writes block {block_id}, which another has too",
                    lane_id=lane_id,
                )
            self._num_written[block_id] = min(size, end - index * size)

    def _unwrite(self, row: CheckedRows) -> None:
        """Note that nobody knows how much of these rows is written."""
        size = self._facts.block_size
        for index in range(row.start // size, -(-(row.start + row.num_tokens) // size)):
            self._num_written[row.block_ids[index]] = max(row.start - index * size, 0)

    def _rows(
        self, lane_id: int, lane: CheckedLane, *, end: int, token_ids: tuple[int, ...] | None
    ) -> CheckedRows:
        is_first = lane.num_tokens == lane.num_cached_tokens
        gained = tuple(lane.block_ids[lane.num_digested_blocks :])
        lane.num_digested_blocks = len(lane.block_ids)
        return CheckedRows(
            lane_id=lane_id,
            start=lane.num_tokens,
            num_tokens=end - lane.num_tokens,
            token_ids=token_ids,
            draft_ids=(),
            block_ids=tuple(lane.block_ids),
            gained_block_ids=gained,
            cached_block_ids=self._cached_blocks(lane) if is_first else (),
            draws=True,
        )

    def _cached_blocks(self, lane: CheckedLane) -> tuple[int, ...]:
        return tuple(lane.block_ids[: lane.num_cached_tokens // self._facts.block_size])

    def _taken(self, lane_id: int) -> CheckedLane:
        lane = self._lanes.get(lane_id)
        if lane is None:
            raise PlanFault(f"lane {lane_id} is free", lane_id=lane_id)
        return lane

    def _resolved(self, rows: tuple[CheckedRows, ...]) -> Iterator[ResolvedRows]:
        for row in rows:
            yield ResolvedRows(
                lane_id=row.lane_id,
                start=row.start,
                num_blocks=len(row.block_ids),
                gained_blocks=row.gained_block_ids,
                token_ids=row.token_ids or row.draft_ids or None,
                images=row.images,
            )
