"""How the ranks fare, in numbers."""

from lanehost.errors import RankGroupLost
from lanehost.metrics.epochs import MetricsEpochs
from lanehost.metrics.tally import Tally
from lanehost.rank_group.events import LossCause
from tests.support.rank_facts import facts


def test_epochs_losses_and_the_time_between_are_counted():
    tally = Tally.of(("",))
    epochs = MetricsEpochs(tally)
    epochs.epoch_formed(facts(), 0.0)
    epochs.rank_lost(LossCause.SILENT)
    epochs.epoch_ended(RankGroupLost("why", epoch=1, rank=0), LossCause.SILENT)
    epochs.epoch_formed(facts(epoch=2), 1.5)
    assert tally.ranks_lost["silent"] == 1
    assert tally.ranks_lost["exited"] == 0
    assert tally.epochs_formed == 2
    assert tally.recovery.total == 1.5
    assert max(count for _, count in tally.recovery.cumulated()) == 1
