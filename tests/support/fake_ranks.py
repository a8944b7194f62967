"""A faithful double of the rank group: no torch, no processes, every rule checked.

The next token is a function of the sum and length of the whole history, read back
through the lane's own block table from a shared store of blocks. So any slip of a
position, a block or an order changes tokens. What a real rank refuses, this one
refuses by an AssertionError.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from lanehost.errors import RankGroupLost
from lanehost.rank_group.facts import GroupFacts
from ranks.plan import (
    Chunk,
    Draw,
    LaneFault,
    RefusalKind,
    ResolvedRows,
    StagedSlice,
    StepPlan,
    StepRefused,
    StepResult,
    result_digest,
    rows_digest,
)
from tests.support.fake_files import FakeDisk, FakeFiles
from tests.support.fake_images import fake_images
from tests.support.fake_staging import FakePasses
from tests.support.fake_target import VOCAB_SIZE, next_token
from tests.support.rank_rules import RankRules

if TYPE_CHECKING:
    from collections.abc import Callable

_SPOILT = 10_007  # no token: whoever reads it draws something else


def fake_facts(
    *,
    num_lanes: int = 4,
    num_blocks: int = 32,
    block_size: int = 4,
    max_step_tokens: int = 16,
    vocab_size: int = VOCAB_SIZE,
    **images: Any,
) -> GroupFacts:
    return GroupFacts(
        epoch=1,
        world_size=1,
        weights_digest="fake",
        config_digest="fake",
        vocab_size=vocab_size,
        context_length=4096,
        num_lanes=num_lanes,
        num_blocks=num_blocks,
        block_size=block_size,
        max_step_tokens=max_step_tokens,
        dtype="fake",
        weights="fake",
        device="fake",
        collective="none",
        **images,
    )


@dataclass
class FakeLane:
    draw: Draw
    block_ids: list[int] = field(default_factory=list[int])
    num_written: int = 0
    last_drawn: int | None = None
    num_digested_blocks: int = 0


class LostWhen(Enum):
    """How far a step gets by which the group is lost.

    AT_ONCE: nothing comes of it, nor of one in flight before it. BEHIND: it is computed, as
    all before it, and its answer alone does not come.
    """

    AT_ONCE = "at once"
    BEHIND = "behind"


class FakeRanks:
    """Implements `lanehost.engine.backend.Backend`.

    With `is_manual`, a step comes back only after `let_step_back()`; otherwise on the
    next turns of the loop. Lanes that draw with `nan_seed` fail. `lost_at_step` and
    `refused_at_step` name steps: what follows a refused step no longer fits, and is
    refused too. `loses` says of each plan whether and when the group is lost by it.

    A step cannot be run (FAILED, and nothing of it is) that has more than `room_prompts`
    prompts, rows of a lane with one of the `poisoned_seeds`, drafts while `fails_drafts`,
    or of which `fails` says so. What its rows would have written is spoilt: a real rank may
    have got that far. Those that follow it are skipped. `on_plan` is called with each plan as
    it arrives: to cancel somebody at this very chunk, for instance.
    """

    def __init__(self, facts: GroupFacts, *, is_manual: bool = False) -> None:
        self._facts = facts
        self._lanes: dict[int, FakeLane] = {}
        self._cells: dict[tuple[int, int], int] = {}
        self._outcomes: deque[StepResult | StepRefused] = deque()
        self._may_return = asyncio.Semaphore(0)
        self._is_manual = is_manual
        self._last_step_id = 0
        self._last_run_id = 0
        self._not_run: set[int] = set()
        self.plans: list[StepPlan] = []
        self.nan_seed: int | None = None
        self.lost_at_step: int | None = None
        self.refused_at_step: int | None = None
        self.room_prompts: int | None = None
        self.poisoned_seeds: set[int] = set()
        self.fails_drafts = False
        self.fails: Callable[[StepPlan], bool] = lambda _: False
        self.on_plan: Callable[[StepPlan], None] = lambda _: None
        self.loses: Callable[[StepPlan], LostWhen | None] = lambda _: None
        self._unanswered: set[int] = set()
        self._lost = asyncio.Event()
        self._error: RankGroupLost | None = None
        self.files: FakeFiles | None = None
        self.images, self._rules = fake_images(facts), RankRules(facts)
        self.passes = FakePasses(num_layers=facts.num_layers, max_rows=facts.max_staged_tokens)
        self.takes_ns: Callable[[StepPlan], int] = lambda _: 0

    def successor(self) -> "FakeRanks":
        """The next epoch's: the same faults, and nothing run. It is lost at no named step."""
        after = FakeRanks(replace(self._facts, epoch=self._facts.epoch + 1))
        after._is_manual = self._is_manual
        after.nan_seed, after.room_prompts = self.nan_seed, self.room_prompts
        after.poisoned_seeds, after.fails_drafts = self.poisoned_seeds, self.fails_drafts
        after.fails, after.on_plan, after.loses = self.fails, self.on_plan, self.loses
        after.takes_ns = self.takes_ns
        if self.images is not None:
            after.images.turns, after.images.fault = self.images.turns, self.images.fault
        if self.files is not None:
            after.use_disk(self.files.disk, turns=self.files.turns)
            after.files.fault = self.files.fault
        return after

    def use_disk(self, disk: FakeDisk, *, turns: "Callable[[], int]" = lambda: 0) -> None:
        """Have files on this disk; each work takes so many turns of the loop."""
        self.files = FakeFiles(disk, read=self._read_rows, write=self._write_rows, turns=turns)

    def _read_rows(self, block_id: int) -> tuple[int, ...]:
        return tuple(self._cells[block_id, at] for at in range(self._facts.block_size))

    def _write_rows(self, block_id: int, rows: tuple[int, ...]) -> None:
        for at in range(self._facts.block_size):
            self._cells[block_id, at] = rows[at] if rows else _SPOILT

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    async def until_lost(self) -> None:
        await self._lost.wait()

    @property
    def facts(self) -> GroupFacts:
        return self._facts

    @property
    def num_lanes_held(self) -> int:
        return len(self._lanes)

    @property
    def plans_run(self) -> list[StepPlan]:
        """The plans of which something came."""
        return [plan for plan in self.plans if plan.step_id not in self._not_run]

    @property
    def has_outcome(self) -> bool:
        return bool(self._outcomes)

    def let_step_back(self) -> None:
        self._may_return.release()

    def lose(self, error: RankGroupLost | None = None) -> None:
        self._error = self._error or error or self._gone()
        if self.files is not None:
            self.files.lose()
        if self.images is not None:
            self.images.lose()
        self._lost.set()
        self._may_return.release()

    def _gone(self) -> RankGroupLost:
        return RankGroupLost("rank 0 is gone", epoch=self._facts.epoch, rank=0)

    def seeds_run(self, plan: StepPlan) -> set[int]:
        """The seeds of those who have rows in a plan that was not run yet."""
        seeds = {lane_id: lane.draw.seed for lane_id, lane in self._lanes.items()}
        seeds |= {join.lane_id: join.draw.seed for join in plan.joins}
        # Behind a step that failed, a plan may have lanes that never joined.
        running = (*(chunk.lane_id for chunk in plan.prompts), *plan.decodes)
        return {seeds[lane_id] for lane_id in running if lane_id in seeds}

    def submit(self, plan: StepPlan) -> None:
        if self._error is not None:
            raise self._error
        self.plans.append(plan)
        assert plan.step_id > self._last_step_id
        assert plan.epoch == self._facts.epoch
        assert plan.num_tokens <= self._facts.max_step_tokens
        self._last_step_id = plan.step_id
        self.on_plan(plan)
        lost_when = LostWhen.AT_ONCE if plan.step_id == self.lost_at_step else self.loses(plan)
        if lost_when is LostWhen.AT_ONCE:
            self.lose()
            return
        if lost_when is LostWhen.BEHIND:
            self._unanswered.add(plan.step_id)
        kind = self._rules.judge(plan, self._refusal(plan))
        if kind is None:
            self._last_run_id = plan.step_id
            self._outcomes.append(self._rules.commit(self._run(plan)))
        else:
            self._not_run.add(plan.step_id)
            if kind is RefusalKind.FAILED:
                self._spoil(plan)
                if plan.staged is not None:
                    self.passes.drop()
            self._outcomes.append(
                StepRefused(step_id=plan.step_id, epoch=plan.epoch, kind=kind, reason="asked to")
            )
        if not self._is_manual:
            self._may_return.release()

    def _refusal(self, plan: StepPlan) -> RefusalKind | None:
        if self.refused_at_step is not None and plan.step_id >= self.refused_at_step:
            return RefusalKind.MISMATCH
        if plan.follows != self._last_run_id:
            assert plan.follows in self._not_run, "follows a step that was never there"
            return RefusalKind.SKIPPED
        fails = (
            (self.room_prompts is not None and len(plan.prompts) > self.room_prompts)
            or not self.poisoned_seeds.isdisjoint(self.seeds_run(plan))
            or (self.fails_drafts and bool(plan.drafts))
            or self.fails(plan)
        )
        return RefusalKind.FAILED if fails else None

    def _spoil(self, plan: StepPlan) -> None:
        drafts, lanes = plan.drafts_by_lane, self._lanes
        rows = [(chunk.lane_id, chunk.start, len(chunk.token_ids)) for chunk in plan.prompts]
        rows += [(n, lanes[n].num_written, 1 + len(drafts.get(n, ()))) for n in plan.decodes]
        gained = {grow.lane_id: grow.block_ids for grow in plan.grows}
        joined = {join.lane_id for join in plan.joins}
        for lane_id, start, num_tokens in rows:
            held = [] if lane_id in joined else lanes[lane_id].block_ids
            table = (*held, *gained.get(lane_id, ()))
            for position in range(start, start + num_tokens):
                block, offset = divmod(position, self._facts.block_size)
                self._cells[table[block], offset] = _SPOILT

    async def next_outcome(self) -> StepResult | StepRefused:
        await self._may_return.acquire()
        await asyncio.sleep(0)
        if self._error is None and self._outcomes[0].step_id in self._unanswered:
            self.lose()
        if self._error is not None:
            raise self._error
        return self._outcomes.popleft()

    def _run(self, plan: StepPlan) -> StepResult:
        self._move_lanes(plan)
        fed: list[int] = []
        drawn: dict[int, int] = {}
        failures: dict[int, LaneFault] = {}
        accepted: dict[int, tuple[int, ...]] = {}
        rows: list[ResolvedRows] = []
        for chunk in plan.chunks:
            rows.append(self._write_chunk(chunk, chunk.token_ids))
            fed += chunk.token_ids
            if chunk.draws:
                self._draw(chunk.lane_id, drawn, failures)
        for lane_id in plan.decodes:
            lane = self._lanes[lane_id]
            assert lane.last_drawn is not None, "decodes before its prompt was complete"
            draft = plan.drafts_by_lane.get(lane_id, ())
            token_ids = (lane.last_drawn, *draft)
            rows.append(self._write(lane_id, token_ids, draft or None))
            fed += token_ids
            if draft:
                accepted[lane_id] = self._keep_what_is_right(lane, draft)
            self._draw(lane_id, drawn, failures)
        if plan.staged is not None:
            rows += self._run_slice(plan.staged, drawn, failures)
            fed += [one for chunk in plan.staged.chunks for one in chunk.token_ids]
        assert set(plan.drafts_by_lane) <= set(plan.decodes), "a draft of a lane that decodes not"
        assert len({row.lane_id for row in rows}) == len(rows), "a lane twice in one plan"
        assert plan.digest == rows_digest(plan.step_id, plan.epoch, rows, plan.staged), (
            "digests differ"
        )
        return StepResult(
            step_id=plan.step_id,
            epoch=plan.epoch,
            drawn=drawn,
            failures=failures,
            accepted=accepted,
            digest=result_digest(plan.digest, fed, drawn),
            compute_ns=self.takes_ns(plan),
        )

    def _run_slice(
        self, staged: StagedSlice, drawn: dict[int, int], failures: dict[int, LaneFault]
    ) -> list[ResolvedRows]:
        assert self.images is not None, "images for ranks that take none"
        written = self.passes.run(staged, self.images)
        rows = []
        for chunk in staged.chunks:
            # Until the pass has ended, whoever reads them draws something else.
            cells = written.get(chunk.lane_id, (_SPOILT,) * len(chunk.token_ids))
            rows.append(self._write_chunk(chunk, cells))
            if not written:
                self._lanes[chunk.lane_id].num_written = chunk.start
            elif chunk.draws:
                self._draw(chunk.lane_id, drawn, failures)
        return rows

    def _move_lanes(self, plan: StepPlan) -> None:
        busy = {*plan.leaves, *plan.decodes, *(chunk.lane_id for chunk in plan.chunks)}
        assert busy.isdisjoint(self.passes.lanes), "a lane of the open pass"
        for lane_id in plan.leaves:
            del self._lanes[lane_id]
        for join in plan.joins:
            assert join.lane_id not in self._lanes, "joined a taken lane"
            assert join.lane_id < self._facts.num_lanes
            assert join.num_cached_tokens % self._facts.block_size == 0
            self._lanes[join.lane_id] = FakeLane(draw=join.draw, num_written=join.num_cached_tokens)
        for grow in plan.grows:
            self._grow(grow.lane_id, grow.block_ids)

    def _write_chunk(self, chunk: Chunk, cells: tuple[int, ...]) -> ResolvedRows:
        lane = self._lanes[chunk.lane_id]
        assert chunk.start == lane.num_written, "chunk does not begin where the last ended"
        row = self._write(chunk.lane_id, cells, chunk.token_ids)
        return replace(row, images=chunk.images)

    def _grow(self, lane_id: int, block_ids: tuple[int, ...]) -> None:
        assert all(0 <= block < self._facts.num_blocks for block in block_ids)
        self._lanes[lane_id].block_ids.extend(block_ids)

    def _write(
        self, lane_id: int, token_ids: tuple[int, ...], told_ids: tuple[int, ...] | None
    ) -> ResolvedRows:
        lane = self._lanes[lane_id]
        start = lane.num_written
        for token_id in token_ids:
            block, offset = divmod(lane.num_written, self._facts.block_size)
            block_id = lane.block_ids[block]
            others = [other for key, other in self._lanes.items() if key != lane_id]
            assert not any(block_id in other.block_ids for other in others), "wrote a shared block"
            is_busy = self.files is not None and block_id in self.files.busy_blocks
            assert not is_busy, "wrote a block that a file is read into"
            self._cells[block_id, offset] = token_id
            lane.num_written += 1
        gained = tuple(lane.block_ids[lane.num_digested_blocks :])
        lane.num_digested_blocks = len(lane.block_ids)
        return ResolvedRows(
            lane_id=lane_id,
            start=start,
            num_blocks=len(lane.block_ids),
            gained_blocks=gained,
            token_ids=told_ids,
        )

    def _history(self, lane: FakeLane) -> list[int]:
        positions = (divmod(at, self._facts.block_size) for at in range(lane.num_written))
        return [self._cells[lane.block_ids[block], offset] for block, offset in positions]

    def _target(self, lane: FakeLane) -> int:
        return next_token(self._history(lane), lane.draw, self._facts.vocab_size)

    def _draw(self, lane_id: int, drawn: dict[int, int], failures: dict[int, LaneFault]) -> None:
        lane = self._lanes[lane_id]
        lane.last_drawn = self._target(lane)
        if lane.draw.seed == self.nan_seed:
            failures[lane_id] = LaneFault.NAN
            lane.last_drawn = 0
        else:
            drawn[lane_id] = lane.last_drawn

    def _keep_what_is_right(self, lane: FakeLane, draft: tuple[int, ...]) -> tuple[int, ...]:
        """Go back to the last position whose token is the target's own."""
        end = lane.num_written
        lane.num_written = end - len(draft)
        num_right = 0
        while num_right < len(draft) and draft[num_right] == self._target(lane):
            num_right += 1
            lane.num_written += 1
        return draft[:num_right]
