"""What the door and the engine share: where jobs wait, how the engine is told, what is kept."""

from dataclasses import dataclass, field

from lanehost.admission.line import Line
from lanehost.engine.disk_interface import Disk, NoDisk
from lanehost.engine.inbox import Inbox
from lanehost.journal.interface import NoJournal, StreamJournal


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Belongs to the event loop, on which both of them run.

    Attributes:
        line: Where accepted jobs wait; the door adds, the engine takes.
        inbox: What others tell the engine.
        journal: Keeps what is sent, so that a later master can go on.
        disk: Keeps prefixes on disk.
    """

    line: Line
    inbox: Inbox
    journal: StreamJournal = field(default_factory=NoJournal)
    disk: Disk = field(default_factory=NoDisk)
