"""The master's end of the stream to one rank.

Laws: bytes go out in the order in which they were sent; an ended stream says why, once, and
takes nothing more; a message that is none of ours ends it. What comes in is handed on at once:
nothing is kept here.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from ranks.errors import BadMessage
from ranks.wire.codec import decode_rank_message
from ranks.wire.messages import Fatal, RankMessage

# More than a rank that reads is ever behind: two plans, and a few words beside them.
_MAX_QUEUED = 512

# Any: grpc.aio's types for handlers that take bytes as they are.
Context = Any


class RankLink:
    """One stream; the rank server serves it, the supervisor and the group use it."""

    def __init__(self, *, rank: int, pid: int) -> None:
        """Take the rank's number and process id from its Hello."""
        self.rank = rank
        self.pid = pid
        self._outgoing: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_QUEUED)
        self._deliver: Callable[[RankMessage], None] | None = None
        self._tell_end: Callable[[str], None] | None = None
        self._end: str | None = None

    def __repr__(self) -> str:
        """Show the rank and whether the stream is open."""
        return f"<RankLink rank {self.rank} {'open' if self._end is None else self._end}>"

    def deliver_to(
        self, on_message: Callable[[RankMessage], None], on_end: Callable[[str], None]
    ) -> None:
        """Call back from the event loop; `on_end` is called once, with the reason."""
        self._deliver, self._tell_end = on_message, on_end

    def send(self, payload: bytes) -> None:
        """Queue bytes for the rank; a stream that has ended takes them and drops them."""
        if self._end is not None:
            return
        try:
            self._outgoing.put_nowait(payload)
        except asyncio.QueueFull:
            self._finish(f"takes nothing: {_MAX_QUEUED} messages wait")

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
        """Hand on what comes; returns why no more does."""
        assert self._deliver is not None, "nobody listens"
        while (payload := await context.read()) is not grpc.aio.EOF:
            try:
                message = decode_rank_message(payload)
            except BadMessage as err:
                return f"sent {err}"
            if isinstance(message, Fatal):
                return f"failed: {message.message}"
            self._deliver(message)
        return "ended its stream"

    async def _write_all(self, context: Context) -> None:
        while (payload := await self._outgoing.get()) is not None:
            await context.write(payload)

    def _finish(self, reason: str) -> None:
        if self._end is not None:
            return
        self._end = f"rank {self.rank} {reason}"
        if not self._outgoing.full():
            self._outgoing.put_nowait(None)
        if self._tell_end is not None:
            self._tell_end(self._end)
