from lanehost.engine.inbox import Inbox
from lanehost.job import FinishReason
from tests.support.jobs import make_job, make_ticket


def test_the_phase_follows_what_has_happened():
    ticket = make_ticket(make_job(), Inbox())
    assert ticket.phase == "waiting"
    ticket.seated_s = 1.0
    assert ticket.phase == "prefill"
    ticket.prefilled_s = 2.0
    assert ticket.phase == "decode"


def test_the_terminal_event_counts_tokens_and_seconds():
    ticket = make_ticket(make_job((1, 2, 3)), Inbox())
    ticket.seated_s, ticket.prefilled_s = 1.0, 2.5
    ticket.reply.push(7)
    finished = ticket.finished(FinishReason.EOS, 7, 4.0)
    assert (finished.reason, finished.matched) == (FinishReason.EOS, 7)
    assert (finished.usage.prompt_tokens, finished.usage.completion_tokens) == (3, 1)
    timing = finished.timing
    assert (timing.queue_s, timing.prefill_s, timing.decode_s) == (1.0, 1.5, 1.5)
