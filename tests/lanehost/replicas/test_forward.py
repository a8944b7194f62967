"""A call over a real socket to a server that answers, breaks off, or is not there."""

import asyncio
from contextlib import aclosing, asynccontextmanager

from lanehost.replicas.call import Call, ReplyHead, ReplyLost
from lanehost.replicas.forward import forward, open_client

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(text):
    return b"%x\r\n%s\r\n" % (len(text), text)


def call(body=b"{}", **fields):
    given = {"method": "POST", "target": "/v1/completions?x=1", "headers": (("x-a", "1"),)}
    return Call(key=b"k" * 32, body=body, **{**given, **fields})


@asynccontextmanager
async def answering(*parts, then_wait=False):
    """Serve one fixed answer; gives a client, what was read, and whether the other side left."""
    seen, gone = [], asyncio.Event()

    async def answer(reader, writer):
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        seen.append(await reader.readexactly(2))
        for part in parts:
            writer.write(part)
            await writer.drain()
        if then_wait:
            await reader.read()
            gone.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with open_client(url) as client:
        yield client, seen, gone
    server.close()
    await server.wait_closed()


async def parts_of(client, asked):
    async with aclosing(forward(client, asked)) as parts:
        return [part async for part in parts]


async def test_the_call_and_the_reply_go_through_unchanged():
    raw = b"HTTP/1.1 429 No\r\nretry-after: 2\r\nx-b: 3\r\ncontent-length: 4\r\n\r\nbusy"
    async with answering(raw) as (client, seen, _):
        head, body = await parts_of(client, call())
    assert head == ReplyHead(status=429, headers=(("retry-after", "2"), ("x-b", "3")))
    assert body == b"busy"
    assert seen[0].startswith(b"POST /v1/completions?x=1 HTTP/1.1\r\n")
    assert b"\r\nx-a: 1\r\n" in seen[0]
    assert seen[1] == b"{}"


async def test_a_stream_comes_in_whole_events():
    parts = [STREAM, chunk(b"data: a\n\nda"), chunk(b"ta: b\n\n"), b"0\r\n\r\n"]
    async with answering(*parts) as (client, _, _):
        head, *events = await parts_of(client, call())
    assert head.is_stream
    assert b"".join(events) == b"data: a\n\ndata: b\n\n"


async def test_a_stream_that_breaks_off_ends_behind_an_event_and_says_that_it_is_lost():
    async with answering(STREAM, chunk(b"data: a\n\ndata: {")) as (client, _, _):
        _, *events = await parts_of(client, call())
    assert events == [b"data: a\n\n", ReplyLost(reason="RemoteProtocolError")]


async def test_a_whole_reply_that_breaks_off_is_lost():
    async with answering(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf") as (client, _, _):
        _, *rest = await parts_of(client, call())
    assert rest == [ReplyLost(reason="RemoteProtocolError")]


async def test_a_server_that_is_not_there_is_lost():
    async with answering() as (client, _, _):
        url = client.base_url
    async with open_client(str(url)) as client:
        assert await parts_of(client, call()) == [ReplyLost(reason="ConnectError")]


async def test_who_stops_listening_is_seen_by_the_server():
    async with answering(STREAM, chunk(b"data: a\n\n"), then_wait=True) as (client, _, gone):
        parts = forward(client, call())
        await anext(parts)
        assert await anext(parts) == b"data: a\n\n"
        await parts.aclose()
        async with asyncio.timeout(10):
            await gone.wait()
