"""The events of a job as a door sends them on."""

from collections.abc import AsyncIterator

from lanehost.door.interface import EventStream
from lanehost.job import Accepted, Failed, Finished, Prefilled, Tokens


async def reply_events(stream: EventStream) -> AsyncIterator[Accepted | Tokens | Finished]:
    """Yield what clients are told: `Accepted` first, `Finished` last.

    Raises:
        LanehostError: the job failed.
    """
    async for event in stream:
        match event:
            case Failed():
                raise event.error
            case Prefilled():
                continue
            case Accepted() | Tokens():
                yield event
            case Finished():  # pragma: no branch - there is no sixth
                yield event
                return
    raise AssertionError(f"{stream.job_id} ended without a last event")
