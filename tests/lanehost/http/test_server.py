import asyncio
import contextlib
import json
import signal
import socket

import httpx
import pytest

from lanehost.errors import StartupFailed
from lanehost.http.server import HttpServer
from lanehost.job import Prefilled, Tokens
from tests.support.fake_door import FINISHED, REPLY, FakeDoor
from tests.support.http_served import http_app, serve_http

WAIT_S = 5
TEXT = {"model": "fake-model", "prompt": "hi"}


def _server(door: FakeDoor, host: str = "127.0.0.1", port: int = 0) -> HttpServer:
    return HttpServer(http_app(door), host, port)


async def test_the_second_server_on_a_port_is_told_the_address() -> None:
    first = _server(FakeDoor())
    said = (
        rf"127.0.0.1:{first.port}: Address already in use \(--host, --http-port; off opens none\)$"
    )
    with pytest.raises(StartupFailed, match=said):
        _server(FakeDoor(), port=first.port)
    await first.stop(0)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1", "::ffff"])
def test_a_host_that_is_not_ours_is_named(host: str) -> None:
    with pytest.raises(StartupFailed, match=host):
        _server(FakeDoor(), host=host)


async def test_the_port_is_free_again_after_stop() -> None:
    server = _server(FakeDoor())
    await server.start()
    await server.stop(0)
    with socket.create_server(("127.0.0.1", server.port)):
        pass


async def test_a_server_that_was_never_started_gives_its_port_back() -> None:
    server = _server(FakeDoor())
    port = server.port
    await server.stop(0)
    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_the_signals_stay_with_the_master() -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    async with serve_http(FakeDoor()):
        during = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    assert during == before


async def test_stop_lets_a_request_end() -> None:
    gate = asyncio.Event()
    door = FakeDoor()

    class Slow(FakeDoor):
        async def submit(self, request):
            stream = await door.submit(request)
            await gate.wait()
            return stream

    server = _server(Slow())
    await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        asking = asyncio.create_task(client.post("/v1/completions", json=TEXT))
        await asyncio.wait_for(door.submitted.wait(), WAIT_S)
        stopping = asyncio.create_task(server.stop(WAIT_S))
        await asyncio.sleep(0)
        gate.set()
        assert (await asking).status_code == 200
        await asyncio.wait_for(stopping, WAIT_S)


async def test_stop_cancels_what_does_not_end_in_time() -> None:
    door = FakeDoor(events=(Prefilled(cached_tokens=0), *REPLY))
    server = _server(door)
    await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        asking = asyncio.create_task(client.post("/v1/completions", json=TEXT))
        await asyncio.wait_for(door.submitted.wait(), WAIT_S)
        await asyncio.wait_for(server.stop(0.05), WAIT_S)
        assert door.streams[0].cancelled
        await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_is_cut_off_before_its_reply_began_hears_503(stream) -> None:
    door = FakeDoor(events=())
    server = _server(door)
    await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        asking = asyncio.create_task(
            client.post("/v1/completions", json={**TEXT, "stream": stream})
        )
        await asyncio.wait_for(door.submitted.wait(), WAIT_S)
        await asyncio.wait_for(server.stop(0), WAIT_S)
        answer = await asking
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
    assert door.streams[0].cancelled


async def _flood(port: int) -> socket.socket:
    """Pipeline requests until neither side has room for more, and read no reply."""
    client = socket.create_connection(("127.0.0.1", port))
    client.settimeout(0)
    asking = b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n" * 100
    for _ in range(5):  # the replies fill the buffers between the rounds
        with contextlib.suppress(BlockingIOError):
            while True:
                client.send(asking)
        await asyncio.sleep(0.1)
    return client


async def test_a_client_that_never_reads_does_not_keep_the_server_from_ending() -> None:
    server = _server(FakeDoor())
    await server.start()
    flooding = await _flood(server.port)
    try:
        await asyncio.wait_for(server.stop(0), WAIT_S)
    finally:
        flooding.close()
    with socket.create_server(("127.0.0.1", server.port)):
        pass


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /v1/completions HTTP/1.1\r\nHo",
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{",
    ],
    ids=["silent", "in its head", "in its body"],
)
async def test_a_client_in_the_midst_of_its_request_does_not_hold_up_the_end(begun) -> None:
    server = _server(FakeDoor())
    await server.start()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(begun)
        await asyncio.sleep(0.05)
        await asyncio.wait_for(server.stop(0), WAIT_S)


async def test_stop_may_be_called_again_when_it_was_cancelled() -> None:
    server = _server(FakeDoor())
    await server.start()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(server.stop(60), 0.01)
    await asyncio.wait_for(server.stop(0), WAIT_S)


async def test_stop_does_not_wait_for_idle_connections() -> None:
    server = _server(FakeDoor(events=(FINISHED,)))
    await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        await client.post("/v1/completions", json=TEXT)
        await asyncio.wait_for(server.stop(60), WAIT_S)


async def test_the_state_is_shown() -> None:
    server = _server(FakeDoor())
    assert repr(server) == f"<HttpServer port {server.port} started=False>"
    await server.stop(0)


async def test_a_server_that_cannot_start_says_so() -> None:
    server = _server(FakeDoor())
    await server.stop(0)
    with pytest.raises(OSError, match="file descriptor"):
        await server.start()


async def test_the_system_closes_a_connection_that_is_not_read() -> None:
    def endless():
        while True:
            yield Tokens(token_ids=(1,), text="x" * 10_000)

    door = FakeDoor(events=endless())
    server = HttpServer(http_app(door), "127.0.0.1", 0, unread_timeout_s=0.2)
    await server.start()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.transport.pause_reading()
    body = json.dumps({**TEXT, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await asyncio.wait_for(door.submitted.wait(), WAIT_S)
    await asyncio.wait_for(door.streams[0].ended.wait(), 20)
    await server.stop(0)
    writer.close()
    assert door.streams[0].cancelled
