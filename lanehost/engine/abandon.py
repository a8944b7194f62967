"""End every job that is open when the engine ends, whatever ended it.

Law: it touches nothing that may be broken, and no job is told twice.
"""

from lanehost.admission.line import Line
from lanehost.engine.notices import Notices
from lanehost.engine.ticket import Ticket
from lanehost.errors import LanehostError
from lanehost.job import Failed


def abandon_all(
    tickets: dict[str, Ticket], line: Line, notices: Notices, error: LanehostError
) -> None:
    """Tell every job that is open, and forget it."""
    failed = Failed(error=error)
    for ticket in tickets.values():
        line.leave(ticket.job.job_id)
        if not ticket.stream.is_ended:
            notices.abandoned(ticket, failed)
            ticket.stream.put(failed)
    tickets.clear()
