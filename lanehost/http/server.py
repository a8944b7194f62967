"""Run the OpenAI door with uvicorn, in the event loop that is already there.

Laws: the socket is bound before anything else, so a taken port is known at once; no
SO_REUSEPORT, so two servers never share one; the signals of the process stay with the
master; no client keeps the server from ending.

uvicorn's own: what is no HTTP at all gets 400 in plain text; a client that closes its
half of the connection counts as gone, since one that left looks just the same.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from lanehost.addresses import explain, format_address
from lanehost.errors import StartupFailed
from lanehost.http.answer import WRITE_TIMEOUT_S
from lanehost.http.border import Border
from lanehost.http.library_log import library_log

_BACKLOG = 1024
# Beyond it uvicorn answers 503 in its own form: the last bound, far above the door's own.
_MAX_CONNECTIONS = 4096
# How long what was cancelled may take to say so to its client.
_WAY_OUT_S = 1.0


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started = asyncio.Event()
        self.servers = []  # uvicorn sets it once it starts, and stop may come before

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say when connections are accepted."""
        await super().startup(sockets=sockets)
        self.has_started.set()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to exit, with what the libraries log as events of ours."""
        with library_log():
            await super().serve(sockets=sockets)

    def refuse_connections(self) -> None:
        """Listen no more."""
        for server in self.servers:
            server.close()

    def cut_off(self) -> None:
        """Close every connection, whatever is still to be sent there."""
        for connection in self.server_state.connections:
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone: the master has them."""
        yield


class HttpServer:
    """Bound when made; serves from `start` to `stop`."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        unread_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        """Bind the address; a port of 0 takes a free one.

        A name with several addresses is bound at the first of them, IPv4 before IPv6.
        The system closes a connection whose client read nothing for `unread_timeout_s`.

        Raises:
            StartupFailed: the address cannot be had.
        """
        self._socket = _bind(host, port, unread_timeout_s=unread_timeout_s)
        self._port: int = self._socket.getsockname()[1]
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                Border(app),
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                http="h11",
                ws="none",
                limit_concurrency=_MAX_CONNECTIONS,
            )
        )
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<HttpServer port {self.port} started={self._task is not None}>"

    @property
    def port(self) -> int:
        """The port that was bound."""
        return self._port

    async def start(self) -> None:
        """Begin to accept; returns once it does."""
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[self._socket]))
        started = asyncio.create_task(self._uvicorn.has_started.wait())
        try:
            await asyncio.wait({self._task, started}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        if self._task.done():
            await self._task

    async def stop(self, grace_s: float) -> None:
        """Refuse new connections, let requests end for so long, then cancel them."""
        if self._task is None:
            self._socket.close()
            return
        self._uvicorn.should_exit = True
        self._uvicorn.refuse_connections()
        await asyncio.wait({self._task}, timeout=grace_s)
        while not self._task.done():
            # Their way out is where jobs are cancelled, and the client is told.
            for late in self._uvicorn.server_state.tasks:
                late.cancel()
            await asyncio.wait({self._task}, timeout=_WAY_OUT_S)
            self._uvicorn.cut_off()
        self._task.result()


def _bind(host: str, port: int, *, unread_timeout_s: float) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        # On POSIX this sets SO_REUSEADDR, which lets a port that was just left be taken again.
        bound = socket.create_server(address, family=family, backlog=_BACKLOG)
    except OSError as error:
        message = f"cannot listen for HTTP on {format_address(host, port)}: {explain(error)}"
        raise StartupFailed(f"{message} (--host, --http-port; off opens none)") from error
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(unread_timeout_s * 1000))
    return bound
