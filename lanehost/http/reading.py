"""Read a request off an ASGI connection, bounded, and watch for a client that leaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.types import Receive, Scope

from lanehost.door.interface import EventStream
from lanehost.errors import Cancelled, InvalidRequest
from lanehost.http.errors import BodyTooLarge, to_refusal
from lanehost.settings import MAX_MESSAGE_BYTES

# Below this a body is parsed in less time than it takes to hand it to a thread.
_LARGE_BODY_BYTES = 256 * 1024

_Body = TypeVar("_Body", bound=BaseModel)


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """Return the whole body.

    Raises:
        BodyTooLarge: it is longer than 64 MiB; the rest is not read.
        Cancelled: the client left while sending it.
    """
    declared = dict(scope["headers"]).get(b"content-length", b"0")
    _check_size(int(declared))
    chunks: list[bytes] = []
    num_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Cancelled("the client left while it sent its request")
        chunks.append(message.get("body", b""))
        num_bytes += len(chunks[-1])
        _check_size(num_bytes)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def parse(kind: type[_Body], body: bytes) -> _Body:
    """Return the body as a checked object; its content type does not matter.

    Raises:
        InvalidRequest: it is no JSON, or a field of it is wrong or unknown.
        NotBuilt: it asks for something that this version does not have.
    """
    if len(body) < _LARGE_BODY_BYTES:
        return _parse(kind, body)
    return await asyncio.to_thread(_parse, kind, body)


@asynccontextmanager
async def cancelled_when_gone(receive: Receive, stream: EventStream) -> AsyncIterator[None]:
    """Cancel the job as soon as the client is gone, also while it waits in the line."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        stream.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        await asyncio.wait([watcher])


def _parse(kind: type[_Body], body: bytes) -> _Body:
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest("body", f"is not valid JSON: {error}") from None
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise to_refusal(error) from None


def _check_size(num_bytes: int) -> None:
    if num_bytes > MAX_MESSAGE_BYTES:
        raise BodyTooLarge(have=num_bytes, limit=MAX_MESSAGE_BYTES)
