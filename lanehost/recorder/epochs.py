"""The epochs of a trail: one after the other, each with steps of its own.

Laws: an epoch begins once the one before was lost, and has a higher number; between the two
no step is submitted and none comes back. A trail that says otherwise makes no sense, and is
refused.
"""

from dataclasses import replace

from lanehost.rank_group.facts import GroupFacts
from lanehost.recorder.records import (
    EpochBegan,
    GroupWasLost,
    Note,
    StepReturned,
    StepSubmitted,
    StepTurnedDown,
)
from lanehost.recorder.trail import DamagedTrail


class TrailEpochs:
    """Which epoch a trail is in, as far as it was read."""

    def __init__(self, first: GroupFacts) -> None:
        """Begin in the first, whose facts are in the header."""
        self.facts = first
        self.num_begun = 1
        self._is_lost = False

    def take(self, note: Note) -> None:
        """Follow a note.

        Raises:
            DamagedTrail: It has no place here.
        """
        match note:
            case GroupWasLost():
                self._is_lost = True
            case EpochBegan(epoch=epoch):
                self._begin(epoch)
            case StepSubmitted() if self._is_lost:
                raise self._after_the_loss(note.plan.step_id)
            case StepReturned() | StepTurnedDown() if self._is_lost:
                raise self._after_the_loss(note.step_id)
            case _:
                pass

    def _begin(self, epoch: int) -> None:
        before = self.facts.epoch
        if not self._is_lost:
            raise DamagedTrail(f"epoch {epoch} begins, and epoch {before} was not lost")
        if epoch <= before:
            raise DamagedTrail(f"epoch {epoch} begins behind epoch {before}")
        self.facts = replace(self.facts, epoch=epoch)
        self.num_begun += 1
        self._is_lost = False

    def _after_the_loss(self, step_id: int) -> DamagedTrail:
        return DamagedTrail(f"step {step_id} comes after the loss of epoch {self.facts.epoch}")
