"""Without a journal nothing is kept, and nothing is known."""

from lanehost.job import StopParams
from lanehost.journal.interface import NoJournal
from tests.support.jobs import make_job
from tests.support.journals import finished


def test_no_journal_takes_everything_and_knows_nothing():
    journal, job = NoJournal(), make_job()
    journal.accept(job, StopParams())
    journal.append([(job.job_id, [1, 2])])
    assert journal.find(job.job_id) is None
    journal.end(job.job_id, finished(2))
    journal.flush()
    assert journal.find(job.job_id) is None
