"""What the master has of one rank number: a process, its stream, what it loaded.

A seat is for one life: a rank that is spawned again gets a new one, so what a former life still
says or does is known by its seat.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from lanehost.rank_group.link import RankLink
from lanehost.rank_group.process import Process
from ranks.wire.codec import encode_master_message
from ranks.wire.messages import Loaded, LoadProgress, MasterMessage

# From the end of a rank's stream to the end of its process, and the other way round.
EXIT_GRACE_S = 10.0


@dataclass(slots=True, eq=False)
class Seat:
    """Filled as its rank comes to life; the supervisor writes it."""

    rank: int
    spawning: asyncio.Task[None] | None = None
    process: Process | None = None
    link: RankLink | None = None
    progress: LoadProgress | None = None
    loaded: Loaded | None = None
    # Why its stream ended.
    last_words: asyncio.Future[str] | None = None
    is_looked_into: bool = False

    def send(self, message: MasterMessage) -> None:
        """Say something to the rank, if it is there."""
        if self.link is not None:
            self.link.send(encode_master_message(message))

    async def find_out(self) -> str:
        """Say why the rank ended, once either its stream or its process has: words and code."""
        if self.link is None or self.last_words is None:
            end = "exit code None" if self.process is None else self.process.end
            return f"rank {self.rank} ended before its Hello, {end}; its log says why"
        end = "its process still runs"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXIT_GRACE_S):
                words = await asyncio.shield(self.last_words)
                end = end if self.process is None else await self.process.ended()
        words = self.last_words.result() if self.last_words.done() else f"rank {self.rank} ended"
        return f"{words}; {end}"
