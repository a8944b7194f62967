"""The one loop that owns lanes, blocks and the tickets of open jobs.

One turn: take what the inbox brought (arrivals, cancels, results) → settle → admit →
plan → hand the plan to the ranks. Nothing else is awaited than the inbox. Plan N+1 is
written while step N is in flight, so the ranks never wait for the master.

When the ranks are lost, their epoch ends and no reply does: all jobs go back to the head of
the line, as they sat, and are taken again with the next epoch (ADR 20).

Laws: every job that arrives ends in exactly one terminal event; the journal has a token before
its client (ADR 21); what a step in flight
still writes is freed when that step has retired, never before; first tokens are handed
over before the step that guesses at the next is planned; nothing of an epoch outlives it
but what clients have been sent.
"""

import asyncio
from collections.abc import Callable
from typing import assert_never

from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import PromptCache
from lanehost.engine.abandon import abandon_all
from lanehost.engine.attach import attach
from lanehost.engine.backend import Backend, Epochs
from lanehost.engine.carry import difference, take_off
from lanehost.engine.desk import Desk
from lanehost.engine.flight import Flight, out_of_step
from lanehost.engine.holdings import Holdings
from lanehost.engine.images import EngineImages
from lanehost.engine.inbox import (
    Arrived,
    Attach,
    Cancel,
    Command,
    DiskWatch,
    Drain,
    FetchLate,
    FileNews,
    GroupFormed,
    GroupLost,
    ImageNews,
    PumpFailed,
    RanksGivenUp,
    StepDone,
    Stop,
    error_of,
)
from lanehost.engine.notices import Notices
from lanehost.engine.observer import EngineObserver, NoObserver
from lanehost.engine.pump import pump_epochs
from lanehost.engine.seating import Seating
from lanehost.engine.settle import settle_step
from lanehost.engine.staged import StagedSide, image_error
from lanehost.engine.ticket import Ticket
from lanehost.errors import (
    Draining,
    LanehostError,
    PoisonedRequest,
    RankGroupLost,
    StepFailed,
)
from lanehost.fault import record_fault
from lanehost.job import Failed, Finished, FinishReason
from lanehost.lanes.apart import take_apart
from lanehost.lanes.pass_limit import PassLimit
from lanehost.lanes.scheduler import plan_step
from lanehost.lanes.table import LaneTable
from lanehost.rank_group.facts import GroupFacts
from lanehost.rank_group.image_interface import ImageOutcome
from lanehost.settings import EngineSettings
from ranks.plan import RefusalKind, StepPlan, StepRefused, StepResult


class Engine:
    """Runs jobs off the line through one backend after the other, until drained or stopped."""

    def __init__(
        self,
        epochs: Epochs,
        *,
        desk: Desk,
        clock: Callable[[], float],
        settings: EngineSettings,
        observer: EngineObserver | None = None,
    ) -> None:
        """Begin idle.

        Args:
            epochs: Where plans run.
            desk: What it shares with the door.
            clock: Seconds that only rise.
            settings: The prompt cache, the drafts, how prompts fill steps.
            observer: Is told what becomes of each job and step.
        """
        self._epochs = epochs
        # None from the loss of an epoch's group until the next one's is there.
        self._backend: Backend | None = epochs.first
        self._facts = epochs.first.facts
        self._line, self._inbox, self._journal = desk.line, desk.inbox, desk.journal
        self._clock = clock
        self._settings = settings
        self._notices = Notices(observer or NoObserver())
        self._disk = desk.disk
        self._holdings = Holdings(self._facts, settings, disk=self._disk)
        self._tickets: dict[str, Ticket] = {}
        self._staged = StagedSide(self._facts, settings, self._inbox, clock=clock)
        self._seating = Seating(desk, self._tickets, self._notices, self._staged, clock=clock)
        self._flight = Flight()
        self._pass_limit = PassLimit(settings.max_pass_prompts)
        self._is_draining = False
        self._is_stopped = False
        self._lost: RankGroupLost | None = None

    def __repr__(self) -> str:
        return f"<Engine {self._holdings!r} {self._line!r} {self._flight!r}>"

    @property
    def facts(self) -> GroupFacts:
        """What the ranks agreed on, in this epoch or the one before."""
        return self._facts

    @property
    def lanes(self) -> LaneTable:
        """The lanes, to look at."""
        return self._holdings.lanes

    @property
    def blocks(self) -> BlockPool:
        """The block pool, to look at."""
        return self._holdings.blocks

    @property
    def cache(self) -> PromptCache:
        """The prompt cache, to look at."""
        return self._holdings.cache

    @property
    def images(self) -> EngineImages:
        """The images of prompts, to look at."""
        return self._staged.images

    @property
    def num_open_jobs(self) -> int:
        """Jobs that arrived and have not ended."""
        return len(self._tickets)

    async def run(self) -> None:
        """Run until drained or stopped; whatever ends it, every job that is open is told.

        Raises:
            RankGroupLost: the ranks are gone for good.
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
            abandon_all(self._tickets, self._line, self._notices, ended_with)
            self._inbox.close(ended_with)

    async def _run(self) -> None:
        self._disk.ask(self._epochs.first.files)
        self._staged.begin(self._epochs.first)
        pump = asyncio.create_task(pump_epochs(self._epochs, self._inbox), name="outcomes")
        try:
            while not self._is_done:
                for command in await self._inbox.take_all():
                    self._handle(command)
                self._turn()
                self._journal.flush()
                self._notices.note_idle(self.blocks, self.cache, is_idle=self._is_idle)
        finally:
            pump.cancel()
            await asyncio.wait({pump})
        if self._lost is not None:
            raise self._lost

    @property
    def _is_done(self) -> bool:
        if self._is_stopped or self._lost is not None:
            return True
        return self._is_draining and self._is_idle and self._disk.is_quiet

    @property
    def _is_idle(self) -> bool:
        return not self._tickets and self._flight.is_empty

    def _handle(self, command: Command) -> None:
        match command:
            case Arrived() | Cancel() | Attach():
                self._hear(command)
            case StepDone(outcome=outcome):
                self._retire_step(outcome)
            case FileNews() | FetchLate() | DiskWatch() | ImageNews():
                self._hear_news(command)
            case GroupLost() | GroupFormed() | RanksGivenUp():
                self._change_epoch(command)
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
        if self._backend is None:
            return
        landed_id = self._flight.last_landed_id
        for ticket in self._seating.admit(self._holdings, last_landed_id=landed_id):
            self._finish_warm(ticket)
        # If the ranks are lost by the way, nobody sits, so there is nothing to plan.
        while self._flight.takes_more:
            self._seating.grow(self._holdings, last_landed_id=landed_id)
            self._staged.see(self.lanes)
            frame = self._flight.frame(
                self._facts,
                self._settings,
                max_prompts=self._pass_limit.num_prompts,
                weights=self._line.weights,
                staged=self._staged.frame(),
            )
            plan = plan_step(self.lanes, frame)
            if plan is None:
                break
            self._submit(self._backend, plan)
        self._staged.see(self.lanes)

    def _submit(self, backend: Backend, plan: StepPlan) -> None:
        try:
            backend.submit(plan)
        except RankGroupLost as error:
            self._suspend(error)
            return
        self.lanes.advance(plan)
        self._flight.depart(plan)
        self._notices.step_planned(plan)

    def _hear(self, command: Arrived | Cancel | Attach) -> None:
        """Do what a door asks for."""
        match command:
            case Arrived(ticket=ticket):
                self._tickets[ticket.job.job_id] = ticket
                self._notices.arrived(ticket)
            case Cancel(job_id=job_id, cause=cause):
                if (found := self._tickets.get(job_id)) is not None:
                    self._end(found, Failed(error=error_of(cause, found)))
            case Attach(job_id=job_id):
                attach(command, self._journal, self._tickets.get(job_id))

    def _hear_news(self, news: FileNews | FetchLate | DiskWatch | ImageNews) -> None:
        """Take what became of something that is done beside the steps."""
        if isinstance(news, ImageNews):
            self._hear_of_image(news.outcome)
        else:
            self._disk.hear(news)

    def _hear_of_image(self, outcome: ImageOutcome) -> None:
        end = self._staged.take(outcome)
        # Some may have ended in this very turn.
        for job_id, waited_s in end.waited_s.items():
            if (ticket := self._tickets.get(job_id)) is not None:
                ticket.encode_s = max(ticket.encode_s, waited_s)
        for job_id in end.failed_job_ids:
            if (ticket := self._tickets.get(job_id)) is not None:
                self._end(ticket, Failed(error=image_error(outcome)))

    def _retire_step(self, outcome: StepResult | StepRefused) -> None:
        if self._backend is None:  # late: its epoch has ended, and what it drew is drawn again
            return
        landed = self._flight.land(outcome)
        self._notices.step_ended(landed.plan, outcome)
        match outcome:
            case StepResult() if not landed.was_turned_back:
                self._settle(landed.plan, outcome)
            case StepRefused(kind=RefusalKind.FAILED) if not landed.was_turned_back:
                self._take_apart(landed.plan, outcome)
            case StepRefused(kind=RefusalKind.SKIPPED) if landed.was_turned_back:
                pass
            case _:
                self._backend.lose(lost := out_of_step(outcome))
                self._suspend(lost)
                return
        self._holdings.release_retired(self._flight.last_landed_id)

    def _settle(self, plan: StepPlan, result: StepResult) -> None:
        self.lanes.retire(plan, result.accepted)
        self._pass_limit.note_run(len(plan.prompts))
        self._staged.note_step(plan, result)
        now_s = self._clock()
        settled = settle_step(self.lanes, self._tickets, result, now_s=now_s)
        self._journal.append(settled.drawn())
        settled.hand_out()
        for ending in settled.endings:
            self._end(self._tickets[ending.job_id], ending.event)
        for chunk in self.lanes.computed_by(plan):
            lane = self.lanes[chunk.lane_id]
            if lane.is_running:
                self._holdings.keep_marks(lane, since=chunk.start)
                if lane.is_filled and lane.is_warm:
                    self._finish_warm(self._tickets[lane.job.job_id])
                elif lane.is_filled:
                    self._holdings.keep(lane)

    def _take_apart(self, plan: StepPlan, refused: StepRefused) -> None:
        """Go back to where the lanes were before a step that failed, and run it in parts."""
        for behind in self._flight.turn_back(plan):
            self.lanes.undo(behind)
        self.lanes.undo(plan)
        if plan.staged is not None:
            self.lanes.drop_pass()
        self._pass_limit.note_failed(len(plan.prompts))
        apart = take_apart(self.lanes, plan)
        self._notices.taken_apart(plan, apart.alone)
        if apart.failed is not None:
            self._pass_limit.note_failed_alone()
        if apart.failed is not None and apart.failed.is_running:
            message = f"the ranks could not run a step of this request: {refused.reason}"
            self._end(self._tickets[apart.failed.job.job_id], Failed(error=StepFailed(message)))

    def _finish_warm(self, ticket: Ticket) -> None:
        """End a job that asked for no reply: its prompt is computed and kept."""
        now_s = self._clock()
        ticket.note_prefilled(now_s=now_s)
        self._end(ticket, ticket.finished(FinishReason.LENGTH, None, now_s))

    def _end(self, ticket: Ticket, event: Finished | Failed) -> None:
        """Give a job its one terminal event, and let go of all that it holds."""
        job_id = ticket.job.job_id
        self._line.leave(job_id)
        lane = self.lanes.find(job_id)
        del self._tickets[job_id]
        if lane is not None and lane.is_running:
            self._holdings.keep_ended(lane, event)
            self._holdings.vacate(lane, last_landed_id=self._flight.last_landed_id)
        self._disk.forget(job_id)
        self._notices.ended(ticket, event, None if lane is None else lane.lane_id)
        self._journal.end(job_id, event)
        ticket.stream.put(event)

    def _change_epoch(self, command: GroupLost | GroupFormed | RanksGivenUp) -> None:
        match command:
            case GroupLost(error=error):
                self._suspend(error)
            case GroupFormed(backend=backend):
                self._resume(backend)
            case RanksGivenUp(error=error):
                self._give_up(error)

    def _suspend(self, lost: RankGroupLost) -> None:
        """Take every job off its lane: the epoch has ended, and what the ranks held is gone."""
        if self._backend is None:  # known from a plan that could not be handed over
            return
        self._backend = None
        off = take_off(self.lanes)
        self._notices.group_lost(lost, off)
        self._line.put_first(self._tickets[lane.job.job_id].sequence for lane in off.carried)
        self._disk.end()
        self._staged.images.end()
        self._holdings = self._holdings.successor(self._facts, self._settings)
        self._flight = Flight()
        poisoned = PoisonedRequest(f"the ranks were lost by it, at last with it alone: {lost}")
        for lane in off.poisoned:
            self._end(self._tickets[lane.job.job_id], Failed(error=poisoned))

    def _resume(self, backend: Backend) -> None:
        """Go on with the next epoch's ranks, which have run nothing yet."""
        if (differs := difference(self._facts, backend.facts)) is not None:
            self._give_up(differs)
            return
        self._backend, self._facts = backend, backend.facts
        self._disk.ask(backend.files)
        self._staged.begin(backend)
        self._notices.group_formed(backend.facts.epoch)

    def _give_up(self, error: RankGroupLost) -> None:
        self._lost = error
        self._end_all(error)

    def _end_all(self, error: LanehostError) -> None:
        for ticket in list(self._tickets.values()):
            self._end(ticket, Failed(error=error))
