import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from lanehost.errors import Cancelled, NotBuilt
from lanehost.http.body import CompletionBody
from lanehost.http.errors import BodyTooLarge
from lanehost.http.reading import cancelled_when_gone, parse, read_body
from lanehost.job import TokenPrompt
from lanehost.settings import MAX_MESSAGE_BYTES
from tests.support.fake_door import FakeDoor, FakeStream
from tests.support.http_served import http_client, serve_http

MIB = 1024 * 1024
GONE = {"type": "http.disconnect"}


def _receive(*messages):
    waiting = iter(messages)

    async def receive():
        return next(waiting)

    return receive


def _scope(**headers: str):
    return {"headers": [(name.encode(), value.encode()) for name, value in headers.items()]}


def _part(body: bytes, *, more: bool):
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_is_read_in_parts() -> None:
    receive = _receive(_part(b"ab", more=True), _part(b"", more=True), _part(b"c", more=False))
    assert await read_body(_scope(), receive) == b"abc"


async def test_a_client_that_leaves_while_sending_is_gone() -> None:
    with pytest.raises(Cancelled):
        await read_body(_scope(), _receive(_part(b"ab", more=True), GONE))


async def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    scope = {"headers": [(b"content-length", str(MAX_MESSAGE_BYTES + 1).encode())]}
    with pytest.raises(BodyTooLarge, match=f"{MAX_MESSAGE_BYTES + 1} bytes, .* {64 * MIB}"):
        await read_body(scope, _receive())


async def test_a_body_that_does_not_say_so_is_cut_at_the_limit() -> None:
    parts = [_part(bytes(32 * MIB), more=True)] * 2 + [_part(b"x", more=True)]
    with pytest.raises(BodyTooLarge):
        await read_body(_scope(), _receive(*parts))


async def test_a_body_at_the_limit_is_read() -> None:
    body = await read_body(_scope(), _receive(_part(bytes(MAX_MESSAGE_BYTES), more=False)))
    assert len(body) == MAX_MESSAGE_BYTES


async def test_a_large_body_is_parsed_as_a_small_one() -> None:
    ids = list(range(100_000))
    body = await parse(CompletionBody, json.dumps({"model": "m", "prompt": ids}).encode())
    assert body.to_request().prompt == TokenPrompt(tuple(ids))


async def test_a_large_body_is_refused_as_a_small_one() -> None:
    large = json.dumps({"model": "m", "prompt": "x" * MIB, "n": 2}).encode()
    with pytest.raises(NotBuilt):
        await parse(CompletionBody, large)


async def test_a_client_that_leaves_cancels_and_one_that_stays_does_not() -> None:
    stay = asyncio.Event()

    async def never():
        await stay.wait()

    left, stayed = (FakeStream("j", _request(), ()) for _ in range(2))
    async with cancelled_when_gone(_receive(_part(b"", more=False), GONE), left):
        await asyncio.wait_for(left._cancel.wait(), 5)
    async with cancelled_when_gone(never, stayed):
        pass
    assert (left.cancelled, stayed.cancelled) == (True, False)


def _request():
    return CompletionBody.model_validate({"model": "m", "prompt": "x"}).to_request()


async def test_5_mib_over_the_socket_are_taken() -> None:
    door = FakeDoor()
    async with http_client(door) as client:
        answer = await client.post(
            "/v1/completions", json={"model": "fake-model", "prompt": "x" * 5 * MIB}
        )
    assert answer.status_code == 200


async def test_70_mib_over_the_socket_are_refused_with_the_numbers() -> None:
    # By hand: the answer comes while the body is still being sent, which httpx does not read.
    async with serve_http(FakeDoor()) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {70 * MIB}\r\n\r\n"
        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.readuntil(b"}}"), 5)
        writer.close()
    assert b"413" in answer.splitlines()[0]
    assert str(70 * MIB).encode() in answer
    assert str(64 * MIB).encode() in answer


async def test_chunked_70_mib_over_the_socket_are_refused() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(70):
            yield bytes(MIB)

    async with http_client(FakeDoor()) as client:
        answer = await client.post("/v1/completions", content=parts())
    assert answer.status_code == 413
