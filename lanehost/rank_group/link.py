"""The master's end of a stream: to a rank, or to an agent.

Laws: bytes go out in the order in which they were sent; an ended stream says why, once, and
takes nothing more; a message that is none of ours ends it. What comes in is handed on at once:
nothing is kept here.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from ranks.errors import BadMessage
from ranks.wire.codec import decode_rank_message
from ranks.wire.follow_codec import decode_agent_message
from ranks.wire.follow_messages import AgentMessage, Join
from ranks.wire.messages import Fatal, RankMessage

# More than a rank that reads is ever behind: two plans, and a few words beside them.
_MAX_QUEUED = 512

# Any: grpc.aio's types for handlers that take bytes as they are.
Context = Any
_Message = TypeVar("_Message")


class _LastWords(Exception):
    """What the other side said before it ended."""


class Link(Generic[_Message]):
    """One stream; the rank server serves it."""

    def __init__(self, name: str, decode: Callable[[bytes], _Message]) -> None:
        """Take the name of the other side, for people, and what reads its messages."""
        self._name = name
        self._decode = decode
        self._outgoing: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_QUEUED)
        self._deliver: Callable[[_Message], None] | None = None
        self._tell_end: Callable[[str], None] | None = None
        self._end: str | None = None
        self._is_cut = asyncio.Event()
        # Set once all that will ever go out is out.
        self.served = asyncio.Event()

    def __repr__(self) -> str:
        """Show the other side and whether the stream is open."""
        kind = type(self).__name__
        return f"<{kind} {self._name} {'open' if self._end is None else self._end}>"

    def deliver_to(
        self, on_message: Callable[[_Message], None], on_end: Callable[[str], None]
    ) -> None:
        """Call back from the event loop; `on_end` is called once, with the reason."""
        self._deliver, self._tell_end = on_message, on_end

    def send(self, payload: bytes) -> None:
        """Queue bytes; a stream that has ended takes them and drops them."""
        if self._end is not None:
            return
        try:
            self._outgoing.put_nowait(payload)
        except asyncio.QueueFull:
            self._finish(f"takes nothing: {_MAX_QUEUED} messages wait")

    def close(self, reason: str) -> None:
        """End the stream once all that was sent is out."""
        self._finish(reason)

    def cut(self, reason: str) -> None:
        """End the stream at once, whatever still waits: nobody may be there to take it."""
        self._finish(reason)
        self._is_cut.set()

    async def serve(self, context: Context) -> None:
        """Read and write the stream until either side ends it."""
        reader = asyncio.create_task(self._read_all(context))
        writer = asyncio.create_task(self._write_all(context))
        cut = asyncio.create_task(self._is_cut.wait())
        reason = "ended its stream"
        try:
            await asyncio.wait({reader, writer, cut}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done():
                reason = reader.result()
        finally:
            # Also when gRPC cancels this call because the other side is gone.
            self._finish(reason)
            for task in (reader, writer, cut):
                task.cancel()
            await asyncio.gather(reader, writer, cut, return_exceptions=True)
            self.served.set()

    async def _read_all(self, context: Context) -> str:
        """Hand on what comes; returns why no more does."""
        assert self._deliver is not None, "nobody listens"
        while (payload := await context.read()) is not grpc.aio.EOF:
            try:
                message = self._decode(payload)
            except BadMessage as err:
                return f"sent {err}"
            except _LastWords as words:
                return f"failed: {words}"
            self._deliver(message)
        return "ended its stream"

    async def _write_all(self, context: Context) -> None:
        while (payload := await self._outgoing.get()) is not None:
            await context.write(payload)

    def _finish(self, reason: str) -> None:
        if self._end is not None:
            return
        self._end = f"{self._name} {reason}"
        if not self._outgoing.full():
            self._outgoing.put_nowait(None)
        if self._tell_end is not None:
            self._tell_end(self._end)


class RankLink(Link[RankMessage]):
    """The stream to a rank; the supervisor and the group use it."""

    def __init__(self, *, rank: int, pid: int) -> None:
        """Take the rank's number and process id from its Hello."""
        super().__init__(f"rank {rank}", _decode_rank)
        self.rank = rank
        self.pid = pid


class AgentLink(Link[AgentMessage]):
    """The stream to an agent."""

    def __init__(self, join: Join) -> None:
        """Take what the agent said of itself."""
        super().__init__(f"the agent of rank {join.rank} on {join.host}", decode_agent_message)
        self.join = join


def _decode_rank(payload: bytes) -> RankMessage:
    message = decode_rank_message(payload)
    if isinstance(message, Fatal):
        raise _LastWords(message.message)
    return message
