"""Start all ranks, form epoch after epoch, and end them again, whatever happens in between.

Laws: a start that cannot succeed fails by name within the load time-out; an epoch that was
lost before anybody asked for it is never given out; whatever phase it is stopped in, no process
and no port is left. What is done about a loss is decided in `supervision` alone: here it is
carried out.
"""

import asyncio
import dataclasses
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import assert_never

import structlog

from lanehost.errors import RankGroupLost, StartupFailed
from lanehost.rank_group.agreement import (
    check_agreement,
    choose_image_room,
    choose_num_blocks,
    group_facts,
)
from lanehost.rank_group.crew import Crew, OnProgress, tick
from lanehost.rank_group.events import (
    ClearTimer,
    Decision,
    EndEpoch,
    EpochLost,
    Event,
    FailStart,
    GiveUp,
    Kill,
    LossCause,
    NoteLost,
    Serve,
    SetTimer,
    Spawn,
    StepFinished,
    TellForm,
    TellLeave,
    TellLoad,
    Timer,
    TimerEnded,
)
from lanehost.rank_group.group import Answer, RankGroup, SideAnswer
from lanehost.rank_group.supervision import Patience, Supervision
from lanehost.rank_group.watcher import EpochWatcher, Unwatched
from lanehost.settings import RankGroupSettings
from lanehost.tasks import beside, to_the_end
from ranks.wire.follow_messages import Dismiss
from ranks.wire.messages import Form

log = structlog.get_logger()

RANK_COMMAND = (sys.executable, "-m", "ranks")
REPORT_INTERVAL_S = 10.0


@asynccontextmanager
async def running_rank_groups(
    settings: RankGroupSettings,
    *,
    on_progress: OnProgress,
    rank_command: tuple[str, ...] = RANK_COMMAND,
    report_interval_s: float = REPORT_INTERVAL_S,
    watcher: EpochWatcher | None = None,
) -> AsyncIterator["RankSupervisor"]:
    """Run the ranks, epoch after epoch, for as long as the body runs; the first is formed.

    Args:
        settings: The model, the cut, the KV pool, the time-outs.
        on_progress: Hears every change of the start.
        rank_command: What starts a rank; the arguments of `python -m ranks` are appended.
        report_interval_s: How often the log names the ranks that are missing.
        watcher: Hears how the ranks fare.

    Raises:
        StartupFailed: The group cannot start; the message names the rank and the reason.
    """
    supervisor = RankSupervisor(
        settings,
        on_progress=on_progress,
        rank_command=rank_command,
        watcher=watcher or Unwatched(),
    )
    try:
        async with beside(supervisor.watch()), beside(supervisor.report(report_interval_s)):
            await supervisor.start()
            yield supervisor
    finally:
        await to_the_end(supervisor.stop())


@asynccontextmanager
async def running_rank_group(
    settings: RankGroupSettings,
    *,
    on_progress: OnProgress,
    rank_command: tuple[str, ...] = RANK_COMMAND,
    report_interval_s: float = REPORT_INTERVAL_S,
) -> AsyncIterator[RankGroup]:
    """Run the ranks for one epoch: a group that is lost stays lost.

    The arguments are those of `running_rank_groups`.

    Raises:
        StartupFailed: The group cannot start; the message names the rank and the reason.
    """
    async with running_rank_groups(
        dataclasses.replace(settings, max_restarts=0),
        on_progress=on_progress,
        rank_command=rank_command,
        report_interval_s=report_interval_s,
    ) as supervisor:
        yield await supervisor.next_backend()


class RankSupervisor:
    """Carries out what is decided; implements `lanehost.engine.backend.Backends`."""

    def __init__(
        self,
        settings: RankGroupSettings,
        *,
        on_progress: OnProgress,
        rank_command: tuple[str, ...],
        watcher: EpochWatcher,
    ) -> None:
        """Start nothing yet."""
        self._settings = settings
        self._watcher = watcher
        self._loop = asyncio.get_running_loop()
        patience = Patience(max_restarts=settings.max_restarts)
        self._supervision = Supervision(world_size=settings.tp, patience=patience)
        self._crew = Crew(
            settings,
            rank_command=rank_command,
            tell=self._take,
            on_answer=self._take_answer,
            on_progress=on_progress,
        )
        self._events: deque[Event] = deque()
        self._is_taking = False
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._form: Form | None = None
        self._group: RankGroup | None = None
        self._given_epoch = 0
        self._ended_at_s: float | None = None
        self._over: RankGroupLost | None = None
        self._farewell = Dismiss(reason="the master was told to end", is_failure=False)
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        """Show what supervision shows."""
        return f"<RankSupervisor {self._supervision!r}>"

    async def start(self) -> None:
        """Spawn the ranks and form the first group.

        Raises:
            StartupFailed: The group cannot start.
        """
        timeout_s = self._settings.load_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._crew.start()
                self._carry_out_all(self._supervision.begin())
                await self._started
        except TimeoutError:
            late = f"not ready within --load-timeout {timeout_s} s: {self._crew.status()}"
            self._farewell = Dismiss(reason=late, is_failure=True)
            raise StartupFailed(late) from None

    async def watch(self) -> None:
        """Look at the ranks, slice after slice, until cancelled."""
        await tick(self._crew, self._owed_step)

    async def next_backend(self) -> RankGroup:
        """Wait for a group that was not given out yet.

        Raises:
            RankGroupLost: The ranks have been given up.
        """
        while self._over is None:
            group = self._group
            if group is not None and group.facts.epoch > self._given_epoch:
                self._given_epoch = group.facts.epoch
                return group
            self._changed.clear()
            await self._changed.wait()
        raise self._over

    async def stop(self) -> None:
        """End all ranks; safe in any phase, bounded in time."""
        for timer in self._timers.values():
            timer.cancel()
        epoch = self._supervision.epoch
        if self._over is not None:
            self._farewell = Dismiss(reason=str(self._over), is_failure=True)
        self._end(self._over or RankGroupLost("the group was stopped", epoch=epoch, rank=None))
        if self._group is not None:
            self._group.close()
        await self._crew.stop(self._farewell)

    def _take(self, event: Event) -> None:
        """Take what happened; what happens while it is carried out comes after it."""
        self._events.append(event)
        if self._is_taking:
            return
        self._is_taking = True
        try:
            while self._events:
                self._take_one(self._events.popleft())
        finally:
            self._is_taking = False

    def _take_one(self, event: Event) -> None:
        if self._group is not None and self._group.has_run_step:
            self._group.has_run_step = False
            self._carry_out_all(self._supervision.take(StepFinished()))
        self._carry_out_all(self._supervision.take(event))

    def _carry_out_all(self, decisions: tuple[Decision, ...]) -> None:
        try:
            for decision in decisions:
                self._carry_out(decision)
        except StartupFailed as failed:
            self._fail_start(failed)

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case Spawn() | Kill() | TellLoad() | TellForm() | TellLeave():
                self._tell_crew(decision)
            case SetTimer(timer=timer, delay_s=delay_s):
                self._set_timer(timer, delay_s)
            case ClearTimer(timer=timer):
                self._clear_timer(timer)
            case NoteLost() | EndEpoch() | Serve() | FailStart() | GiveUp():
                self._note(decision)
            case _:
                assert_never(decision)

    def _tell_crew(self, decision: Spawn | Kill | TellLoad | TellForm | TellLeave) -> None:
        match decision:
            case Spawn(rank=rank):
                self._crew.spawn(rank)
            case Kill(rank=rank):
                self._crew.kill(rank)
            case TellLoad(rank=rank):
                self._crew.tell_load(rank)
            case TellForm(epoch=epoch):
                self._form = self._make_form(epoch)
                self._crew.tell_form(self._form)
            case TellLeave(rank=rank, epoch=epoch):
                self._crew.tell_leave(rank, epoch)
            case _:
                assert_never(decision)

    def _note(self, decision: NoteLost | EndEpoch | Serve | FailStart | GiveUp) -> None:
        match decision:
            case NoteLost(rank=rank, cause=cause, reason=reason):
                epoch = self._supervision.epoch
                log.error("rank_lost", rank=rank, cause=cause.value, reason=reason, epoch=epoch)
                self._watcher.rank_lost(cause)
            case EndEpoch():
                self._end_epoch(decision)
            case Serve(epoch=epoch):
                self._serve(epoch)
            case FailStart(reason=reason):
                self._fail_start(StartupFailed(reason))
            case GiveUp(reason=reason, rank=rank):
                epoch = self._supervision.epoch
                log.error("rank_group_lost", reason=reason, rank=rank, epoch=epoch)
                self._end(RankGroupLost(reason, epoch=epoch, rank=rank))
            case _:
                assert_never(decision)

    def _make_form(self, epoch: int) -> Form:
        """Make the first epoch's numbers from what ranks have loaded; later ones keep them."""
        if self._form is not None:
            return dataclasses.replace(self._form, epoch=epoch)
        check_agreement(self._crew.loaded)
        folder = self._settings.disk_folder
        images = choose_image_room(self._settings, self._crew.loaded)
        return Form(
            epoch=epoch,
            num_blocks=choose_num_blocks(self._settings, self._crew.loaded),
            block_size=self._settings.block_size,
            num_lanes=self._settings.num_lanes,
            max_step_tokens=self._settings.max_step_tokens,
            collective_timeout_s=self._settings.collective_timeout_s,
            disk_folder=None if folder is None else str(folder.absolute()),
            max_staged_tokens=images.max_staged_tokens,
            image_cache_tokens=images.image_cache_tokens,
        )

    def _serve(self, epoch: int) -> None:
        assert self._form is not None
        assert self._form.epoch == epoch
        facts = group_facts(self._settings, self._crew.loaded, self._form)
        self._group = RankGroup(facts=facts, links=self._crew.links, on_lost=self._take_lost)
        self._crew.note_ready()
        recovery_s = 0.0 if self._ended_at_s is None else self._loop.time() - self._ended_at_s
        if self._ended_at_s is None:
            log.info("rank_group_ready", **dataclasses.asdict(facts))
            self._started.set_result(None)
        else:
            log.info("epoch_formed", epoch=epoch, recovery_s=round(recovery_s, 3))
        self._watcher.epoch_formed(facts, recovery_s)
        self._changed.set()

    def _end_epoch(self, ended: EndEpoch) -> None:
        assert self._group is not None
        error = RankGroupLost(ended.reason, epoch=ended.epoch, rank=ended.rank)
        log.error(
            "epoch_ended",
            epoch=ended.epoch,
            rank=ended.rank,
            cause=ended.cause.value,
            reason=ended.reason,
        )
        self._ended_at_s = self._loop.time()
        group, self._group = self._group, None
        group.lose(error)
        self._watcher.epoch_ended(error, ended.cause)

    def _fail_start(self, failed: StartupFailed) -> None:
        if not self._started.done():
            self._farewell = Dismiss(reason=str(failed), is_failure=True)
            self._started.set_exception(failed)

    def _end(self, error: RankGroupLost) -> None:
        self._over = error
        self._changed.set()

    def _take_answer(self, rank: int, answer: Answer | SideAnswer) -> None:
        # One that comes late is of an epoch that is over, and nobody waits for it.
        if self._group is not None:
            self._group.take_answer(rank, answer)

    def _take_lost(self, error: RankGroupLost) -> None:
        """Hear of a loss that the group itself has found."""
        cause = LossCause.OUT_OF_STEP
        self._take(EpochLost(error.epoch, cause, str(error), error.rank))

    def _owed_step(self, rank: int) -> int | None:
        return None if self._group is None else self._group.owed_step(rank)

    def _set_timer(self, timer: Timer, delay_s: float | None) -> None:
        self._clear_timer(timer)
        if delay_s is None:
            delay_s = self._settings.load_timeout_s
        self._timers[timer] = self._loop.call_later(delay_s, partial(self._run_out, timer))

    def _run_out(self, timer: Timer) -> None:
        del self._timers[timer]
        self._take(TimerEnded(timer))

    def _clear_timer(self, timer: Timer) -> None:
        running = self._timers.pop(timer, None)
        if running is not None:
            running.cancel()

    async def report(self, interval_s: float) -> None:
        """Name the ranks that are missing, for as long as there is no group."""
        while True:
            await asyncio.sleep(interval_s)
            if self._group is None and self._over is None:
                log.warning("ranks_awaited", status=self._crew.status())
