"""The servers of `lanehost bench cache`: started, asked by one client, and ended."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from lanehost.bench.cache_tiers import Side
from lanehost.bench.load import Load, MonotonicClock
from lanehost.client import AsyncClient
from lanehost.errors import StartupFailed

_END_TIMEOUT_S = 60.0
RECOVERY_TIMEOUT_S = 300.0


class Server(Protocol):
    """A server that the bench starts and ends; `lanehost.chaos.served.ServedHere` is one."""

    @property
    def grpc_address(self) -> str:
        """Where it serves."""
        ...

    @property
    def rank_pids(self) -> dict[int, int]:
        """The last process of each rank number."""
        ...

    async def wait_ready(self) -> None:
        """Wait until it serves."""
        ...

    async def wait_said(self, name: str, *, count: int = 1, within_s: float = 60.0) -> bool:
        """Wait for an event of its log; says whether it came in time."""
        ...

    async def end(self, *, within_s: float) -> int | None:
        """End it; None when it does not end in time."""
        ...


# Of the options of a server.
NewServer = Callable[[tuple[str, ...]], AbstractAsyncContextManager[Server]]


class ServedSide:
    """Implements `lanehost.bench.cache_tiers.Side`."""

    def __init__(self, server: Server, load: Load, *, vocab_size: int) -> None:
        """Take a server that is ready."""
        self._server = server
        self.load = load
        self.vocab_size = vocab_size

    async def lose_ranks(self) -> None:
        """Kill all ranks, and wait until they have come back.

        Raises:
            StartupFailed: They did not, in time.
        """
        for pid in self._server.rank_pids.values():
            os.kill(pid, signal.SIGKILL)
        if not await self._server.wait_said("epoch_formed", within_s=RECOVERY_TIMEOUT_S):
            raise StartupFailed(f"the ranks did not come back within {RECOVERY_TIMEOUT_S:g} s")


@asynccontextmanager
async def serving(new_server: NewServer, options: tuple[str, ...]) -> AsyncIterator[Side]:
    """Start a server; the body asks it alone."""
    async with new_server(options) as server:
        await server.wait_ready()
        async with AsyncClient(server.grpc_address) as client:
            card = await client.model()
            load = Load(client, MonotonicClock(), lambda _: None)
            yield ServedSide(server, load, vocab_size=card.vocab_size)
        await server.end(within_s=_END_TIMEOUT_S)
