"""Who sits in which lane: off the line, into a lane, and back when it has to give way or park.

Laws: as many sit as fit, in the line's order; who gives way or parks joins the line again, and
goes on later exactly where it was.
"""

from collections.abc import Callable, Iterator, Mapping

from lanehost.admission.setup import AlreadyKept, Wait
from lanehost.engine.desk import Desk
from lanehost.engine.holdings import Holdings
from lanehost.engine.notices import Notices
from lanehost.engine.staged import StagedSide
from lanehost.engine.ticket import Ticket
from lanehost.lanes.lane import Lane


class Seating:
    """The engine's hand between the line and the lanes; part of its loop."""

    def __init__(
        self,
        desk: Desk,
        tickets: Mapping[str, Ticket],
        notices: Notices,
        staged: StagedSide,
        *,
        clock: Callable[[], float],
    ) -> None:
        """Seat jobs off the desk's line.

        Args:
            desk: The line, and the disk that prefixes come from.
            tickets: Of the open jobs.
            notices: Hears who sits down and who has to rise.
            staged: Hears whose images are to be had.
            clock: Seconds that only rise.
        """
        self._line, self._disk = desk.line, desk.disk
        self._tickets = tickets
        self._notices = notices
        self._staged = staged
        self._clock = clock

    def admit(self, holdings: Holdings, *, last_landed_id: int) -> Iterator[Ticket]:
        """Seat as many of the line as fit; yields those that have all they asked for already."""
        while True:
            match holdings.take_job(self._line):
                case Lane() as lane:
                    self._note_seated(lane)
                case AlreadyKept() as kept:
                    ticket = self._tickets[kept.sequence.job.job_id]
                    ticket.seat(kept.num_cached_tokens, now_s=self._clock())
                    yield ticket
                case Wait.LANE | Wait.BLOCKS:
                    if not self._make_way(holdings, last_landed_id):
                        return
                case _:
                    return

    def grow(self, holdings: Holdings, *, last_landed_id: int) -> None:
        """Give lanes the blocks that they need next; some may have to park for it."""
        while (newest := holdings.grow()) is not None:
            self._notices.parked(newest)
            self._tickets[newest.job.job_id].sequence.was_parked = True
            self._put_back(holdings, newest, last_landed_id)

    def _note_seated(self, lane: Lane) -> None:
        ticket = self._tickets[lane.job.job_id]
        num_from_disk = self._disk.count_seated(lane)
        is_first = ticket.seat(lane.num_cached_tokens, num_from_disk, now_s=self._clock())
        self._staged.note_seated(lane)
        self._notices.seated(ticket, lane, is_first=is_first)

    def _make_way(self, holdings: Holdings, last_landed_id: int) -> bool:
        """Have a lane give way to the head of the line; says whether one did."""
        head = self._line.head()
        assert head is not None
        lane = holdings.lane_to_give_way(head, self._line.weights)
        if lane is None:
            return False
        self._notices.yielded(lane, to_job_id=head.job.job_id)
        self._tickets[lane.job.job_id].sequence.num_yields += 1
        self._put_back(holdings, lane, last_landed_id)
        return True

    def _put_back(self, holdings: Holdings, lane: Lane, last_landed_id: int) -> None:
        """Take a job off its lane; it goes on later, exactly where it was."""
        holdings.keep(lane)
        sequence = self._tickets[lane.job.job_id].sequence
        holdings.vacate(lane, last_landed_id=last_landed_id)
        self._line.rejoin(sequence)
