"""What a watcher of health sees, and when."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_SERVING = health_pb2.HealthCheckResponse.SERVING


class HealthSeen:
    """The changes of health so far: (seconds, whether it serves)."""

    def __init__(self) -> None:
        """Have seen nothing."""
        self.changes: list[tuple[float, bool]] = []
        self._changed = asyncio.Event()

    def note(self, *, is_serving: bool) -> None:
        """Take what a Watch said."""
        self.changes.append((time.monotonic(), is_serving))
        self._changed.set()

    @property
    def is_serving(self) -> bool:
        """What was said last."""
        return bool(self.changes) and self.changes[-1][1]

    async def wait_for(self, *, is_serving: bool, within_s: float) -> bool:
        """Wait until this is what was said last; says whether it came in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.is_serving is not is_serving:
                    self._changed.clear()
                    await self._changed.wait()
        return self.is_serving is is_serving

    def lag_s(self, fault_s: float) -> float | None:
        """Time from a fault to the next word that the server does not serve.

        None where it did not serve at the fault, or has said nothing since.
        """
        before = [is_serving for at_s, is_serving in self.changes if at_s <= fault_s]
        if not before or not before[-1]:
            return None
        after = (at_s for at_s, is_serving in self.changes if at_s > fault_s and not is_serving)
        at_s = next(after, None)
        return None if at_s is None else at_s - fault_s


@asynccontextmanager
async def health_watched(address: str) -> AsyncIterator[HealthSeen]:
    """Watch a server's health while the block lasts."""
    seen = HealthSeen()
    async with grpc.aio.insecure_channel(address) as channel:
        watching = asyncio.create_task(_watch(channel, seen))
        try:
            yield seen
        finally:
            watching.cancel()
            await asyncio.wait({watching})


async def _watch(channel: grpc.aio.Channel, seen: HealthSeen) -> None:
    call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    with contextlib.suppress(grpc.aio.AioRpcError):
        async for answer in call:
            seen.note(is_serving=answer.status == _SERVING)
    if seen.is_serving:  # the stream broke without a last word
        seen.note(is_serving=False)
