"""What others tell the engine: one queue of commands, one reader.

Everything that happens to the engine comes through here, results of steps included,
so the loop has one single wait. Bounded by its senders: at most one arrival or resumption, one
cancel and one deadline per open stream, at most two steps in flight, what the disk tier and the
encoders have in flight. Once the engine has ended
nobody reads any more: a job that still arrives is told at once, and all else is moot.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from lanehost.disk_cache.interface import FileOutcome
from lanehost.disk_cache.shelf import ShelfOutcome
from lanehost.engine.backend import Backend
from lanehost.engine.reply import Reply
from lanehost.engine.stream import JobStream
from lanehost.engine.ticket import Ticket
from lanehost.errors import Cancelled, DeadlinePassed, LanehostError, RankGroupLost
from lanehost.job import Failed, StopParams
from lanehost.rank_group.image_interface import ImageOutcome
from ranks.plan import StepRefused, StepResult


class CancelCause(Enum):
    """Who ends a job early."""

    CLIENT = "client"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class Arrived:
    """A job joined the line."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Cancel:
    """A job shall end; harmless when it has ended or is unknown."""

    job_id: str
    cause: CancelCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """Somebody of a scope resumes a job's stream, from the token with this index.

    `stream` is told everything, or why nothing; `new_reply` makes text of the tokens anew.
    """

    job_id: str
    scope: str
    next_index: int
    stream: JobStream
    new_reply: Callable[[StopParams, int], Reply]


def error_of(cause: CancelCause, ticket: Ticket) -> LanehostError:
    """Return what a job ends with that is ended early."""
    match cause:
        case CancelCause.CLIENT:
            return Cancelled("cancelled by the client")
        case CancelCause.DEADLINE:
            return DeadlinePassed(ticket.phase)
        case _:
            assert_never(cause)


@dataclass(frozen=True, slots=True)
class StepDone:
    """The oldest step in flight came back."""

    outcome: StepResult | StepRefused


@dataclass(frozen=True, slots=True)
class FileNews:
    """A work of the disk tier was done, or was not."""

    outcome: FileOutcome | ShelfOutcome


@dataclass(frozen=True, slots=True)
class FetchLate:
    """A job has waited long enough for this fetch from the disk."""

    fetch_id: int


@dataclass(frozen=True, slots=True)
class DiskWatch:
    """It is time to look whether anything came back from the disk, since so many had."""

    num_news: int


@dataclass(frozen=True, slots=True)
class ImageNews:
    """An image was encoded, or was not."""

    outcome: ImageOutcome


@dataclass(frozen=True, slots=True)
class GroupLost:
    """The epoch has ended: no step of it comes back any more."""

    error: RankGroupLost


@dataclass(frozen=True, slots=True)
class GroupFormed:
    """The next epoch's group is there, and has run nothing yet."""

    backend: Backend


@dataclass(frozen=True, slots=True)
class RanksGivenUp:
    """There will be no other epoch."""

    error: RankGroupLost


@dataclass(frozen=True, slots=True)
class PumpFailed:
    """Waiting for steps met an error that is a bug of ours."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Drain:
    """Finish what is there, then end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End every job now with `error`, then end."""

    error: LanehostError


Command = (
    Arrived
    | Cancel
    | Attach
    | StepDone
    | FileNews
    | FetchLate
    | DiskWatch
    | ImageNews
    | GroupLost
    | GroupFormed
    | RanksGivenUp
    | PumpFailed
    | Drain
    | Stop
)


class Inbox:
    """Commands in the order in which they were put; one reader."""

    def __init__(self) -> None:
        """Begin empty."""
        self._commands: list[Command] = []
        self._arrived = asyncio.Event()
        self._closed_with: LanehostError | None = None

    @property
    def is_closed(self) -> bool:
        """Whether no command is taken any more."""
        return self._closed_with is not None

    def put(self, command: Command) -> None:
        """Add a command; never waits. After `close`, tell a job that arrives why it cannot run."""
        if self._closed_with is None:
            self._commands.append(command)
            self._arrived.set()
        elif isinstance(command, Arrived):
            command.ticket.stream.put(Failed(error=self._closed_with))
        elif isinstance(command, Attach):
            command.stream.put(Failed(error=self._closed_with))

    def put_file_news(self, outcome: FileOutcome | ShelfOutcome) -> None:
        """Add what became of a work of the disk tier."""
        self.put(FileNews(outcome))

    def put_image_news(self, outcome: ImageOutcome) -> None:
        """Add what became of an image."""
        self.put(ImageNews(outcome))

    def close(self, error: LanehostError) -> None:
        """Take no more commands; the jobs that were not taken yet fail with `error`."""
        self._closed_with = error
        commands, self._commands = self._commands, []
        for command in commands:
            self.put(command)

    async def take_all(self) -> list[Command]:
        """Wait until there is a command, and take all that are there."""
        await self._arrived.wait()
        self._arrived.clear()
        commands, self._commands = self._commands, []
        return commands
