"""The rank processes and their streams: what is done to them, and what they say and do.

Laws: a rank is watched from the moment it is spawned; whatever a former life of a rank number
still says is dropped; stopped in any phase, no process and no port is left. What is done about
anything is decided elsewhere: here it becomes an event.
"""

import asyncio
import importlib.metadata
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import structlog

from lanehost.addresses import parse_address
from lanehost.rank_group.agents import Agents
from lanehost.rank_group.agreement import Terms, check_replacement, start_status
from lanehost.rank_group.events import (
    EpochLost,
    Event,
    Exited,
    KillFailed,
    LossCause,
    RankLost,
    SaidHello,
    SaidLeft,
    SaidLoaded,
    SaidReady,
)
from lanehost.rank_group.facts import LoadPhase, LoadState
from lanehost.rank_group.front import Front
from lanehost.rank_group.group import Answer, SideAnswer
from lanehost.rank_group.link import RankLink
from lanehost.rank_group.liveness import SLICE_S, Liveness, LivenessLimits, ProcessSight
from lanehost.rank_group.network import addresses_of
from lanehost.rank_group.process import Process
from lanehost.rank_group.rank_server import LOOPBACK, RankServer
from lanehost.rank_group.seat import Seat
from lanehost.rank_group.starter import FIRST_SPARE_AFTER_S, Doorway, RankStarter
from lanehost.rank_group.store import RendezvousStore
from lanehost.settings import CHEAP_ROWS, RankGroupSettings
from ranks.plan import StepRefused, StepResult
from ranks.wire.file_messages import FileDone
from ranks.wire.follow_messages import Dismiss
from ranks.wire.image_messages import ImageDone
from ranks.wire.messages import (
    Broken,
    Form,
    Heartbeat,
    Leave,
    Left,
    Load,
    Loaded,
    LoadProgress,
    RankMessage,
    Ready,
    Shutdown,
)

log = structlog.get_logger()

OnProgress = Callable[[LoadState], None]


class Crew:
    """Owns the rank server and the rank processes."""

    def __init__(
        self,
        settings: RankGroupSettings,
        *,
        rank_command: tuple[str, ...],
        tell: Callable[[Event], None],
        on_answer: Callable[[int, Answer | SideAnswer], None],
        on_progress: OnProgress,
    ) -> None:
        """Start nothing yet.

        Args:
            settings: The model, the cut, the time-outs.
            rank_command: What starts a rank; its own arguments are appended.
            tell: Hears what happens.
            on_answer: Hears what ranks answer to steps, and to works on files and images.
            on_progress: Hears how far the first start is.
        """
        self._settings = settings
        self._starter = RankStarter.for_group(settings, rank_command)
        self._tell = tell
        self._on_answer = on_answer
        self._on_progress = on_progress
        self._token = secrets.token_hex(32)
        self._address = ""
        self._epoch = 0
        self._work: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._phase: LoadPhase | None = LoadPhase.STARTING
        # By rank, what the first epoch was made of.
        self._first_loaded: dict[int, Loaded] = {}
        self._store = RendezvousStore()
        self.seats: dict[int, Seat] = {}
        limits = LivenessLimits(
            heartbeat_s=settings.heartbeat_timeout_s, stall_s=settings.stall_timeout_s
        )
        self.liveness = Liveness(limits)
        build = importlib.metadata.version("lanehost")
        terms = Terms(world_size=settings.tp, build=build, token=self._token)
        self._agents = Agents(terms=terms, followed=settings.followed_ranks)
        self._front = None if settings.rank_port is None else Front(settings.rank_port)
        self._rank_port = ""
        self._server = RankServer(
            terms=terms,
            store=self._store,
            on_link=self._take_link,
            on_refused=self._take_refusal,
            agents=self._agents,
        )

    @property
    def links(self) -> list[RankLink]:
        """The streams that are there, in rank order."""
        seats = (self.seats[rank] for rank in sorted(self.seats))
        return [seat.link for seat in seats if seat.link is not None]

    @property
    def loaded(self) -> dict[int, Loaded]:
        """What each rank has loaded, as far as it is known."""
        return {r: seat.loaded for r, seat in self.seats.items() if seat.loaded is not None}

    async def start(self) -> None:
        """Open the port for ranks, and the one for other hosts if there is to be one.

        Raises:
            StartupFailed: The address cannot be had.
        """
        self._address = await self._server.start()
        log.info("rank_server_started", address=self._address, world_size=self._settings.tp)
        if self._front is not None:
            self._rank_port = await self._front.start(parse_address(self._address))
            self.show(LoadPhase.STARTING)

    async def stop(self, farewell: Dismiss) -> None:
        """End all ranks, agents and the server; safe in any phase, bounded in time."""
        self._is_stopping = True
        for seat in self.seats.values():
            seat.send(Shutdown(reason="the master ends"))
        for rank in self._settings.followed_ranks:
            self._agents.give_up(rank)
        while self._work:
            await asyncio.wait(self._work)
        timeout_s = self._settings.stop_timeout_s
        processes = [seat.process for seat in self.seats.values() if seat.process is not None]
        await asyncio.gather(*(process.stop(timeout_s=timeout_s) for process in processes))
        await self._starter.stop()
        await self._agents.dismiss_all(farewell)
        await self._server.stop()
        if self._front is not None:
            await self._front.stop()

    def spawn(self, rank: int) -> None:
        """Start a process for this number, in place of one that is gone."""
        if not self._is_stopping:
            seat = self.seats[rank] = Seat(rank)
            self._store.forget_rank(rank)
            self._server.expect(rank)
            if not self._agents.holds(rank):
                self.liveness.begin(rank)
            seat.spawning = self._do(self._spawn(seat))

    def kill(self, rank: int) -> None:
        """End its process at once."""
        self.liveness.forget(rank)
        self._do(self._kill(self.seats[rank]))

    def tell_load(self, rank: int) -> None:
        """Tell it what to load."""
        settings = self._settings
        order = Load(
            model_path=self._agents.model_path(rank) or str(settings.model_path.absolute()),
            dtype=settings.dtype,
            weights=settings.weights,
            device=settings.device,
            num_threads=settings.num_threads,
            block_size=settings.block_size,
            max_step_tokens=settings.max_step_tokens,
            # As many rows may draw: one a lane, or a few more with drafts behind them.
            num_lanes=max(settings.num_lanes, CHEAP_ROWS),
            # A model without images takes no room for them.
            max_staged_tokens=settings.max_staged_tokens,
            image_cache_tokens=settings.image_cache_tokens,
            encoder_device=settings.encoder_device,
        )
        self.seats[rank].send(order)

    def tell_form(self, form: Form) -> None:
        """Tell all ranks to form the group."""
        self._first_loaded = self._first_loaded or self.loaded
        self._epoch = form.epoch
        self._store.end_epoch(form.epoch - 1)
        self.show(LoadPhase.FORMING)
        for seat in self.seats.values():
            seat.send(form)

    def tell_leave(self, rank: int, epoch: int) -> None:
        """Tell a rank that this epoch is over."""
        self.liveness.take_out_of_group(rank)
        self._store.end_epoch(epoch)
        self.seats[rank].send(Leave(epoch=epoch))

    def note_ready(self) -> None:
        """From now on ranks are in the group: the start is over, and only words are life."""
        self.show(LoadPhase.READY)
        if not self._is_stopping:
            self._starter.prepare(after_s=0.0 if self._phase is None else FIRST_SPARE_AFTER_S)
        self._phase = None
        for rank in self.seats:
            self.liveness.put_in_group(rank)

    def look(self, elapsed_s: float, owed_step: Callable[[int], int | None]) -> None:
        """See who has fallen silent or stands still."""
        for found in self.liveness.look(elapsed_s, see=self._see, owed_step=owed_step):
            if found.cause is LossCause.STALLED:
                # It may wait for another that hangs: who answers to Leave is not at fault.
                self._tell(EpochLost(self._epoch, found.cause, found.reason, found.rank))
            else:
                self._tell(RankLost(found.rank, found.cause, found.reason))

    def show(self, phase: LoadPhase) -> None:
        """Tell how far the first start is; later ones are told by the log alone."""
        if self._phase is None:
            return
        self._phase = phase
        told = [seat.progress for seat in self.seats.values() if seat.progress is not None]
        self._on_progress(
            LoadState(
                phase=phase,
                world_size=self._settings.tp,
                num_connected=len(self.links),
                num_loaded=len(self.loaded),
                done_bytes=sum(progress.done_bytes for progress in told),
                total_bytes=sum(progress.total_bytes for progress in told),
                rank_port=self._rank_port,
            )
        )

    def status(self) -> str:
        """Say who is awaited."""
        return start_status(
            said_hello=[link.rank for link in self.links],
            loaded=self.loaded,
            world_size=self._settings.tp,
            unfollowed=self._agents.missing,
        )

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def _is_former(self, seat: Seat) -> bool:
        return self.seats[seat.rank] is not seat or self._is_stopping

    async def _spawn(self, seat: Seat) -> None:
        try:
            seat.process = await self._start(seat.rank)
        except OSError as err:
            if not self._is_stopping:
                self._tell(Exited(seat.rank, f"rank {seat.rank} cannot be started: {err}"))
            return
        seat.process.on_exit(partial(self._note_exit, seat))
        if not self._is_stopping:
            self.liveness.hear(seat.rank)
            self.show(self._phase or LoadPhase.STARTING)

    async def _start(self, rank: int) -> Process:
        if self._agents.holds(rank):
            process = await self._agents.spawn(rank, token=self._token)
            # Not before: nobody is silent while it waits for its host.
            self.liveness.begin(rank)
            return process
        port = self._settings.rank_port
        host = LOOPBACK if port is None else addresses_of(port.host)[0]
        doorway = Doorway(master=self._address, bind_host=host, is_encrypted=False)
        return await self._starter.start(rank, doorway, token=self._token)

    async def _kill(self, seat: Seat) -> None:
        if self._agents.holds(seat.rank):
            self._agents.give_up(seat.rank)
        if seat.link is not None:
            # Where the network is cut its stream would stay: when it is whole again the rank
            # must meet the end of it, and not a master that listens.
            seat.link.cut("was given up")
        if seat.spawning is not None:
            await asyncio.wait({seat.spawning})
        if seat.process is not None and not await seat.process.kill():
            self._tell(KillFailed(seat.rank))

    def _take_link(self, link: RankLink) -> None:
        log.info("rank_connected", rank=link.rank, pid=link.pid)
        seat = self.seats[link.rank]
        seat.link = link
        seat.last_words = asyncio.get_running_loop().create_future()
        link.deliver_to(partial(self._hear, seat), partial(self._note_end, seat))
        self.liveness.hear(link.rank)
        self.show(LoadPhase.LOADING)
        self._tell(SaidHello(link.rank))

    def _take_refusal(self, reason: str) -> None:
        if self._phase is not None:
            self._tell(EpochLost(self._epoch, LossCause.DISAGREES, reason))

    def _hear(self, seat: Seat, message: RankMessage) -> None:
        if self._is_former(seat):
            return
        rank = seat.rank
        self.liveness.hear(rank)
        match message:
            case Heartbeat(step_id=step_id, num_stages=num_stages):
                self.liveness.hear_beat(rank, step_id=step_id, num_stages=num_stages)
            case StepResult() | StepRefused() | FileDone() | ImageDone():
                self._on_answer(rank, message)
            case LoadProgress():
                seat.progress = message
                self.show(self._phase or LoadPhase.LOADING)
            case Loaded():
                self._take_loaded(seat, message)
            case _:
                self._tell(_event_of(rank, message))

    def _take_loaded(self, seat: Seat, loaded: Loaded) -> None:
        rank, first = seat.rank, self._first_loaded.get(seat.rank)
        seat.loaded = loaded
        log.info("rank_loaded", rank=rank, geometry=loaded.geometry)
        self.show(LoadPhase.LOADING)
        difference = None if first is None else check_replacement(first, loaded)
        if difference is None:
            self._tell(SaidLoaded(rank))
        else:
            self._tell(RankLost(rank, LossCause.DISAGREES, f"rank {rank} {difference}"))

    def _note_end(self, seat: Seat, reason: str) -> None:
        assert seat.last_words is not None
        seat.last_words.set_result(reason)
        self._look_into(seat, RankLost(seat.rank, LossCause.DISCONNECTED, reason))

    def _note_exit(self, seat: Seat) -> None:
        assert seat.process is not None
        if seat.process.exit_code is None and seat.link is not None:
            # Its agent is gone: the rank may still live, cut off, and must not come back.
            seat.link.cut("has no agent any more")
        reason = f"rank {seat.rank} ended: {seat.process.end}"
        self._look_into(seat, Exited(seat.rank, reason))

    def _look_into(self, seat: Seat, event: RankLost | Exited) -> None:
        """Tell of a loss: at once to those who serve, with all that can be said to the start."""
        if self._is_former(seat):
            return
        if self._phase is None:
            self._tell(event)
        elif not seat.is_looked_into:
            seat.is_looked_into = True
            self._do(self._tell_all_of(seat))

    async def _tell_all_of(self, seat: Seat) -> None:
        reason = await seat.find_out()
        if not self._is_former(seat):
            self._tell(RankLost(seat.rank, LossCause.EXITED, reason))

    def _see(self, rank: int) -> ProcessSight | None:
        process = self.seats[rank].process
        return None if process is None else process.see()


def _event_of(rank: int, message: RankMessage) -> Event:
    match message:
        case Ready(epoch=epoch):
            return SaidReady(rank, epoch)
        case Left(epoch=epoch):
            return SaidLeft(rank, epoch)
        case Broken(epoch=epoch, suspect=suspect, reason=reason):
            said = f"rank {rank} says that the group is broken: {reason}"
            if suspect == rank:
                return RankLost(rank, LossCause.BROKEN, said)
            return EpochLost(epoch, LossCause.BROKEN, said, suspect)
        case _:
            kind = type(message).__name__
            reason = f"out of step: rank {rank} said {kind} in mid-life"
            return RankLost(rank, LossCause.OUT_OF_STEP, reason)


async def tick(crew: Crew, owed_step: Callable[[int], int | None]) -> None:
    """Look at the crew slice after slice, for ever."""
    loop = asyncio.get_running_loop()
    while True:
        began_s = loop.time()
        await asyncio.sleep(SLICE_S)
        crew.look(loop.time() - began_s, owed_step)
