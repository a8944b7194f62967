"""Who is told how the ranks fare: health, metrics."""

from typing import Protocol

from lanehost.errors import RankGroupLost
from lanehost.rank_group.events import LossCause
from lanehost.rank_group.facts import GroupFacts


class EpochWatcher(Protocol):
    """Told from the event loop; must return at once and not raise."""

    def rank_lost(self, cause: LossCause) -> None:
        """A rank was lost, and is replaced unless the group is given up."""
        ...

    def epoch_ended(self, error: RankGroupLost, cause: LossCause) -> None:
        """The group that served does not any more."""
        ...

    def epoch_formed(self, facts: GroupFacts, recovery_s: float) -> None:
        """A group serves; `recovery_s` since the last one ended, 0 for the first."""
        ...


class Unwatched:
    """Nobody is told."""

    def rank_lost(self, cause: LossCause) -> None:
        """Do nothing."""

    def epoch_ended(self, error: RankGroupLost, cause: LossCause) -> None:
        """Do nothing."""

    def epoch_formed(self, facts: GroupFacts, recovery_s: float) -> None:
        """Do nothing."""
