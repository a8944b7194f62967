"""The client of llama-server times the first event with a token."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from bench.peers.first_token import ask_llama
from bench.peers.outputs import UnknownOutput
from lanehost.bench.workload import Ask

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(**fields):
    data = b"data: " + json.dumps(fields).encode() + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@asynccontextmanager
async def llama_server(*events, asked):
    """A server that answers every request with the same events."""

    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        asked.append(json.loads(await reader.readexactly(length)))
        writer.write(HEAD + b"".join(events) + b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


ASK = Ask(token_ids=(5, 6), max_tokens=2)


async def test_every_request_is_asked_for_its_own_prompt_without_a_cache():
    asked = []
    asks = [ASK, Ask(token_ids=(7,), max_tokens=2)]
    async with llama_server(
        event(tokens_predicted=1), event(tokens_predicted=2), asked=asked
    ) as port:
        waits_s = await ask_llama(port, asks)

    assert len(waits_s) == 2
    assert all(wait_s > 0 for wait_s in waits_s)
    assert sorted(one["prompt"] for one in asked) == [[5, 6], [7]]
    assert all(one["cache_prompt"] is False and one["n_predict"] == 2 for one in asked)


async def test_a_reply_that_is_too_short_is_refused():
    async with llama_server(event(tokens_predicted=1), event(tokens=[]), asked=[]) as port:
        with pytest.raises(UnknownOutput, match="1 tokens of 2"):
            await ask_llama(port, [ASK])


async def test_an_error_of_the_server_is_told():
    async with llama_server(event(error={"message": "slot busy"}), asked=[]) as port:
        with pytest.raises(UnknownOutput, match="slot busy"):
            await ask_llama(port, [ASK])
