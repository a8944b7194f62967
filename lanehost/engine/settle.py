"""Turn the result of a step into lane moves, events and endings.

Laws: a token that a lane drew after its job had ended is thrown away; a lane's fault,
or an error in the text of one reply, ends that job alone; first tokens are handed over
in the same turn in which they came, and no token before the journal has them all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lanehost.engine.ticket import Ticket
from lanehost.errors import ReplyCorrupt, StepFailed
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


@dataclass(frozen=True, slots=True)
class Settled:
    """What a step brought: new tokens of replies, not handed out yet, and the jobs that ended."""

    grown: list[tuple[Ticket, list[Tokens]]]
    endings: list[Ending]

    def drawn(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the ids of new tokens by job, for the journal."""
        for ticket, events in self.grown:
            yield ticket.job.job_id, [one for event in events for one in event.token_ids]

    def hand_out(self) -> None:
        """Tell the readers."""
        for ticket, events in self.grown:
            for event in events:
                ticket.stream.put(event)


def settle_step(
    lanes: LaneTable, tickets: Mapping[str, Ticket], result: StepResult, *, now_s: float
) -> Settled:
    """Move lanes and replies on; of each job that ended there is one ending."""
    settled = Settled(grown=[], endings=[])
    for lane_id in (*result.drawn, *result.failures):
        lane = lanes[lane_id]
        ticket = _open_ticket(lane, tickets)
        if ticket is None:
            continue
        ending: Finished | Failed | None = None
        events: list[Tokens] = []
        for token_id in _tokens_of(result, lane_id):
            _note_first_token(lane, ticket, now_s=now_s)
            ending = _push_token(lane, ticket, token_id, events, now_s=now_s)
            if ending is not None:
                break
        fault = result.failures.get(lane_id)
        if ending is None and fault is not None:
            message = f"the model's logits are not numbers ({fault.value})"
            ending = Failed(error=ReplyCorrupt(message))
        if events:
            settled.grown.append((ticket, events))
        if ending is not None:
            settled.endings.append(Ending(ticket.job.job_id, ending))
    return settled


def _tokens_of(result: StepResult, lane_id: int) -> tuple[int, ...]:
    """Return what a lane drew, in order: what was right of its draft, then the token after it."""
    accepted = result.accepted.get(lane_id, ())
    return (*accepted, result.drawn[lane_id]) if lane_id in result.drawn else accepted


def _note_first_token(lane: Lane, ticket: Ticket, *, now_s: float) -> None:
    if lane.state is LaneState.PREFILL:
        lane.fire(LaneEvent.PREFILLED)
    ticket.note_prefilled(now_s=now_s)


def is_unusable(event: Finished | Failed) -> bool:
    """Say whether the KV of a job that ended so must not be used again."""
    return isinstance(event, Failed) and isinstance(event.error, ReplyCorrupt | StepFailed)


def _open_ticket(lane: Lane, tickets: Mapping[str, Ticket]) -> Ticket | None:
    return tickets[lane.job.job_id] if lane.is_running else None


def _push_token(
    lane: Lane, ticket: Ticket, token_id: int, events: list[Tokens], *, now_s: float
) -> Finished | Failed | None:
    ticket.sequence.generated_ids.append(token_id)
    if lane.drafter is not None:
        lane.drafter.append(token_id)
    try:
        step = ticket.reply.push(token_id)
    except Exception as error:  # noqa: BLE001 - a fault in one reply's text must end that job alone
        return Failed(error=record_fault(error))
    events.append(Tokens(token_ids=(token_id,), text=step.text))
    if step.reason is None:
        return None
    return ticket.finished(step.reason, step.matched, now_s)
