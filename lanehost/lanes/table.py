"""All lanes: who sits where, and what the ranks must still be told.

Laws: a lane carries at most one job, a job sits in at most one lane; a lane that the
ranks know is announced as left before its seat is announced to another; a lane is in a
staged pass from the plan of the first slice on to that of the last, whatever its job does.
"""

from collections.abc import Iterator, Mapping

from lanehost.lanes.drafts import Drafter
from lanehost.lanes.lane import Lane, LaneEvent, LaneState
from lanehost.lanes.sequence import Sequence
from lanehost.lanes.staging import Staging
from ranks.plan import Chunk, StagedSlice, StepPlan


class LaneTable:
    """The seats, numbered from 0."""

    def __init__(
        self, num_lanes: int, *, block_size: int, max_drafts: int = 0, num_layers: int = 1
    ) -> None:
        """Begin with every lane free.

        Args:
            num_lanes: Seats in all.
            block_size: Positions in a block of KV.
            max_drafts: The most tokens that a lane guesses at once.
            num_layers: Of the model: a staged pass goes through them.
        """
        self.staging = Staging(num_layers=num_layers)
        self._max_drafts = max_drafts
        self._block_size = block_size
        self._lanes = [Lane(lane_id=lane_id) for lane_id in range(num_lanes)]
        self._by_job: dict[str, int] = {}
        self._unannounced_leaves: list[int] = []
        self._num_seated = 0

    def __repr__(self) -> str:
        counts = {state.name: 0 for state in LaneState}
        for lane in self._lanes:
            counts[lane.state.name] += 1
        return f"<LaneTable {' '.join(f'{name}={count}' for name, count in counts.items())}>"

    def __getitem__(self, lane_id: int) -> Lane:
        return self._lanes[lane_id]

    def __iter__(self) -> Iterator[Lane]:
        """Yield the lanes that carry a job, in order of lane id."""
        return (lane for lane in self._lanes if lane.state is not LaneState.FREE)

    @property
    def num_lanes(self) -> int:
        """Seats in all."""
        return len(self._lanes)

    @property
    def num_free(self) -> int:
        """Seats that carry no job."""
        return len(self._lanes) - len(self._by_job)

    @property
    def pending_leaves(self) -> tuple[int, ...]:
        """Lanes that the ranks still believe to be taken."""
        return tuple(self._unannounced_leaves)

    def find(self, job_id: str) -> Lane | None:
        """Return the lane of a job, or None when it sits nowhere."""
        lane_id = self._by_job.get(job_id)
        return None if lane_id is None else self._lanes[lane_id]

    def seat(
        self, sequence: Sequence, block_ids: tuple[int, ...], *, num_cached_tokens: int = 0
    ) -> Lane:
        """Give a sequence the free lane with the lowest number; there must be one.

        Args:
            sequence: Who sits down; all its tokens so far are computed first.
            block_ids: Its block table.
            num_cached_tokens: Positions whose KV is in the first of these blocks already.
        """
        job_id = sequence.job.job_id
        assert job_id not in self._by_job, f"{job_id} sits already"
        lane = next(lane for lane in self._lanes if lane.state is LaneState.FREE)
        self._num_seated += 1
        self._lanes[lane.lane_id] = lane = Lane(
            lane_id=lane.lane_id,
            sequence=sequence,
            prefill_ids=sequence.token_ids,
            max_draws=sequence.num_left,
            drafter=self._new_drafter(sequence),
            block_ids=block_ids,
            block_size=self._block_size,
            num_cached_tokens=num_cached_tokens,
            num_computed_tokens=num_cached_tokens,
            num_planned_tokens=num_cached_tokens,
            seat_number=self._num_seated,
        )
        lane.fire(LaneEvent.SEATED)
        self._by_job[job_id] = lane.lane_id
        return lane

    def _new_drafter(self, sequence: Sequence) -> Drafter | None:
        if self._max_drafts == 0 or sequence.was_suspect:
            return None
        return Drafter(sequence.token_ids, max_depth=self._max_drafts)

    def grow(self, lane: Lane, block_ids: tuple[int, ...]) -> None:
        """Append blocks to a lane's table; the next plan with rows of it tells the ranks."""
        lane.block_ids += block_ids

    def advance(self, plan: StepPlan) -> None:
        """Note what `plan` will have done once it has run."""
        for lane_id in plan.leaves:
            self._unannounced_leaves.remove(lane_id)
        for join in plan.joins:
            self._lanes[join.lane_id].is_announced = True
        for grow in plan.grows:
            self._lanes[grow.lane_id].num_announced_blocks += len(grow.block_ids)
        self._count_passed_over(plan)
        for chunk in plan.chunks:
            self._plan_rows(chunk)
            self._lanes[chunk.lane_id].last_step_id = plan.step_id
        if plan.staged is not None:
            self._advance_pass(plan.staged, plan.step_id)
        drafts = plan.drafts_by_lane
        for lane_id in plan.decodes:
            lane = self._lanes[lane_id]
            num_tokens = 1 + len(drafts.get(lane_id, ()))
            lane.num_planned_tokens += num_tokens
            lane.num_planned_draws += num_tokens
            lane.is_guessing = num_tokens > 1
            lane.is_owed = False
            lane.last_step_id = plan.step_id

    def _advance_pass(self, staged: StagedSlice, step_id: int) -> None:
        """Note what a slice does: the first one plans the rows, the last one lets lanes go on."""
        self.staging.advance(staged)
        for chunk in staged.chunks:
            lane = self._lanes[chunk.lane_id]
            lane.last_step_id = step_id
            lane.is_in_pass = not self.staging.ends(staged)
            if staged.first_layer == 0:
                self._plan_rows(chunk)

    def _undo_pass(self, staged: StagedSlice) -> None:
        self.staging.undo(staged)
        for chunk in staged.chunks:
            self._lanes[chunk.lane_id].is_in_pass = staged.first_layer > 0
            if staged.first_layer == 0:
                self._unplan_rows(chunk)

    def drop_pass(self) -> None:
        """Take back all of the open pass, of which a slice failed; the failed plan was undone."""
        for chunk in self.staging.drop():
            self._lanes[chunk.lane_id].is_in_pass = False
            self._unplan_rows(chunk)

    def _plan_rows(self, chunk: Chunk) -> None:
        lane = self._lanes[chunk.lane_id]
        lane.num_planned_tokens += len(chunk.token_ids)
        lane.num_planned_draws += chunk.draws

    def _unplan_rows(self, chunk: Chunk) -> None:
        lane = self._lanes[chunk.lane_id]
        lane.num_planned_tokens -= len(chunk.token_ids)
        lane.num_planned_draws -= chunk.draws

    def _count_passed_over(self, plan: StepPlan) -> None:
        """Count the turns of those that have a prompt to run; one that fails was a turn, too."""
        running = {chunk.lane_id for chunk in plan.prompts}
        for lane in self:
            if lane.lane_id in running:
                lane.num_passed_over = 0
            elif running and (lane.wants_prefill or lane.wants_staging):
                lane.num_passed_over += 1

    def undo(self, plan: StepPlan) -> None:
        """Take back what `advance` noted of a plan that was not run; the newest plan first.

        What it was to decode is owed to those lanes.
        """
        drafts = plan.drafts_by_lane
        for lane_id in plan.decodes:
            lane = self._lanes[lane_id]
            num_tokens = 1 + len(drafts.get(lane_id, ()))
            lane.num_planned_tokens -= num_tokens
            lane.num_planned_draws -= num_tokens
            lane.is_guessing = False
            lane.is_owed = True
        if plan.staged is not None:
            self._undo_pass(plan.staged)
        for chunk in plan.chunks:
            self._unplan_rows(chunk)
        for grow in plan.grows:
            self._lanes[grow.lane_id].num_announced_blocks -= len(grow.block_ids)
        for join in plan.joins:
            self._lanes[join.lane_id].is_announced = False
        self._unannounced_leaves[:0] = plan.leaves

    def retire(self, plan: StepPlan, accepted: Mapping[int, tuple[int, ...]]) -> None:
        """Note that `plan` has run: the KV of its rows is there.

        Args:
            plan: What was run.
            accepted: Lane → the part of its draft that was right; the rest is taken back.
        """
        for chunk in self.computed_by(plan):
            self._note_computed(self._lanes[chunk.lane_id], len(chunk.token_ids))
        for lane_id in plan.decodes:
            self._note_computed(self._lanes[lane_id], 1 + len(accepted.get(lane_id, ())))
        for lane_id, draft_ids in plan.drafts_by_lane.items():
            lane = self._lanes[lane_id]
            num_right = len(accepted.get(lane_id, ()))
            lane.num_planned_tokens -= len(draft_ids) - num_right
            lane.num_planned_draws -= len(draft_ids) - num_right
            lane.is_guessing = False
            assert lane.drafter is not None, f"{lane!r} guessed"
            lane.drafter.judge(len(draft_ids), num_right)

    def computed_by(self, plan: StepPlan) -> tuple[Chunk, ...]:
        """Return the parts of prompts that are there once `plan` has run: a pass, with its end."""
        staged = plan.staged
        passed = () if staged is None or not self.staging.ends(staged) else staged.chunks
        return (*plan.chunks, *passed)

    @staticmethod
    def _note_computed(lane: Lane, num_tokens: int) -> None:
        lane.num_computed_tokens += num_tokens
        lane.is_alone = False
        assert lane.sequence is not None, f"{lane!r} ran"
        lane.sequence.note_computed(lane.num_computed_tokens)

    def release(self, lane: Lane) -> tuple[int, ...]:
        """Free a draining lane; returns its blocks, which nothing in flight writes any more."""
        assert not lane.is_in_pass, f"{lane!r} is in the open pass"
        lane.fire(LaneEvent.RELEASED)
        del self._by_job[lane.job.job_id]
        if lane.is_announced:
            self._unannounced_leaves.append(lane.lane_id)
        self._lanes[lane.lane_id] = Lane(lane_id=lane.lane_id)
        return lane.block_ids
