"""Read a request off an ASGI connection, bounded, and watch for a client that leaves.

What bounds an upload: its own bytes (by the model's context and what it takes of images,
door/limits.py), its time (`READ_TIMEOUT_S`), and the bytes of all bodies that are read or parsed
at once (`MAX_BODIES_BYTES`), beyond which the next is told to come back. While a body is parsed
its images are there thrice: as they came, as text, and as bytes. What a body costs beside its
images is bounded as for a model without: a value of JSON, or an escape in a text, costs far more
than a byte of base64.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json
from starlette.types import Receive, Scope

from lanehost.door.interface import EventStream
from lanehost.door.limits import check_num_ids, check_num_messages, max_text_bytes
from lanehost.door.model_card import ModelCard
from lanehost.errors import Cancelled, DoesNotFit, InvalidRequest
from lanehost.http.body import ChatBody, CompletionBody
from lanehost.http.errors import BodiesTooMany, BodyTimeout, BodyTooLarge, to_refusal
from lanehost.job import Request
from lanehost.keys import bearer_key
from lanehost.settings import MAX_MESSAGE_BYTES

READ_TIMEOUT_S = 60.0
MAX_BODIES_BYTES = 2 * MAX_MESSAGE_BYTES
# Below this a body is parsed in less time than it takes to hand it to a thread.
_LARGE_BODY_BYTES = 32 * 1024

_Body = ChatBody | CompletionBody


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A checked body, and what the door is asked."""

    body: _Body
    request: Request


class BodyReader:
    """Reads bodies, all of them together within one bound; one event loop owns it."""

    def __init__(
        self, *, max_bytes: int = MAX_BODIES_BYTES, timeout_s: float = READ_TIMEOUT_S
    ) -> None:
        """Hold nothing yet.

        Args:
            max_bytes: The most bytes of all bodies together.
            timeout_s: The most time for one body to arrive.
        """
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._num_bytes = 0

    def __repr__(self) -> str:
        return f"<BodyReader {self._num_bytes}/{self._max_bytes} bytes>"

    @asynccontextmanager
    async def reading(
        self, scope: Scope, receive: Receive, *, limit: int = MAX_MESSAGE_BYTES
    ) -> AsyncIterator[bytes]:
        """Give the whole body; its bytes count until the block is left.

        Raises:
            BodyTooLarge: it is longer than `limit`; the rest is not read.
            BodyTimeout: it did not arrive in time.
            BodiesTooMany: with all others it is too much at once.
            Cancelled: the client left while sending it.
        """
        chunks: list[bytes] = []
        try:
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._read(scope, receive, limit=limit, chunks=chunks)
            except TimeoutError:
                raise BodyTimeout(self._timeout_s) from None
            yield b"".join(chunks)
        finally:
            self._num_bytes -= sum(map(len, chunks))

    async def discard(self, receive: Receive) -> None:
        """Take in the rest of a body that was refused, for a while.

        A client that is cut off while it sends often never reads why.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                while (await receive()).get("more_body", False):
                    pass

    async def _read(
        self, scope: Scope, receive: Receive, *, limit: int, chunks: list[bytes]
    ) -> None:
        num_bytes = int(dict(scope["headers"]).get(b"content-length", b"0"))
        _check_size(num_bytes, limit)
        num_bytes, is_whole = 0, False
        while not is_whole:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Cancelled("the client left while it sent its request")
            chunks.append(message.get("body", b""))
            num_bytes += len(chunks[-1])
            self._num_bytes += len(chunks[-1])
            _check_size(num_bytes, limit)
            if self._num_bytes > self._max_bytes:
                raise BodiesTooMany(have=self._num_bytes, limit=self._max_bytes)
            is_whole = not message.get("more_body", False)


def key_of(scope: Scope) -> str | None:
    """Return the key that came with a request."""
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    return bearer_key([value.decode("latin-1") for value in values])


async def parse(kind: type[_Body], raw: bytes, card: ModelCard) -> Asked:
    """Return the body as a checked object; its content type does not matter.

    Raises:
        InvalidRequest: it is no JSON, or a field of it is wrong or unknown.
        NotBuilt: it asks for something that this version does not have.
        DoesNotFit: it has more ids or messages than the model can ever take.
    """
    if len(raw) < _LARGE_BODY_BYTES:
        return _parse(kind, raw, card)
    return await asyncio.to_thread(_parse, kind, raw, card)


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


def _parse(kind: type[_Body], raw: bytes, card: ModelCard) -> Asked:
    _check_cost(raw, card)
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest("body", f"is not valid JSON: {error}") from None
    _check_counts(value, card)
    try:
        body = kind.model_validate(value)
    except ValidationError as error:
        raise to_refusal(error) from None
    return Asked(body=body, request=body.to_request())


def _check_cost(raw: bytes, card: ModelCard) -> None:
    """Judge a body that is as long as only images make it by what else can be in it."""
    limit = max_text_bytes(card)
    if len(raw) <= limit:
        return
    # Each value but the first stands behind one of the first three; a body of `limit` bytes that
    # is nothing else has half as many.
    num_marks = sum(raw.count(mark) for mark in (b",", b"[", b"{", b"\\"))
    if num_marks > limit // 2:
        raise DoesNotFit(
            f"the request has {len(raw)} bytes and {num_marks} values and escapes, "
            f"limit {limit // 2} for one that is longer than {limit} bytes",
            have=num_marks,
            limit=limit // 2,
        )


def _check_counts(value: Any, card: ModelCard) -> None:
    """Judge the two lists that can be long before anything is built of them."""
    if not isinstance(value, dict):
        return
    messages, prompt = value.get("messages"), value.get("prompt")
    if isinstance(messages, list):
        check_num_messages(len(messages), card)
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        check_num_ids(len(prompt), card)


def _check_size(num_bytes: int, limit: int) -> None:
    if num_bytes > limit:
        raise BodyTooLarge(have=num_bytes, limit=limit)
