"""How the process of a rank is started on this host: its command and its environment.

A host may keep one spare: a process that has its code loaded and becomes the next rank that is
started, which is then there seconds sooner (ADR 23). Law: a spare is ended with the rest, and one
that has ended delays nothing: a rank is then started as ever. One that is stopped, or hangs, is
taken all the same, and costs the time in which a silent rank is found.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import structlog

from lanehost.rank_group.network import is_loopback
from lanehost.rank_group.process import RankProcess
from lanehost.settings import RankGroupSettings, RankPortSettings
from ranks.spare import Orders, encode_orders
from ranks.wire.messages import TOKEN_VARIABLE

log = structlog.get_logger()

# From the start of a rank to that of the first spare, which would load its code beside it, or
# beside the first requests. Later ones are wanted at once: where a rank was lost, more may be.
FIRST_SPARE_AFTER_S = 10.0
# It has nothing to put in order.
_SPARE_STOP_S = 1.0
# A rank's idle threads spin briefly and then sleep: they share the cores with the master
# (docs/performance.md has the figures). An operator's own values win.
WAIT_POLICY = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doorway:
    """What a rank of this host dials, and where its fellows of other hosts reach it."""

    master: str
    bind_host: str
    is_encrypted: bool


class RankStarter:
    """Starts ranks of one group on this host, and keeps the spare."""

    def __init__(
        self,
        command: tuple[str, ...],
        *,
        world_size: int,
        port: RankPortSettings | None,
        keeps_spare: bool = False,
    ) -> None:
        """Take what starts a rank, and how the group speaks between hosts, if it does."""
        self._command = command
        self._world_size = world_size
        self._port = port
        self._keeps_spare = keeps_spare
        self._spare: RankProcess | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._preparing: asyncio.Task[None] | None = None

    @classmethod
    def for_group(cls, settings: RankGroupSettings, command: tuple[str, ...]) -> Self:
        """Start the ranks of this group; where none is ever replaced there is no spare."""
        return cls(
            command,
            world_size=settings.tp,
            port=settings.rank_port,
            keeps_spare=settings.keeps_spare and settings.max_restarts > 0,
        )

    async def start(self, rank: int, doorway: Doorway, *, token: str) -> RankProcess:
        """Start a process, or have the spare become this rank.

        Raises:
            OSError: The command cannot be started.
        """
        who = ("--rank", str(rank), "--world-size", str(self._world_size))
        argv = ("--master", doorway.master, *self._network(doorway), *who)
        spare, self._spare = self._spare, None
        if spare is not None and spare.exit_code is None:
            spare.become(rank, encode_orders(Orders(argv=argv, token=token)))
            return spare
        return await RankProcess.spawn(
            rank=rank,
            command=(*self._command, *argv),
            environment={**self._environment(), TOKEN_VARIABLE: token},
        )

    def prepare(self, *, after_s: float = 0.0) -> None:
        """See to it that there is a spare in a while, if one is to be kept; returns at once."""
        if self._timer is not None:
            self._timer.cancel()
        if self._keeps_spare:
            self._timer = asyncio.get_running_loop().call_later(after_s, self._begin)

    async def stop(self) -> None:
        """End the spare."""
        if self._timer is not None:
            self._timer.cancel()
        if self._preparing is not None:
            await asyncio.wait({self._preparing})
        spare, self._spare = self._spare, None
        if spare is not None:
            await spare.stop(timeout_s=_SPARE_STOP_S)

    def _begin(self) -> None:
        is_there = self._spare is not None and self._spare.exit_code is None
        is_coming = self._preparing is not None and not self._preparing.done()
        if not is_there and not is_coming:
            self._preparing = asyncio.create_task(self._prepare(), name="spare rank")

    async def _prepare(self) -> None:
        command = (*self._command, "--spare")
        try:
            spare = await RankProcess.spawn(
                rank=None, command=command, environment=self._environment()
            )
        except OSError as err:
            log.warning("spare_not_spawned", reason=str(err))
            return
        self._spare = spare

    def _environment(self) -> Mapping[str, str]:
        # A rank needs what its master was given (paths, devices).
        environment = {**WAIT_POLICY, **os.environ}
        if self._port is not None and self._port.interface is not None:
            environment["NCCL_SOCKET_IFNAME"] = self._port.interface
        return environment

    def _network(self, doorway: Doorway) -> tuple[str, ...]:
        port = self._port
        if port is None:
            return ()
        here = ranks_here(port, self._world_size)
        words = ["--bind-host", doorway.bind_host, "--ranks-here", str(here)]
        if port.interface is not None:
            words += ["--interface", port.interface]
        if doorway.is_encrypted and port.tls is not None:
            words += ["--tls", str(port.tls)]
        return tuple(words)


def ranks_here(port: RankPortSettings, world_size: int) -> int:
    """Say how many ranks share this host: what was told, or all where the master is on loopback."""
    if port.ranks_here is not None:
        return port.ranks_here
    return world_size if is_loopback(port.host) else 1
