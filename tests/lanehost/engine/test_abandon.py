from lanehost.admission.line import Line
from lanehost.engine.abandon import abandon_all
from lanehost.engine.inbox import Inbox
from lanehost.engine.notices import Notices
from lanehost.engine.observer import NoObserver
from lanehost.errors import Draining
from lanehost.job import Failed
from lanehost.settings import LineSettings
from tests.support.jobs import arrive, make_job, make_ticket


class Told(NoObserver):
    def __init__(self):
        self.ended = []

    def job_ended(self, job_id, event, token_ids):
        self.ended.append(job_id)


def test_each_job_that_is_open_is_told_once_and_leaves_the_line():
    line, inbox, told = Line(LineSettings()), Inbox(), Told()
    tickets = {}
    for number in range(2):
        ticket = make_ticket(make_job((1, 2), job_id=str(number)), inbox)
        arrive(ticket, line, inbox)
        tickets[str(number)] = ticket
    first, second = tickets.values()
    first.stream.put(Failed(error=Draining("before")))
    abandon_all(tickets, line, Notices(told), Draining("the end"))
    assert (told.ended, len(line), tickets) == (["1"], 0, {})
    assert second.stream.is_ended
