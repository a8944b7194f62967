"""The one loop that owns lanes, blocks and the tickets of open jobs.

One turn: take what the inbox brought (arrivals, cancels, results) → settle → admit →
plan → hand the plan to the ranks. Nothing else is awaited than the inbox. Plan N+1 is
written while step N is in flight, so the ranks never wait for the master.

Laws: every job that arrives ends in exactly one terminal event; what a step in flight
still writes is freed when that step has retired, never before.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import assert_never

import structlog

from lanehost.admission.line import Line
from lanehost.admission.take_job import take_job
from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import PromptCache
from lanehost.engine.backend import Backend
from lanehost.engine.inbox import (
    Arrived,
    Cancel,
    CancelCause,
    Command,
    Drain,
    GroupLost,
    Inbox,
    PumpFailed,
    StepDone,
    Stop,
)
from lanehost.engine.observer import EngineObserver, NoObserver
from lanehost.engine.settle import Ending, settle_step
from lanehost.engine.ticket import Ticket
from lanehost.errors import (
    Cancelled,
    DeadlinePassed,
    Draining,
    LanehostError,
    RankGroupLost,
    ReplyCorrupt,
)
from lanehost.fault import record_fault
from lanehost.job import Failed, Finished
from lanehost.lanes.growth import grow_lanes
from lanehost.lanes.lane import Lane, LaneEvent, LaneState
from lanehost.lanes.scheduler import StepFrame, plan_step
from lanehost.lanes.table import LaneTable
from lanehost.settings import EngineSettings
from ranks.plan import StepPlan, StepRefused, StepResult

log = structlog.get_logger()

MAX_STEPS_IN_FLIGHT = 2


class Engine:
    """Runs jobs off the line through the backend until it is drained or stopped."""

    def __init__(
        self,
        backend: Backend,
        *,
        line: Line,
        inbox: Inbox,
        clock: Callable[[], float],
        settings: EngineSettings,
        observer: EngineObserver | None = None,
    ) -> None:
        """Begin idle.

        Args:
            backend: Where plans run.
            line: The waiting line; the door adds to it, the engine takes.
            inbox: What others tell the engine.
            clock: Seconds that only rise.
            settings: The prompt cache and the drafts.
            observer: Is told what becomes of each job.
        """
        facts = backend.facts
        self._backend = backend
        self._facts = facts
        self._line = line
        self._inbox = inbox
        self._clock = clock
        self._observer = observer or NoObserver()
        self._lanes = LaneTable(
            facts.num_lanes, block_size=facts.block_size, max_drafts=settings.max_drafts
        )
        self._blocks = BlockPool(num_blocks=facts.num_blocks, block_size=facts.block_size)
        self._cache = PromptCache(self._blocks, is_on=settings.prompt_cache)
        self._tickets: dict[str, Ticket] = {}
        self._in_flight: deque[StepPlan] = deque()
        self._last_step_id = 0
        self._is_draining = False
        self._is_idle = True
        self._is_stopped = False
        self._lost: RankGroupLost | None = None

    def __repr__(self) -> str:
        return f"<Engine {self._lanes!r} {self._blocks!r} {self._line!r}>"

    @property
    def lanes(self) -> LaneTable:
        """The lanes, to look at."""
        return self._lanes

    @property
    def blocks(self) -> BlockPool:
        """The block pool, to look at."""
        return self._blocks

    @property
    def cache(self) -> PromptCache:
        """The prompt cache, to look at."""
        return self._cache

    @property
    def num_open_jobs(self) -> int:
        """Jobs that arrived and have not ended."""
        return len(self._tickets)

    async def run(self) -> None:
        """Run until drained or stopped; whatever ends it, every job that is open is told.

        Raises:
            RankGroupLost: the ranks are gone.
            AssertionError: a broken invariant, a bug of ours; the jobs were told its record id.
        """
        ended_with: LanehostError = Draining("the server has ended")
        try:
            await self._run()
        except RankGroupLost as lost:
            ended_with = lost
            raise
        except Exception as bug:
            ended_with = record_fault(bug)
            raise
        finally:
            self._abandon_all(ended_with)

    async def _run(self) -> None:
        pump = asyncio.create_task(self._pump_outcomes(), name="outcomes")
        try:
            while not self._is_done:
                for command in await self._inbox.take_all():
                    self._handle(command)
                self._turn()
                self._note_idle()
        finally:
            pump.cancel()
            await asyncio.wait({pump})
        if self._lost is not None:
            raise self._lost

    @property
    def _is_done(self) -> bool:
        if self._is_stopped or self._lost is not None:
            return True
        return self._is_draining and not self._tickets and not self._in_flight

    async def _pump_outcomes(self) -> None:
        try:
            while True:
                self._inbox.put(StepDone(await self._backend.next_outcome()))
        except RankGroupLost as error:
            self._inbox.put(GroupLost(error))
        except Exception as bug:  # noqa: BLE001 - handed to the loop, which raises it
            self._inbox.put(PumpFailed(bug))

    def _handle(self, command: Command) -> None:
        match command:
            case Arrived(ticket=ticket):
                self._tickets[ticket.job.job_id] = ticket
                self._observer.job_arrived(ticket.job)
            case Cancel(job_id=job_id, cause=cause):
                self._cancel(job_id, cause)
            case StepDone(outcome=outcome):
                self._retire_step(outcome)
            case GroupLost(error=error):
                self._lose(error)
            case PumpFailed(error=bug):
                raise bug
            case Drain():
                self._is_draining = True
            case Stop(error=error):
                self._end_all(error)
                self._is_stopped = True
            case _:
                assert_never(command)

    def _turn(self) -> None:
        """Admit, grow and plan as far as lanes, blocks and steps in flight allow."""
        rooms = (self._line, self._lanes, self._blocks, self._cache)
        while (lane := take_job(*rooms)) is not None:
            self._note_seated(lane)
        while self._lost is None and len(self._in_flight) < MAX_STEPS_IN_FLIGHT:
            while (newest := grow_lanes(self._lanes, self._blocks, self._cache)) is not None:
                self._park(newest)
            frame = StepFrame(
                step_id=self._last_step_id + 1,
                follows=self._last_step_id,
                epoch=self._facts.epoch,
                max_step_tokens=self._facts.max_step_tokens,
            )
            plan = plan_step(self._lanes, frame)
            if plan is None:
                break
            self._submit(plan)

    def _note_seated(self, lane: Lane) -> None:
        ticket = self._tickets[lane.job.job_id]
        if ticket.seated_s is None:
            ticket.seated_s = self._clock()
            ticket.num_cached_tokens = lane.num_cached_tokens
        self._observer.job_seated(lane.job.job_id, lane.lane_id, lane.num_cached_tokens)
        log.info(
            "job_resumed" if ticket.sequence.was_parked else "job_started",
            job_id=lane.job.job_id,
            label=lane.job.label or None,
            lane_id=lane.lane_id,
            prompt_tokens=len(lane.job.prompt_ids),
            cached_tokens=lane.num_cached_tokens,
            queue_s=round(ticket.seated_s - lane.job.arrived_s, 3),
        )

    def _park(self, lane: Lane) -> None:
        """Take a job off its lane for want of blocks; it goes on later, exactly where it was."""
        ticket = self._tickets[lane.job.job_id]
        log.info("job_parked", job_id=lane.job.job_id, lane_id=lane.lane_id)
        self._keep(lane)
        ticket.sequence.was_parked = True
        self._vacate(lane)
        self._line.rejoin(ticket.sequence)

    def _submit(self, plan: StepPlan) -> None:
        try:
            self._backend.submit(plan)
        except RankGroupLost as error:
            self._lose(error)
            return
        self._lanes.advance(plan)
        self._last_step_id = plan.step_id
        self._in_flight.append(plan)

    def _cancel(self, job_id: str, cause: CancelCause) -> None:
        ticket = self._tickets.get(job_id)
        if ticket is None:
            return
        error: LanehostError
        match cause:
            case CancelCause.CLIENT:
                error = Cancelled("cancelled by the client")
            case CancelCause.DEADLINE:
                error = DeadlinePassed(ticket.phase)
            case _:
                assert_never(cause)
        self._end(ticket, Failed(error=error))

    def _retire_step(self, outcome: StepResult | StepRefused) -> None:
        plan = self._in_flight.popleft()
        assert outcome.step_id == plan.step_id, f"step {outcome.step_id} after {plan.step_id}"
        if isinstance(outcome, StepRefused):
            message = f"step {outcome.step_id} was refused: {outcome.reason}"
            log.error("step_refused", step_id=outcome.step_id, reason=outcome.reason)
            self._lose(RankGroupLost(message, epoch=outcome.epoch, rank=None))
            return
        self._lanes.retire(plan, outcome.accepted)
        now_s = self._clock()
        for ending in settle_step(self._lanes, self._tickets, outcome, now_s=now_s):
            self._finish(ending)
        for chunk in plan.chunks:
            if self._lanes[chunk.lane_id].state is LaneState.DECODE:
                self._keep(self._lanes[chunk.lane_id])
        for lane in list(self._lanes):
            self._release_if_retired(lane, retired_step_id=plan.step_id)

    def _finish(self, ending: Ending) -> None:
        self._end(self._tickets[ending.job_id], ending.event)

    def _end(self, ticket: Ticket, event: Finished | Failed) -> None:
        """Give a job its one terminal event, and let go of all that it holds."""
        job_id = ticket.job.job_id
        self._line.take(job_id)
        lane = self._lanes.find(job_id)
        del self._tickets[job_id]
        if lane is not None and lane.is_running:
            if not _is_corrupt(event):
                self._keep(lane)
            self._vacate(lane)
        self._observer.job_ended(job_id, event, ticket.sequence.generated_ids)
        ticket.stream.put(event)
        log.info(
            "job_ended",
            job_id=job_id,
            label=ticket.job.label or None,
            ending=event.reason.value
            if isinstance(event, Finished)
            else type(event.error).__name__,
            prompt_tokens=len(ticket.job.prompt_ids),
            cached_tokens=ticket.num_cached_tokens,
            completion_tokens=ticket.reply.num_tokens,
            lane_id=None if lane is None else lane.lane_id,
        )

    def _note_idle(self) -> None:
        """Log once, when the last job has ended and the last step has retired."""
        is_idle = not self._tickets and not self._in_flight
        if is_idle and not self._is_idle:
            log.info(
                "engine_idle",
                free_blocks=self._blocks.num_free,
                kept_blocks=self._cache.num_kept_blocks,
                num_blocks=self._blocks.num_blocks,
            )
        self._is_idle = is_idle

    def _keep(self, lane: Lane) -> None:
        """Keep what a lane has computed, for a prompt that begins alike."""
        assert lane.sequence is not None
        computed = lane.sequence.token_ids[: lane.num_computed_tokens]
        self._cache.keep(lane.job.scope, computed, lane.block_ids)

    def _vacate(self, lane: Lane) -> None:
        """Let a lane run out: it is free once the steps in flight have retired."""
        lane.fire(LaneEvent.FINISHED)
        in_flight = self._in_flight
        retired_step_id = in_flight[0].step_id - 1 if in_flight else self._last_step_id
        self._release_if_retired(lane, retired_step_id=retired_step_id)

    def _release_if_retired(self, lane: Lane, *, retired_step_id: int) -> None:
        if lane.state is LaneState.DRAINING and lane.last_step_id <= retired_step_id:
            self._blocks.give_back(self._lanes.release(lane))

    def _lose(self, error: RankGroupLost) -> None:
        self._lost = self._lost or error
        self._end_all(error)

    def _end_all(self, error: LanehostError) -> None:
        for ticket in list(self._tickets.values()):
            self._end(ticket, Failed(error=error))

    def _abandon_all(self, error: LanehostError) -> None:
        """Tell every job that is still open, touching nothing that may be broken."""
        for ticket in self._tickets.values():
            self._line.take(ticket.job.job_id)
            if not ticket.stream.is_ended:
                failed = Failed(error=error)
                self._observer.job_ended(ticket.job.job_id, failed, ticket.sequence.generated_ids)
                ticket.stream.put(failed)
        self._tickets.clear()
        self._inbox.close(error)


def _is_corrupt(event: Finished | Failed) -> bool:
    """Say whether the job's KV must not be used again."""
    return isinstance(event, Failed) and isinstance(event.error, ReplyCorrupt)
