"""Take every job off its lane when the group is lost, and tell by whom that may have been.

A loss counts against a job if rows of it were in flight that lie beyond the farthest
position it ever got through (ADR 20, `lanehost.lanes.sequence`).

Laws: the jobs come in the order in which they sat down; each that ran is carried on or
poisoned, never both.
"""

from dataclasses import dataclass, replace

from lanehost.errors import RankGroupLost
from lanehost.lanes.lane import Lane
from lanehost.lanes.table import LaneTable
from lanehost.rank_group.facts import GroupFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOff:
    """Lanes that ran, as they sat down: whose jobs go on, and whose do not."""

    carried: tuple[Lane, ...]
    poisoned: tuple[Lane, ...]


def take_off(lanes: LaneTable) -> TakenOff:
    """Count a loss against the jobs in flight; returns all that ran."""
    running = sorted((lane for lane in lanes if lane.is_running), key=lambda lane: lane.seat_number)
    for lane in running:
        assert lane.sequence is not None
        if not lane.is_settled:
            lane.sequence.note_loss(lane.num_planned_tokens)
    return TakenOff(
        carried=tuple(lane for lane in running if not _is_poisoned(lane)),
        poisoned=tuple(lane for lane in running if _is_poisoned(lane)),
    )


def _is_poisoned(lane: Lane) -> bool:
    assert lane.sequence is not None
    return lane.sequence.is_poisoned


def difference(before: GroupFacts, now: GroupFacts) -> RankGroupLost | None:
    """Say why replies cannot go on in the next epoch, if they cannot: it holds something else.

    How the ranks add may differ: it changes no bit.
    """
    assert now.epoch > before.epoch, f"epoch {now.epoch} after {before.epoch}"
    expected = replace(before, epoch=now.epoch, collective=now.collective)
    for name in GroupFacts.__slots__:
        then, here = getattr(expected, name), getattr(now, name)
        if then != here:
            message = f"{name} is {here} in epoch {now.epoch}, and was {then} before"
            return RankGroupLost(message, epoch=now.epoch, rank=None)
    return None
