"""All lanes: who sits where, and what the ranks must still be told.

Laws: a lane carries at most one job, a job sits in at most one lane; a lane that the
ranks know is announced as left before its seat is announced to another.
"""

from collections.abc import Iterator

from lanehost.job import Job
from lanehost.lanes.lane import Lane, LaneEvent, LaneState
from ranks.plan import StepPlan


class LaneTable:
    """The seats, numbered from 0."""

    def __init__(self, num_lanes: int) -> None:
        """Begin with every lane free."""
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

    def seat(self, job: Job, block_ids: tuple[int, ...], *, num_cached_tokens: int = 0) -> Lane:
        """Give `job` the free lane with the lowest number; there must be one.

        Args:
            job: Who sits down.
            block_ids: Its block table.
            num_cached_tokens: Positions whose KV is in the first of these blocks already.
        """
        assert job.job_id not in self._by_job, f"{job.job_id} sits already"
        lane = next(lane for lane in self._lanes if lane.state is LaneState.FREE)
        lane.fire(LaneEvent.SEATED)
        lane.job = job
        lane.block_ids = block_ids
        lane.num_cached_tokens = num_cached_tokens
        lane.num_computed_tokens = num_cached_tokens
        lane.num_planned_tokens = num_cached_tokens
        self._num_seated += 1
        lane.seat_number = self._num_seated
        self._by_job[job.job_id] = lane.lane_id
        return lane

    def advance(self, plan: StepPlan) -> None:
        """Note what `plan` will have done once it has run."""
        for lane_id in plan.leaves:
            self._unannounced_leaves.remove(lane_id)
        for join in plan.joins:
            self._lanes[join.lane_id].is_announced = True
        for chunk in plan.chunks:
            lane = self._lanes[chunk.lane_id]
            lane.num_planned_tokens += len(chunk.token_ids)
            lane.num_planned_draws += chunk.draws
            lane.last_step_id = plan.step_id
        for lane_id in plan.decodes:
            lane = self._lanes[lane_id]
            lane.num_planned_tokens += 1
            lane.num_planned_draws += 1
            lane.last_step_id = plan.step_id

    def retire(self, plan: StepPlan) -> None:
        """Note that `plan` has run: the KV of its rows is there."""
        for chunk in plan.chunks:
            self._lanes[chunk.lane_id].num_computed_tokens += len(chunk.token_ids)
        for lane_id in plan.decodes:
            self._lanes[lane_id].num_computed_tokens += 1

    def release(self, lane: Lane) -> tuple[int, ...]:
        """Free a draining lane; returns its blocks, which nothing in flight writes any more."""
        lane.fire(LaneEvent.RELEASED)
        assert lane.job is not None
        del self._by_job[lane.job.job_id]
        block_ids = lane.block_ids
        if lane.is_announced:
            self._unannounced_leaves.append(lane.lane_id)
        lane.job = None
        lane.block_ids = ()
        lane.num_cached_tokens = 0
        lane.num_computed_tokens = 0
        lane.num_planned_tokens = 0
        lane.num_planned_draws = 0
        lane.last_step_id = 0
        lane.is_announced = False
        return block_ids
