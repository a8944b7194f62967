"""The master's end of the stream to one rank.

Laws: bytes go out in the order in which they were sent; an ended stream says why, once,
to whoever waits and to whoever sends; a message that is none of ours ends it.

First the supervisor calls `receive`; then the group takes over with `deliver_to`.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from lanehost.errors import RankGroupLost
from ranks.errors import BadMessage
from ranks.wire.codec import decode_rank_message
from ranks.wire.messages import Broken, Fatal, Heartbeat, RankMessage

# More than a rank sends while nobody reads: a hundred reports of progress.
_MAX_QUEUED = 512

# Any: grpc.aio's types for handlers that take bytes as they are.
Context = Any


class RankLink:
    """One stream; the rank server serves it, the supervisor and the group use it."""

    def __init__(self, *, rank: int, pid: int, epoch: int) -> None:
        """Take the rank's number and process id from its Hello."""
        self.rank = rank
        self.pid = pid
        self._epoch = epoch
        self._outgoing: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_QUEUED)
        self._incoming: asyncio.Queue[RankMessage | None] = asyncio.Queue(_MAX_QUEUED)
        self._deliver: Callable[[RankMessage], None] = self._incoming.put_nowait
        self._tell_end: Callable[[RankGroupLost], None] | None = None
        self._end: RankGroupLost | None = None

    def __repr__(self) -> str:
        """Show the rank and whether the stream is open."""
        return f"<RankLink rank {self.rank} {'open' if self._end is None else self._end}>"

    def send(self, payload: bytes) -> None:
        """Queue bytes for the rank; returns at once.

        Raises:
            RankGroupLost: The stream has ended, or the rank takes nothing any more.
        """
        if self._end is not None:
            raise self._end
        try:
            self._outgoing.put_nowait(payload)
        except asyncio.QueueFull:
            self._finish(f"takes nothing: {_MAX_QUEUED} messages wait")
            raise self._lost(f"takes nothing: {_MAX_QUEUED} messages wait") from None

    async def receive(self) -> RankMessage:
        """Wait for the rank's next message, before `deliver_to`.

        Raises:
            RankGroupLost: The stream has ended.
        """
        message = None if self._end and self._incoming.empty() else await self._incoming.get()
        if message is None:
            raise self._end or self._lost("ended its stream")
        return message

    def deliver_to(
        self, on_message: Callable[[RankMessage], None], on_end: Callable[[RankGroupLost], None]
    ) -> None:
        """From now on call back, from the event loop; `on_end` is called once."""
        self._deliver, self._tell_end = on_message, on_end
        if self._end is not None:
            on_end(self._end)

    def close(self) -> None:
        """End the stream after what was sent."""
        if self._end is None and not self._outgoing.full():
            self._outgoing.put_nowait(None)

    async def serve(self, context: Context) -> None:
        """Read and write the stream until either side ends it."""
        reader = asyncio.create_task(self._read_all(context))
        writer = asyncio.create_task(self._write_all(context))
        reason = "ended its stream"
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done():
                reason = reader.result()
        finally:
            # Also when gRPC cancels this call because the rank is gone.
            self._finish(reason)
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _read_all(self, context: Context) -> str:
        """Deliver what comes; returns why no more does."""
        while (payload := await context.read()) is not grpc.aio.EOF:
            try:
                message = decode_rank_message(payload)
            except BadMessage as err:
                return f"sent {err}"
            if isinstance(message, Fatal):
                return f"failed: {message.message}"
            if isinstance(message, Broken):
                return f"broke epoch {message.epoch}: {message.reason}"
            if isinstance(message, Heartbeat):
                continue
            try:
                self._deliver(message)
            except asyncio.QueueFull:
                return f"sent {_MAX_QUEUED} messages that nobody asked for"
        return "ended its stream"

    async def _write_all(self, context: Context) -> None:
        while (payload := await self._outgoing.get()) is not None:
            await context.write(payload)

    def _finish(self, reason: str) -> None:
        if self._end is not None:
            return
        self._end = self._lost(reason)
        if not self._incoming.full():
            self._incoming.put_nowait(None)
        if self._tell_end is not None:
            self._tell_end(self._end)

    def _lost(self, reason: str) -> RankGroupLost:
        return RankGroupLost(f"rank {self.rank} {reason}", epoch=self._epoch, rank=self.rank)
