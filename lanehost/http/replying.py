"""The endpoint that runs a request as one job and answers whole or as a stream.

Laws: the job lives inside `async with stream`, and is cancelled as soon as its client
is gone or does not read for too long. A stream's status line is sent with its first
token, so what fails before it has its own status; what fails later is sent as one event
`data: {"error": …}`, after which the stream ends without `data: [DONE]`. Every reply,
whole or streamed, says in its headers `x-request-id`, the server's id of the job, and
`x-lanehost-seed`, the seed in force: sending it again gives the same reply.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic_core import to_json
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from lanehost.cancelling import is_cancelling
from lanehost.door.events import reply_events
from lanehost.door.interface import Door, EventStream
from lanehost.door.limits import max_request_bytes
from lanehost.door.model_card import ModelCard
from lanehost.errors import Unauthenticated
from lanehost.fault import record_fault
from lanehost.http.answer import WRITE_TIMEOUT_S, Answer, ClientStalled
from lanehost.http.body import ChatBody, CompletionBody
from lanehost.http.errors import (
    BodiesTooMany,
    BodyTooLarge,
    UnknownModel,
    error_body,
    error_response,
)
from lanehost.http.forms import Envelope, Form
from lanehost.http.reading import Asked, BodyReader, cancelled_when_gone, key_of, parse
from lanehost.job import Accepted, Finished, Tokens

_FINGERPRINT_CHARS = 16
_SSE_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
}
_Events = AsyncIterator[Accepted | Tokens | Finished]


class ReplyEndpoint:
    """An ASGI application for one path."""

    def __init__(
        self,
        door: Door,
        form: Form,
        *,
        bodies: BodyReader,
        clock: Callable[[], float],
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        """Answer in this form.

        Args:
            door: Who runs the requests.
            form: The JSON of the path.
            bodies: Who reads the bodies of all paths.
            clock: Gives the time of day, in seconds.
            write_timeout_s: How long a client that does not read may hold up its reply.
        """
        self._door = door
        self._form = form
        self._bodies = bodies
        self._clock = clock
        self._write_timeout_s = write_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: the outermost border of a call."""
        with suppress(ClientStalled):
            await self._answer(scope, receive, Answer(send, timeout_s=self._write_timeout_s))

    async def _answer(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        names: Mapping[str, str] = {}
        try:
            key = key_of(scope)
            # Asks for the key, too: nothing of a stranger's body is read.
            card = self._door.model_card(key)
            asked = await self._ask(scope, receive, card)
            names = asked.body.names
            async with (
                await self._door.submit(replace(asked.request, key=key)) as stream,
                cancelled_when_gone(receive, stream),
            ):
                await self._reply(stream, asked.body, card, answer)
        except asyncio.CancelledError as error:
            if is_cancelling():
                raise
            await _fail(record_fault(error), answer, names)
        except (Unauthenticated, BodyTooLarge, BodiesTooMany) as error:
            await self._refuse_unread(error, receive, answer)
        except Exception as error:  # noqa: BLE001 - the border: logged, and ends this call alone
            await _fail(error, answer, names)

    async def _ask(self, scope: Scope, receive: Receive, card: ModelCard) -> Asked:
        async with self._bodies.reading(scope, receive, limit=max_request_bytes(card)) as raw:
            asked = await parse(self._form.body, raw, card)
        if asked.body.model != card.name:
            named = asked.body.model[:100]
            raise UnknownModel("model", f"{named!r} is not here, only {card.name!r} is")
        return asked

    async def _refuse_unread(self, error: Exception, receive: Receive, answer: Answer) -> None:
        """Say what is wrong at once, and close once the client is done with sending."""
        await _send_response(error_response(error), answer, is_last=False)
        await self._bodies.discard(receive)
        await _send_end(answer)

    async def _reply(
        self, stream: EventStream, body: ChatBody | CompletionBody, card: ModelCard, answer: Answer
    ) -> None:
        events = reply_events(stream)
        accepted = await anext(events)
        assert isinstance(accepted, Accepted)
        envelope = Envelope(
            form=self._form,
            job_id=stream.job_id,
            created_s=int(self._clock()),
            model=card.name,
            fingerprint=f"fp_{card.weights_digest[:_FINGERPRINT_CHARS]}",
        )
        headers = {"x-request-id": accepted.job_id, "x-lanehost-seed": str(accepted.seed)}
        if body.stream:
            await _send_stream(_chunks(events, envelope, body), headers, answer)
        else:
            whole = await _whole(events, envelope)
            await _send_response(JSONResponse(whole, headers=headers), answer)


async def _whole(events: _Events, envelope: Envelope) -> dict[str, Any]:
    texts: list[str] = []
    finished: Finished | None = None
    async for event in events:
        if isinstance(event, Tokens):
            texts.append(event.text)
        elif isinstance(event, Finished):
            finished = event
    assert finished is not None
    return envelope.whole("".join(texts), finished.reason, finished.usage)


async def _chunks(
    events: _Events, envelope: Envelope, body: ChatBody | CompletionBody
) -> AsyncIterator[dict[str, Any]]:
    form = envelope.form
    opening = form.opening()
    async for event in events:
        if opening is not None:
            yield _with_usage(envelope.chunk(opening), body)
            opening = None
        if isinstance(event, Tokens) and event.text:
            yield _with_usage(envelope.chunk(form.chunk(event.text)), body)
        elif isinstance(event, Finished):
            yield _with_usage(envelope.chunk(form.closing(), reason=event.reason), body)
            if body.includes_usage:
                yield envelope.usage_chunk(event.usage)


def _with_usage(chunk: dict[str, Any], body: ChatBody | CompletionBody) -> dict[str, Any]:
    return {**chunk, "usage": None} if body.includes_usage else chunk


async def _send_stream(
    chunks: AsyncIterator[dict[str, Any]], headers: dict[str, str], answer: Answer
) -> None:
    first = await anext(chunks)
    raw = [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in {**_SSE_HEADERS, **headers}.items()
    ]
    await answer({"type": "http.response.start", "status": 200, "headers": raw})
    await _send_event(answer, first)
    async for chunk in chunks:
        await _send_event(answer, chunk)
    await _send_part(answer, b"data: [DONE]\n\n")
    await _send_end(answer)


async def _fail(error: Exception, answer: Answer, names: Mapping[str, str]) -> None:
    """Say what failed, in the way that is still open."""
    if answer.has_begun:
        await _send_event(answer, error_body(error, names)[1])
        await _send_end(answer)
    else:
        await _send_response(error_response(error, names), answer)


async def _send_response(response: JSONResponse, answer: Answer, *, is_last: bool = True) -> None:
    await answer(
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
    )
    await answer({"type": "http.response.body", "body": response.body, "more_body": not is_last})


async def _send_event(answer: Answer, value: dict[str, Any]) -> None:
    await _send_part(answer, b"data: " + to_json(value) + b"\n\n")


async def _send_part(answer: Answer, data: bytes) -> None:
    await answer({"type": "http.response.body", "body": data, "more_body": True})


async def _send_end(answer: Answer) -> None:
    await answer({"type": "http.response.body", "body": b"", "more_body": False})
