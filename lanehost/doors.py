"""Both doors, gRPC and HTTP: bound first, serving once told so, stopped in order."""

import asyncio
from types import TracebackType
from typing import Self

from lanehost.addresses import format_address
from lanehost.console import Addresses
from lanehost.door.gate import Gate
from lanehost.engine.observer import NoObserver
from lanehost.errors import RankGroupLost
from lanehost.http.app import build_http_app
from lanehost.http.server import HttpServer
from lanehost.metrics.metrics import Metrics
from lanehost.server.grpc_server import bind_grpc, build_grpc_server
from lanehost.server.health import Health
from lanehost.settings import ServeSettings
from lanehost.tasks import to_the_end

# Calls beside streams: health, tokenizing, and those that the door refuses.
_SPARE_RPCS = 256


class HealthObserver(NoObserver):
    """Implements `EngineObserver`: health is not serving from a loss to the next epoch.

    Requests are taken all the while. A drain that began meanwhile stays: the gate knows of it.
    """

    def __init__(self, gate: Gate, doors: "Doors") -> None:
        """Tell these."""
        self._gate = gate
        self._doors = doors

    def group_lost(self, lost: RankGroupLost) -> None:
        """Say not serving."""
        del lost
        self._gate.suspend()
        self._doors.set_not_serving()

    def group_formed(self, epoch: int) -> None:
        """Say serving again."""
        del epoch
        self._gate.resume()
        if self._gate.is_serving():
            self._doors.set_serving()


class Doors:
    """The servers in front of the gate; used as a block around the whole run."""

    def __init__(self, metrics: Metrics, settings: ServeSettings) -> None:
        """Bind the HTTP address, if there is to be one; gRPC is bound on entering.

        Both come in through the gate of the metrics.

        Raises:
            StartupFailed: the HTTP address cannot be had.
        """
        self._host = settings.host
        self._gate = metrics.gate
        self._health = Health()
        self._http = None
        if settings.http_port is not None:
            app = build_http_app(metrics.gate, metrics=metrics)
            self._http = HttpServer(app, host=settings.host, port=settings.http_port)
        self._grpc = build_grpc_server(
            metrics.gate,
            self._health,
            reflection=settings.reflection,
            # Above the door's own bound, so that it is the door that says no, with the number.
            max_concurrent_rpcs=settings.line.max_streams + _SPARE_RPCS,
        )
        self._grpc_port = 0
        self._wanted_port = settings.port

    async def __aenter__(self) -> Self:
        """Accept connections; health says not serving.

        Raises:
            StartupFailed: the gRPC address cannot be had.
        """
        try:
            self._grpc_port = bind_grpc(self._grpc, self._host, self._wanted_port)
            await self._grpc.start()
            if self._http is not None:
                await self._http.start()
        except BaseException:
            await to_the_end(self.stop(grace_s=0))
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop whatever still runs, at once, even when cancelled meanwhile."""
        await to_the_end(self.stop(grace_s=0))

    @property
    def addresses(self) -> Addresses:
        """Where the doors are."""
        http = None if self._http is None else format_address(self._host, self._http.port)
        return Addresses(grpc=format_address(self._host, self._grpc_port), http=http)

    def set_serving(self) -> None:
        """Tell health's watchers that requests are run."""
        self._health.set_serving()

    def set_not_serving(self) -> None:
        """Tell health's watchers that requests are not run."""
        self._health.set_not_serving()

    def announce_end(self) -> None:
        """Say not serving for good, on both doors; requests are still taken."""
        self._gate.announce_end()
        self.set_not_serving()

    async def stop(self, *, grace_s: float) -> None:
        """Let open requests end for so long, then cut them off.

        May be called again, also when an earlier call was cancelled: what is stopped
        stays stopped.
        """
        self._health.close()
        stopping = [self._grpc.stop(grace_s)]
        if self._http is not None:
            stopping.append(self._http.stop(grace_s))
        await asyncio.gather(*stopping)
