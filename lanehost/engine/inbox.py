"""What others tell the engine: one queue of commands, one reader.

Everything that happens to the engine comes through here, results of steps included,
so the loop has one single wait. Bounded by its senders: at most one arrival and one
cancel per open stream, at most two steps in flight.
"""

import asyncio
from dataclasses import dataclass
from enum import Enum

from lanehost.engine.ticket import Ticket
from lanehost.errors import LanehostError, RankGroupLost
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


@dataclass(frozen=True, slots=True)
class StepDone:
    """The oldest step in flight came back."""

    outcome: StepResult | StepRefused


@dataclass(frozen=True, slots=True)
class GroupLost:
    """The rank group cannot go on."""

    error: RankGroupLost


@dataclass(frozen=True, slots=True)
class Drain:
    """Finish what is there, then end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End every job now with `error`, then end."""

    error: LanehostError


Command = Arrived | Cancel | StepDone | GroupLost | Drain | Stop


class Inbox:
    """Commands in the order in which they were put; one reader."""

    def __init__(self) -> None:
        """Begin empty."""
        self._commands: list[Command] = []
        self._arrived = asyncio.Event()

    def put(self, command: Command) -> None:
        """Add a command; never waits."""
        self._commands.append(command)
        self._arrived.set()

    async def take_all(self) -> list[Command]:
        """Wait until there is a command, and take all that are there."""
        await self._arrived.wait()
        self._arrived.clear()
        commands, self._commands = self._commands, []
        return commands
