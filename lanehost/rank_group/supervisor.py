"""Start all ranks, form the group, and end them again, whatever happens in between.

Laws: a rank is watched from the moment it is spawned; a start that cannot succeed fails
by name within the load time-out; whatever phase it is cancelled in, no process and no
port is left. In this version a lost rank ends the group for good.
"""

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import structlog

from lanehost.errors import RankGroupLost, StartupFailed
from lanehost.rank_group.agreement import (
    FIRST_EPOCH,
    Terms,
    check_agreement,
    choose_num_blocks,
    group_facts,
    start_status,
)
from lanehost.rank_group.facts import LoadPhase, LoadState
from lanehost.rank_group.group import RankGroup
from lanehost.rank_group.link import RankLink
from lanehost.rank_group.process import RankEvent, RankProcess
from lanehost.rank_group.rank_server import RankServer
from lanehost.rank_group.store import RendezvousStore
from lanehost.settings import CHEAP_ROWS, RankGroupSettings
from lanehost.tasks import all_or_first_error, beside, to_the_end
from ranks.wire.codec import encode_master_message
from ranks.wire.messages import (
    TOKEN_VARIABLE,
    Form,
    Load,
    Loaded,
    LoadProgress,
    RankMessage,
    Ready,
    Shutdown,
)

log = structlog.get_logger()

RANK_COMMAND = (sys.executable, "-m", "ranks")
# A rank's idle threads spin briefly and then sleep: they share the cores with the master
# (docs/performance.md has the figures). An operator's own values win.
WAIT_POLICY = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
REPORT_INTERVAL_S = 10.0
# From the end of a rank's stream to the end of its process.
_EXIT_GRACE_S = 3.0

OnProgress = Callable[[LoadState], None]


@asynccontextmanager
async def running_rank_group(
    settings: RankGroupSettings,
    *,
    on_progress: OnProgress,
    rank_command: tuple[str, ...] = RANK_COMMAND,
    report_interval_s: float = REPORT_INTERVAL_S,
) -> AsyncIterator[RankGroup]:
    """Run the ranks for as long as the body runs.

    Args:
        settings: The model, the cut, the KV pool, the time-outs.
        on_progress: Hears every change of the start.
        rank_command: What starts a rank; the arguments of `python -m ranks` are appended.
        report_interval_s: How often the log names the ranks that are missing.

    Raises:
        StartupFailed: The group cannot start; the message names the rank and the reason.
    """
    supervisor = RankSupervisor(
        settings, on_progress=on_progress, report_interval_s=report_interval_s
    )
    try:
        yield await supervisor.start(rank_command)
    finally:
        await to_the_end(supervisor.stop())


class RankSupervisor:
    """Owns the rank server and the rank processes of one group."""

    def __init__(
        self, settings: RankGroupSettings, *, on_progress: OnProgress, report_interval_s: float
    ) -> None:
        """Start nothing yet."""
        self._settings = settings
        self._on_progress = on_progress
        self._report_interval_s = report_interval_s
        self._token = secrets.token_hex(32)
        loop = asyncio.get_running_loop()
        self._refused: asyncio.Future[str] = loop.create_future()
        # By rank: its stream once it has said Hello, its process once it is spawned.
        self._arrivals: list[asyncio.Future[RankLink]] = [
            loop.create_future() for _ in range(settings.tp)
        ]
        self._processes: list[RankProcess] = []
        self._progress: dict[int, LoadProgress] = {}
        self._loaded: dict[int, Loaded] = {}
        self._group: RankGroup | None = None
        self._server = RankServer(
            terms=Terms(
                world_size=settings.tp,
                build=importlib.metadata.version("lanehost"),
                token=self._token,
            ),
            store=RendezvousStore(),
            on_link=self._take_link,
            on_refused=self._take_refusal,
        )

    async def start(self, rank_command: tuple[str, ...]) -> RankGroup:
        """Spawn the ranks and form the group.

        Raises:
            StartupFailed: The group cannot start.
        """
        timeout_s = self._settings.load_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._spawn_all(rank_command)
                await self._load_all()
                return await self._form_all()
        except TimeoutError:
            raise StartupFailed(
                f"not ready within --load-timeout {timeout_s} s: {self._status()}"
            ) from None

    async def stop(self) -> None:
        """End all ranks and the server; safe in any phase, bounded in time."""
        if self._group is not None:
            self._group.close()
        goodbye = encode_master_message(Shutdown(reason="the master ends"))
        for link in self._links():
            with contextlib.suppress(RankGroupLost):
                link.send(goodbye)
        timeout_s = self._settings.stop_timeout_s
        await asyncio.gather(*(one.stop(timeout_s=timeout_s) for one in self._processes))
        await self._server.stop()

    async def _spawn_all(self, rank_command: tuple[str, ...]) -> None:
        address = await self._server.start()
        log.info("rank_server_started", address=address, world_size=self._settings.tp)
        # A rank needs what its master was given (paths, devices), and the token.
        environment = {**WAIT_POLICY, **os.environ, TOKEN_VARIABLE: self._token}
        for rank in range(self._settings.tp):
            who = ("--rank", str(rank), "--world-size", str(self._settings.tp))
            try:
                process = await RankProcess.spawn(
                    rank=rank,
                    command=(*rank_command, "--master", address, *who),
                    environment=environment,
                )
            except OSError as err:
                raise StartupFailed(f"rank {rank} cannot be started: {err}") from err
            self._processes.append(process)
        self._tell(LoadPhase.STARTING)

    async def _load_all(self) -> None:
        async with beside(self._report_awaited()):
            await all_or_first_error(map(self._load, self._processes))
        check_agreement(self._loaded)

    async def _load(self, process: RankProcess) -> None:
        """See one rank through Hello and loading."""
        link = await self._connected(process)
        process.life.fire(RankEvent.SAID_HELLO)
        self._tell(LoadPhase.LOADING)
        link.send(encode_master_message(self._load_order()))
        while True:
            match await self._heard(process, link):
                case LoadProgress() as progress:
                    self._progress[process.rank] = progress
                    self._tell(LoadPhase.LOADING)
                case Loaded() as loaded:
                    self._loaded[process.rank] = loaded
                    self._tell(LoadPhase.LOADING)
                    log.info("rank_loaded", rank=process.rank, geometry=loaded.geometry)
                    return
                case other:
                    raise StartupFailed(f"rank {process.rank} said {other!r} instead of Loaded")

    async def _form_all(self) -> RankGroup:
        form = Form(
            epoch=FIRST_EPOCH,
            num_blocks=choose_num_blocks(self._settings, self._loaded),
            block_size=self._settings.block_size,
            num_lanes=self._settings.num_lanes,
            max_step_tokens=self._settings.max_step_tokens,
            collective_timeout_s=self._settings.collective_timeout_s,
        )
        self._tell(LoadPhase.FORMING)
        await all_or_first_error(self._form(process, form) for process in self._processes)
        facts = group_facts(self._settings, self._loaded, form)
        group = RankGroup(facts=facts, links=self._links(), on_lost=self._note_lost)
        for process in self._processes:
            process.on_exit(partial(self._note_exit, process))
        self._group = group
        self._tell(LoadPhase.READY)
        log.info("rank_group_ready", **dataclasses.asdict(facts))
        return group

    async def _form(self, process: RankProcess, form: Form) -> None:
        link = self._arrivals[process.rank].result()
        link.send(encode_master_message(form))
        message = await self._heard(process, link)
        if message != Ready(epoch=form.epoch):
            raise StartupFailed(f"rank {process.rank} said {message!r} instead of Ready")
        process.life.fire(RankEvent.FORMED)

    async def _connected(self, process: RankProcess) -> RankLink:
        """Wait for the rank's stream; fails when it exits first or a rank of ours is refused."""
        arrival = self._arrivals[process.rank]
        exited = asyncio.create_task(process.exited())
        first: set[asyncio.Future[Any]] = {arrival, self._refused, exited}
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            exited.cancel()
        if self._refused.done():
            raise StartupFailed(self._refused.result())
        if not arrival.done():
            raise StartupFailed(
                f"rank {process.rank} ended before its Hello, exit code {process.exit_code}; "
                f"its log says why"
            )
        return arrival.result()

    async def _heard(self, process: RankProcess, link: RankLink) -> RankMessage:
        """Wait for the rank's next message, or fail with its last words and its exit code."""
        try:
            return await link.receive()
        except RankGroupLost as err:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_GRACE_S):
                    await process.exited()
            code = process.exit_code
            end = "its process still runs" if code is None else f"exit code {code}"
            raise StartupFailed(f"{err}; {end}") from err

    def _take_link(self, link: RankLink) -> None:
        log.info("rank_connected", rank=link.rank, pid=link.pid)
        self._arrivals[link.rank].set_result(link)

    def _take_refusal(self, reason: str) -> None:
        if not self._refused.done():
            self._refused.set_result(reason)

    def _note_exit(self, process: RankProcess) -> None:
        assert self._group is not None
        self._group.lose(
            RankGroupLost(
                f"rank {process.rank} ended with exit code {process.exit_code}",
                epoch=self._group.facts.epoch,
                rank=process.rank,
            )
        )

    def _note_lost(self, error: RankGroupLost) -> None:
        if error.rank is not None:
            self._processes[error.rank].life.fire(RankEvent.FAILED)

    def _links(self) -> list[RankLink]:
        return [arrival.result() for arrival in self._arrivals if arrival.done()]

    def _load_order(self) -> Load:
        return Load(
            model_path=str(self._settings.model_path.absolute()),
            dtype=self._settings.dtype,
            weights=self._settings.weights,
            device=self._settings.device,
            num_threads=self._settings.num_threads,
            block_size=self._settings.block_size,
            max_step_tokens=self._settings.max_step_tokens,
            # As many rows may draw: one a lane, or a few more with drafts behind them.
            num_lanes=max(self._settings.num_lanes, CHEAP_ROWS),
        )

    async def _report_awaited(self) -> None:
        while True:
            await asyncio.sleep(self._report_interval_s)
            log.warning("ranks_awaited", status=self._status())

    def _status(self) -> str:
        return start_status(
            said_hello=[link.rank for link in self._links()],
            loaded=self._loaded,
            world_size=self._settings.tp,
        )

    def _tell(self, phase: LoadPhase) -> None:
        told = self._progress.values()
        self._on_progress(
            LoadState(
                phase=phase,
                world_size=self._settings.tp,
                num_connected=len(self._links()),
                num_loaded=len(self._loaded),
                done_bytes=sum(progress.done_bytes for progress in told),
                total_bytes=sum(progress.total_bytes for progress in told),
            )
        )
