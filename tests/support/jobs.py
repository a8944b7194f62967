"""Jobs, tickets and streams for tests, made with few words."""

import itertools
from typing import Any

from lanehost.admission.line import Line
from lanehost.engine.inbox import Arrived, Cancel, CancelCause, Inbox
from lanehost.engine.reply import Reply
from lanehost.engine.stops import StopRules
from lanehost.engine.stream import JobStream
from lanehost.engine.ticket import Ticket
from lanehost.job import Event, Failed, Finished, Job, StopParams, Tokens
from lanehost.lanes.sequence import Sequence
from ranks.plan import Draw

_NUMBERS = itertools.count(1)


def make_job(
    prompt_ids: tuple[int, ...] = (1, 2, 3),
    *,
    job_id: str | None = None,
    draw: Draw | None = None,
    **values: Any,
) -> Job:
    """A job of few tokens; `values` are fields of `Job`."""
    return Job(
        job_id=job_id or f"job-{next(_NUMBERS)}",
        prompt_ids=prompt_ids,
        draw=draw or Draw(),
        **({"max_tokens": 4, "arrived_s": 0.0} | values),
    )


def make_sequence(prompt_ids: tuple[int, ...] = (1, 2, 3), **values: Any) -> Sequence:
    return Sequence(make_job(prompt_ids, **values))


class WordDetokenizer:
    """Every token is one word."""

    def push(self, token_id: int) -> str:
        return f" w{token_id}"

    def flush(self) -> str:
        return ""


class BrokenDetokenizer(WordDetokenizer):
    """Fails at every token."""

    def push(self, token_id: int) -> str:
        raise RuntimeError("broken on purpose")


def make_ticket(
    job: Job,
    inbox: Inbox,
    *,
    stop: StopParams | None = None,
    detokenizer: WordDetokenizer | None = None,
    eos_token_ids: frozenset[int] = frozenset(),
) -> Ticket:
    stops = StopRules(eos_token_ids, stop or StopParams(), max_tokens=job.max_tokens)
    stream = JobStream(
        job.job_id, on_cancel=lambda job_id: inbox.put(Cancel(job_id, CancelCause.CLIENT))
    )
    return Ticket(
        sequence=Sequence(job), reply=Reply(detokenizer or WordDetokenizer(), stops), stream=stream
    )


def arrive(ticket: Ticket, line: Line, inbox: Inbox) -> JobStream:
    """Do what the door does: join the line and tell the engine."""
    line.promise(ticket.job.scope)
    line.join(ticket.sequence)
    inbox.put(Arrived(ticket))
    return ticket.stream


async def read_all(stream: JobStream) -> list[Event]:
    async with stream:
        return [event async for event in stream]


def token_ids(events: list[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Tokens) for token in event.token_ids]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Tokens))


def ending(events: list[Event]) -> Finished | Failed:
    last = events[-1]
    assert isinstance(last, Finished | Failed)
    assert not any(isinstance(event, Finished | Failed) for event in events[:-1])
    return last
