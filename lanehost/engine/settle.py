"""Turn the result of a step into lane moves, events and endings.

Laws: a token that a lane drew after its job had ended is thrown away; a lane's fault,
or an error in the text of one reply, ends that job alone; first tokens are handed over
in the same turn in which they came.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lanehost.engine.ticket import Ticket
from lanehost.errors import ReplyCorrupt
from lanehost.fault import record_fault
from lanehost.job import Failed, Finished, Tokens
from lanehost.lanes.lane import Lane, LaneEvent, LaneState
from lanehost.lanes.table import LaneTable
from ranks.plan import StepResult


@dataclass(frozen=True, slots=True)
class Ending:
    """A job that this step ended."""

    job_id: str
    event: Finished | Failed


def settle_step(
    lanes: LaneTable, tickets: Mapping[str, Ticket], result: StepResult, *, now_s: float
) -> Iterator[Ending]:
    """Move lanes and hand out tokens; yields the jobs that ended, each once."""
    for lane_id in (*result.drawn, *result.failures):
        lane = lanes[lane_id]
        ticket = _open_ticket(lane, tickets)
        if ticket is None:
            continue
        ending: Finished | Failed | None = None
        for token_id in _tokens_of(result, lane_id):
            _note_first_token(lane, ticket, now_s=now_s)
            ending = _push_token(lane, ticket, token_id, now_s=now_s)
            if ending is not None:
                break
        fault = result.failures.get(lane_id)
        if ending is None and fault is not None:
            message = f"the model's logits are not numbers ({fault.value})"
            ending = Failed(error=ReplyCorrupt(message))
        if ending is not None:
            yield Ending(ticket.job.job_id, ending)


def _tokens_of(result: StepResult, lane_id: int) -> tuple[int, ...]:
    """Return what a lane drew, in order: what was right of its draft, then the token after it."""
    accepted = result.accepted.get(lane_id, ())
    return (*accepted, result.drawn[lane_id]) if lane_id in result.drawn else accepted


def _note_first_token(lane: Lane, ticket: Ticket, *, now_s: float) -> None:
    if lane.state is LaneState.PREFILL:
        lane.fire(LaneEvent.PREFILLED)
    ticket.note_prefilled(now_s=now_s)


def _open_ticket(lane: Lane, tickets: Mapping[str, Ticket]) -> Ticket | None:
    return tickets[lane.job.job_id] if lane.is_running else None


def _push_token(
    lane: Lane, ticket: Ticket, token_id: int, *, now_s: float
) -> Finished | Failed | None:
    ticket.sequence.generated_ids.append(token_id)
    if lane.drafter is not None:
        lane.drafter.append(token_id)
    try:
        step = ticket.reply.push(token_id)
    except Exception as error:  # noqa: BLE001 - a fault in one reply's text must end that job alone
        return Failed(error=record_fault(error))
    ticket.stream.put(Tokens(token_ids=(token_id,), text=step.text))
    if step.reason is None:
        return None
    return ticket.finished(step.reason, step.matched, now_s)
