"""What the engine asks of the ranks; the rank group and the fake both give it."""

from typing import Protocol

from lanehost.rank_group.facts import GroupFacts
from ranks.plan import StepPlan, StepRefused, StepResult


class Backend(Protocol):
    """Runs plans in order. Up to two may be in flight."""

    @property
    def facts(self) -> GroupFacts:
        """What all ranks agreed on."""
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
