"""A desk without a journal keeps nothing."""

from lanehost.admission.line import Line
from lanehost.engine.desk import Desk
from lanehost.engine.inbox import Inbox
from lanehost.journal.interface import NoJournal
from lanehost.settings import LineSettings


def test_without_a_journal_nothing_is_kept():
    desk = Desk(line=Line(LineSettings()), inbox=Inbox())
    assert isinstance(desk.journal, NoJournal)
