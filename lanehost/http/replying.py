"""The endpoint that runs a request as one job and answers whole or as a stream.

Laws: the job lives inside `async with stream`, and is cancelled as soon as its client
is gone. A stream's status line is sent with its first token, so what fails before it
has its own status; what fails later is sent as one event `data: {"error": …}`, after
which the stream ends without `data: [DONE]`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic_core import to_json
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from lanehost.door.interface import Door, EventStream
from lanehost.fault import record_fault
from lanehost.http.body import ChatBody, CompletionBody
from lanehost.http.errors import UnknownModel, error_body, error_response
from lanehost.http.forms import Envelope, Form
from lanehost.http.reading import cancelled_when_gone, parse, read_body
from lanehost.job import Accepted, Failed, Finished, Prefilled, Tokens

_FINGERPRINT_CHARS = 16
_SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]


class ReplyEndpoint:
    """An ASGI application for one path."""

    def __init__(self, door: Door, form: Form, clock: Callable[[], float]) -> None:
        """Answer in this form; the clock gives the time of day, in seconds."""
        self._door = door
        self._form = form
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: the outermost border of a call."""
        try:
            body = await parse(self._form.body, await read_body(scope, receive))
            envelope_of = self._check_model(body)
            async with (
                await self._door.submit(body.to_request()) as stream,
                cancelled_when_gone(receive, stream),
            ):
                envelope = envelope_of(stream.job_id)
                if body.stream:
                    await _stream(stream, envelope, body, send)
                else:
                    await JSONResponse(await _whole(stream, envelope))(scope, receive, send)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            await error_response(record_fault(error))(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - the border: logged, and ends this call alone
            await error_response(error)(scope, receive, send)

    def _check_model(self, body: ChatBody | CompletionBody) -> Callable[[str], Envelope]:
        card = self._door.model_card()
        if body.model != card.name:
            raise UnknownModel("model", f"{body.model[:100]!r} is not here, only {card.name!r} is")

        def envelope(job_id: str) -> Envelope:
            return Envelope(
                form=self._form,
                job_id=job_id,
                created_s=int(self._clock()),
                model=card.name,
                fingerprint=f"fp_{card.weights_digest[:_FINGERPRINT_CHARS]}",
            )

        return envelope


async def _events(stream: EventStream) -> AsyncIterator[Tokens | Finished]:
    """Yield what is sent; raise the error of a job that failed."""
    async for event in stream:
        match event:
            case Failed():
                raise event.error
            case Accepted() | Prefilled():
                continue
            case Tokens():
                yield event
            case Finished():  # pragma: no branch - there is no sixth
                yield event
                return
    raise AssertionError(f"{stream.job_id} ended without a last event")


async def _whole(stream: EventStream, envelope: Envelope) -> dict[str, Any]:
    texts: list[str] = []
    finished: Finished | None = None
    async for event in _events(stream):
        if isinstance(event, Tokens):
            texts.append(event.text)
        else:
            finished = event
    assert finished is not None
    return envelope.whole("".join(texts), finished.reason, finished.usage)


async def _stream(
    stream: EventStream, envelope: Envelope, body: ChatBody | CompletionBody, send: Send
) -> None:
    chunks = _chunks(stream, envelope, body)
    first = await anext(chunks)
    await send({"type": "http.response.start", "status": 200, "headers": _SSE_HEADERS})
    await _send_event(send, first)
    try:
        async for chunk in chunks:
            await _send_event(send, chunk)
        await _send(send, b"data: [DONE]\n\n")
    except Exception as error:  # noqa: BLE001 - the border of what is under way: as above
        await _send_event(send, error_body(error)[1])
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _chunks(
    stream: EventStream, envelope: Envelope, body: ChatBody | CompletionBody
) -> AsyncIterator[dict[str, Any]]:
    events = _events(stream)
    form = envelope.form
    opening = form.opening()
    async for event in events:
        if opening is not None:
            yield _with_usage(envelope.chunk(opening), body)
            opening = None
        if isinstance(event, Tokens):
            if event.text:
                yield _with_usage(envelope.chunk(form.chunk(event.text)), body)
            continue
        yield _with_usage(envelope.chunk(form.closing(), reason=event.reason), body)
        if body.includes_usage:
            yield envelope.usage_chunk(event.usage)


def _with_usage(chunk: dict[str, Any], body: ChatBody | CompletionBody) -> dict[str, Any]:
    return {**chunk, "usage": None} if body.includes_usage else chunk


async def _send_event(send: Send, value: dict[str, Any]) -> None:
    await _send(send, b"data: " + to_json(value) + b"\n\n")


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
