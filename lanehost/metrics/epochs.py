"""Counts how the ranks fare."""

from lanehost.errors import RankGroupLost
from lanehost.metrics.tally import Tally
from lanehost.rank_group.events import LossCause
from lanehost.rank_group.facts import GroupFacts


class MetricsEpochs:
    """Implements `lanehost.rank_group.watcher.EpochWatcher`."""

    def __init__(self, tally: Tally) -> None:
        """Count there."""
        self._tally = tally

    def rank_lost(self, cause: LossCause) -> None:
        """Count a rank."""
        self._tally.ranks_lost[cause.value] += 1

    def epoch_ended(self, error: RankGroupLost, cause: LossCause) -> None:
        """Count nothing: the next one is counted."""

    def epoch_formed(self, facts: GroupFacts, recovery_s: float) -> None:
        """Count a group, and how long there was none before it."""
        del facts
        self._tally.epochs_formed += 1
        if recovery_s > 0:
            self._tally.recovery.observe(recovery_s)
