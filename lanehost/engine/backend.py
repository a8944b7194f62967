"""What the engine asks of the ranks; the rank group and the fake both give it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from lanehost.disk_cache.interface import RankFiles
from lanehost.errors import RankGroupLost
from lanehost.rank_group.facts import GroupFacts
from lanehost.rank_group.image_interface import RankImages
from ranks.plan import StepPlan, StepRefused, StepResult


class Backend(Protocol):
    """Runs plans in order. Up to two may be in flight."""

    @property
    def facts(self) -> GroupFacts:
        """What all ranks agreed on."""
        ...

    @property
    def files(self) -> RankFiles | None:
        """The files of these ranks; None where they have none."""
        ...

    @property
    def images(self) -> RankImages | None:
        """The images of these ranks; None where they take none."""
        ...

    def submit(self, plan: StepPlan) -> None:
        """Hand a plan to every rank; returns at once.

        Raises:
            RankGroupLost: the group cannot run it.
        """
        ...

    async def next_outcome(self) -> StepResult | StepRefused:
        """Wait for the oldest plan in flight.

        Raises:
            RankGroupLost: a rank was lost, or ranks disagreed on what they ran.
        """
        ...

    def lose(self, error: RankGroupLost) -> None:
        """End the epoch: the ranks did with a step what they should not have."""
        ...


class Backends(Protocol):
    """Gives one backend after the other: each epoch has its own (ADR 20)."""

    async def next_backend(self) -> Backend:
        """Wait until the ranks are a group that is not the last one given; returns it.

        Ask once the last one given is lost. Cancelling the wait changes nothing: the next
        call goes on waiting for the same group. A group that was lost before anybody asked
        for it is never given.

        Raises:
            RankGroupLost: The ranks have been given up for good.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The backend of the first epoch, and where those of all later ones come from."""

    first: Backend
    later: Backends


class OnlyEpoch:
    """Implements `Backends` over ranks that form no second group."""

    def __init__(self, lost: Callable[[], Awaitable[RankGroupLost]]) -> None:
        """Wait for their end."""
        self._lost = lost

    async def next_backend(self) -> Backend:
        """Raise, once the group is lost."""
        raise await self._lost()
