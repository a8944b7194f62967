"""grpc.health.v1 with Check and a real Watch, for the server and its one service.

Laws: a Watch says the state at once and then every state that lasts; a watcher that
leaves or does not read harms no other. The servicer of grpcio-health-checking holds
neither (its watchers share one condition, which the first to leave throws away), so
only its messages are used here. One event loop owns an instance.
"""

import asyncio
from collections.abc import AsyncIterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lanehost.v1 import inference_pb2

SERVICE = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"].full_name
_NAMES = ("", SERVICE)
_Response = health_pb2.HealthCheckResponse
_Context = grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # grpc_health has no types
    """Not serving until told so."""

    def __init__(self) -> None:
        self._is_serving = False
        self._is_closed = False
        self._changed = asyncio.Event()

    def set_serving(self) -> None:
        """Tell every watcher that requests are run."""
        self._set(is_serving=True)

    def set_not_serving(self) -> None:
        """Tell every watcher that requests are not run."""
        self._set(is_serving=False)

    def close(self) -> None:
        """Say not serving for the last time, and end every Watch: it would outlive a drain."""
        self._is_closed = True
        self._set(is_serving=False)

    async def Check(  # noqa: N802 - the name is the wire's
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> health_pb2.HealthCheckResponse:
        """Say the state now."""
        if request.service not in _NAMES:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"service {request.service[:100]!r} is not here"
            )
        return _Response(status=self._status())

    async def Watch(  # noqa: N802 - the name is the wire's
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> None:
        """Say the state now and whenever it changes."""
        if request.service not in _NAMES:
            # The protocol wants the stream kept open: the service might appear. Here it cannot.
            await context.write(_Response(status=_Response.SERVICE_UNKNOWN))
        async for status in self._statuses():
            if request.service in _NAMES:
                await context.write(_Response(status=status))

    async def _statuses(self) -> AsyncIterator[health_pb2.HealthCheckResponse.ServingStatus]:
        last = None
        while True:
            changed, status = self._changed, self._status()
            if status != last:
                yield status
            last = status
            if self._is_closed:
                return
            if changed is self._changed:
                await changed.wait()

    def _status(self) -> health_pb2.HealthCheckResponse.ServingStatus:
        return _Response.SERVING if self._is_serving else _Response.NOT_SERVING

    def _set(self, *, is_serving: bool) -> None:
        self._is_serving = is_serving and not self._is_closed
        waiting, self._changed = self._changed, asyncio.Event()
        waiting.set()
