"""Give a stream to whoever resumes it: what it has said so far, and then what it says.

Laws: the tokens from the index that was asked for come once each, with the text that each had
the first time, since text is a function of the tokens before it; whoever resumes last has the
stream, and who had it is told so; another scope's stream is as unknown as one that never was.
"""

from lanehost.engine.inbox import Attach
from lanehost.engine.reply import Reply
from lanehost.engine.ticket import Ticket
from lanehost.errors import IndexOutOfRange, TakenOver, UnknownStream
from lanehost.job import Accepted, Event, Failed, Tokens
from lanehost.journal.interface import StreamJournal
from lanehost.journal.streams import KnownStream


def attach(command: Attach, journal: StreamJournal, ticket: Ticket | None) -> None:
    """Hand the stream of a job over; `ticket` is the job's if it is open."""
    known, stream = journal.find(command.job_id), command.stream
    if known is None or known.accepted.scope != command.scope:
        stream.put(Failed(error=UnknownStream("no stream is known by this request_id")))
        return
    num_tokens = len(known.token_ids)
    if command.next_index > num_tokens:
        error = IndexOutOfRange(have=command.next_index, limit=num_tokens)
        stream.put(Failed(error=error))
        return
    reply = command.new_reply(known.accepted.stop, known.accepted.max_tokens)
    for event in _said(known, reply, next_index=command.next_index):
        stream.put(event)
    if known.ended is not None:
        stream.put(known.ended)
        return
    assert ticket is not None, f"{command.job_id} is open, and has no ticket"
    former, ticket.stream = ticket.stream, stream
    former.put(Failed(error=TakenOver("another call has resumed this stream: it goes on there")))


def _said(known: KnownStream, reply: Reply, *, next_index: int) -> list[Event]:
    """Return the first event again, and the tokens from an index on as one."""
    accepted = known.accepted
    events: list[Event] = [
        Accepted(
            job_id=accepted.job_id,
            seed=accepted.draw.seed,
            prompt_tokens=len(accepted.prompt_ids),
        )
    ]
    texts = [reply.push(token_id).text for token_id in known.token_ids][next_index:]
    if texts:
        token_ids = tuple(known.token_ids[next_index:])
        events.append(Tokens(token_ids=token_ids, text="".join(texts)))
    return events
