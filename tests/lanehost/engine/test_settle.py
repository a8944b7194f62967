from lanehost.engine.inbox import Inbox
from lanehost.engine.settle import settle_step
from lanehost.errors import ReplyCorrupt
from lanehost.job import Finished, FinishReason
from lanehost.lanes.lane import LaneEvent, LaneState
from lanehost.lanes.table import LaneTable
from ranks.plan import LaneFault, StepResult
from tests.support.jobs import make_job, make_ticket


def seat(lanes, job, **values):
    ticket = make_ticket(job, Inbox(), **values)
    lane = lanes.seat(ticket.sequence, (0,))
    ticket.seated_s = 1.0
    return lane, ticket


def settle(lanes, tickets, drawn, failures=None, accepted=None):
    result = StepResult(
        step_id=1,
        epoch=1,
        drawn=drawn,
        failures=failures or {},
        accepted=accepted or {},
        digest=b"",
    )
    by_id = {ticket.job.job_id: ticket for ticket in tickets}
    settled = settle_step(lanes, by_id, result, now_s=2.0)
    settled.hand_out()
    return settled.endings


def test_the_first_token_moves_the_lane_to_decode_and_says_prefilled():
    lanes = LaneTable(1, block_size=4)
    lane, ticket = seat(lanes, make_job(max_tokens=2))
    assert settle(lanes, [ticket], {0: 7}) == []
    assert lane.state is LaneState.DECODE
    assert ticket.phase == "decode"
    assert ticket.prefilled_s == 2.0


def test_the_last_token_is_an_ending():
    lanes = LaneTable(1, block_size=4)
    _, ticket = seat(lanes, make_job(max_tokens=1, job_id="j"))
    (ending,) = settle(lanes, [ticket], {0: 7})
    assert ending.job_id == "j"
    assert isinstance(ending.event, Finished)
    assert ending.event.reason is FinishReason.LENGTH


def test_a_reply_that_ends_within_a_guess_takes_nothing_behind_its_end():
    lanes = LaneTable(1, block_size=4)
    _, ticket = seat(lanes, make_job(max_tokens=9), eos_token_ids=frozenset({6}))
    (ending,) = settle(lanes, [ticket], {0: 8}, accepted={0: (5, 6, 7)})
    assert (ending.event.reason, ending.event.matched) == (FinishReason.EOS, 6)
    assert ticket.sequence.generated_ids == [5, 6]
    assert ending.event.usage.completion_tokens == 2


def test_what_was_right_of_a_guess_counts_before_a_fault():
    lanes = LaneTable(1, block_size=4)
    _, ticket = seat(lanes, make_job(max_tokens=9))
    (ending,) = settle(lanes, [ticket], {}, {0: LaneFault.NAN}, accepted={0: (5, 6)})
    assert isinstance(ending.event.error, ReplyCorrupt)
    assert ticket.sequence.generated_ids == [5, 6]


def test_a_token_for_a_draining_or_empty_lane_is_thrown_away():
    lanes = LaneTable(2, block_size=4)
    lane, ticket = seat(lanes, make_job())
    lane.fire(LaneEvent.FINISHED)
    assert settle(lanes, [], {0: 7, 1: 9}) == []
    assert ticket.reply.num_tokens == 0


def test_a_fault_ends_its_lane_alone_and_gives_no_token():
    lanes = LaneTable(2, block_size=4)
    _, bad = seat(lanes, make_job(job_id="bad"))
    _, good = seat(lanes, make_job(job_id="good"))
    (ending,) = settle(lanes, [bad, good], {1: 9}, {0: LaneFault.NAN})
    assert ending.job_id == "bad"
    assert isinstance(ending.event.error, ReplyCorrupt)
    assert (bad.reply.num_tokens, good.reply.num_tokens) == (0, 1)


def test_a_fault_of_a_job_that_has_ended_harms_nobody():
    lanes = LaneTable(1, block_size=4)
    lane, _ = seat(lanes, make_job())
    lane.fire(LaneEvent.FINISHED)
    assert settle(lanes, [], {}, {0: LaneFault.NAN}) == []
