"""The door of the replicas: an HTTP request → a call to one of them → its reply, unchanged.

Laws: a request has one reply, from one replica; it is never sent a second time. A replica that
is lost is told by name: as a 503 `replica_lost` before anything was sent, and behind the events
that were sent as one event `data: {"error": …}`, after which the stream ends without
`data: [DONE]`. A client that leaves cancels its request.

It looks into a body for the head of its prompt alone, and judges nothing: every refusal is a
server's own, but those for a body that is too large or too slow to be read.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Protocol
from urllib.parse import quote

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lanehost.errors import Overloaded, Starting, Unauthenticated
from lanehost.http.errors import ReplicaLost, error_body, error_response, http_error_response
from lanehost.http.reading import BodyReader, key_of
from lanehost.keys import KeyRing
from lanehost.replicas.affinity import affinity_key
from lanehost.replicas.call import Call, ReplyHead, ReplyLost, ReplyPart, end_to_end
from lanehost.replicas.head import prompt_head

HEALTH_TIMEOUT_S = 5.0
_HEALTH = "/health"
_METRICS = "/metrics"
# Beyond this reading JSON takes longer than handing it to a thread.
_LARGE_BODY_BYTES = 32 * 1024
_LOST = "the replica that ran this request is gone; send it again"


class Replicas(Protocol):
    """All replicas, as the door sees them."""

    def call(self, call: Call) -> AsyncGenerator[ReplyPart, None]:
        """Send a call to one of them; closing the generator cancels it.

        Raises:
            ReplicaLost: the replica died.
            Overloaded: too many calls wait for one.
            Starting: there are none.
        """
        ...


class ReplicasDoor:
    """Answers HTTP requests; one event loop owns it."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        keys: KeyRing | None,
        head_chars: int,
        bodies: BodyReader | None = None,
        health_timeout_s: float = HEALTH_TIMEOUT_S,
    ) -> None:
        """Answer with these replicas.

        Args:
            replicas: Who runs the requests.
            keys: The keys that the servers know, or None when they let everybody in.
            head_chars: Characters of a prompt that decide where it goes.
            bodies: Who reads the bodies; None takes the usual bounds.
            health_timeout_s: How long `/health` waits for a replica.
        """
        self._replicas = replicas
        self._keys = keys
        self._head_chars = head_chars
        self._bodies = BodyReader() if bodies is None else bodies
        self._health_timeout_s = health_timeout_s

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        try:
            if request.url.path == _METRICS:
                return http_error_response(_no_metrics())
            async with self._bodies.reading(request.scope, request.receive) as body:
                call = await self._call(request, body)
            if request.url.path == _HEALTH:
                async with asyncio.timeout(self._health_timeout_s):
                    return await self._ask(call)
            return await self._ask(call)
        except TimeoutError:
            return error_response(Starting("no replica answers"))
        except Exception as error:  # noqa: BLE001 - the border: logged, and ends this call alone
            return error_response(error)

    async def _call(self, request: Request, body: bytes) -> Call:
        if len(body) < _LARGE_BODY_BYTES:
            head = prompt_head(body, head_chars=self._head_chars)
        else:
            head = await asyncio.to_thread(prompt_head, body, head_chars=self._head_chars)
        return Call(
            key=affinity_key(self._scope(request), head),
            method=request.method,
            target=_target(request),
            headers=end_to_end(request.headers.items()),
            body=body,
        )

    def _scope(self, request: Request) -> str:
        """Whose prompts are shared, as the servers see it; a stranger has none to share."""
        if self._keys is None:
            return ""
        try:
            return self._keys.scope_of(key_of(request.scope))
        except Unauthenticated:
            return ""

    async def _ask(self, call: Call) -> Response:
        parts = self._replicas.call(call)
        try:
            head = await _head(parts)
            if head.is_stream:
                return _response(_EventStream(_events(parts), head.status), head)
            async with aclosing(parts):
                return _response(Response(await _whole(parts), head.status), head)
        except BaseException:
            await parts.aclose()
            raise


def _target(request: Request) -> str:
    """Return path and query as they came, with what was quoted in them."""
    raw_path: bytes = request.scope.get("raw_path") or quote(request.url.path).encode()
    query: bytes = request.scope["query_string"]
    return (raw_path + b"?" + query if query else raw_path).decode("latin-1")


async def _head(parts: AsyncIterator[ReplyPart]) -> ReplyHead:
    head = await anext(parts)
    if isinstance(head, ReplyLost):
        raise ReplicaLost(_LOST)
    assert isinstance(head, ReplyHead)
    return head


class _EventStream(StreamingResponse):
    """Ends what it streams together with itself, also when its client has left."""

    def __init__(self, events: AsyncGenerator[bytes, None], status: int) -> None:
        super().__init__(events, status)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()


async def _whole(parts: AsyncIterator[ReplyPart]) -> bytes:
    chunks: list[bytes] = []
    async for part in parts:
        if isinstance(part, ReplyLost):
            raise ReplicaLost(_LOST)
        assert isinstance(part, bytes)
        chunks.append(part)
    return b"".join(chunks)


async def _events(parts: AsyncGenerator[ReplyPart, None]) -> AsyncGenerator[bytes, None]:
    """Send on what comes; what breaks off ends with the one event that says so."""
    async with aclosing(parts):
        try:
            async for part in parts:
                if isinstance(part, ReplyLost):
                    yield _error_event(ReplicaLost(_LOST))
                    return
                assert isinstance(part, bytes)
                yield part
        except (ReplicaLost, Overloaded, Starting) as error:
            yield _error_event(error)


def _error_event(error: Exception) -> bytes:
    _, body = error_body(error)
    return b"data: " + to_json(body) + b"\n\n"


def _response(response: Response, head: ReplyHead) -> Response:
    """Give it the server's headers and no others, but for its length."""
    own = [(name, value) for name, value in response.raw_headers if name == b"content-length"]
    theirs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers]
    response.raw_headers = own + theirs
    return response


def _no_metrics() -> HTTPException:
    detail = f"{_METRICS}: is each server's own; Ray's metrics have the requests of all replicas"
    return HTTPException(HTTPStatus.NOT_FOUND, detail)
