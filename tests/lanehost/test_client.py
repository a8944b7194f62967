import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import lanehost
from lanehost.client import AsyncClient, Client
from lanehost.client_errors import (
    BadRequest,
    CallCancelled,
    ConnectionLost,
    DeadlineExceeded,
    KeyRefused,
    MessageTooLarge,
    ServerBusy,
    Unreachable,
    UploadUnknown,
)
from lanehost.errors import ImageRefused, InvalidRequest, Overloaded, UnknownUpload
from lanehost.job import Failed, Prefilled, TextPart, Tokens, UploadedImage
from lanehost.server.grpc_server import bind_grpc, build_grpc_server
from lanehost.server.health import Health
from tests.support.fake_door import CARD, SEEING, FakeDoor
from tests.support.served_door import serve

WAIT_S = 5
MIB = 1024 * 1024
USER = [{"role": "user", "content": "hi"}]
HELD = (Prefilled(cached_tokens=0), Tokens(token_ids=(1,), text="a"))


async def _in_thread(door: FakeDoor, work: Callable[[Client], Any]) -> Any:
    """Run what a waiting user would, while this loop serves."""

    def run(address: str) -> Any:
        with Client(address) as client:
            return work(client)

    async with serve(door) as served:
        return await asyncio.wait_for(asyncio.to_thread(run, served.address), 20)


async def _awaited(door: FakeDoor, work: Callable[[AsyncClient], Any]) -> Any:
    async with serve(door) as served, AsyncClient(served.address) as client:
        return await asyncio.wait_for(work(client), 20)


def _collect(client: Client, **options) -> tuple[list[str], Any]:
    with client.stream("hi", **options) as stream:
        texts = [delta.text for delta in stream]
        return texts, stream.reply


async def _collect_async(client: AsyncClient, **options) -> tuple[list[str], Any]:
    async with client.stream("hi", **options) as stream:
        texts = [delta.text async for delta in stream]
        return texts, stream.reply


@pytest.mark.parametrize("run", [_in_thread, _awaited])
async def test_an_image_is_uploaded_and_named_in_a_chat(run) -> None:
    door = FakeDoor(card=SEEING)

    def waits(client: Client) -> None:
        kept = client.upload_image(b"file")
        client.generate(messages=[{"role": "user", "content": ["what?", kept]}])

    async def awaits(client: AsyncClient) -> None:
        kept = await client.upload_image(b"file")
        await client.generate(messages=[{"role": "user", "content": ["what?", kept]}])

    await run(door, waits if run is _in_thread else awaits)
    assert door.uploads == [b"file"]
    (message,) = door.requests[0].prompt.messages
    assert message.content == (TextPart("what?"), UploadedImage("upload-1"))


@pytest.mark.parametrize(
    ("error", "raised"),
    [(ImageRefused("images[1]", "is empty"), BadRequest), (UnknownUpload("none"), UploadUnknown)],
)
async def test_what_is_refused_of_images_is_typed(error, raised) -> None:
    door = FakeDoor(card=SEEING, refusal=error)
    for work in (lambda client: client.upload_image(b"x"), lambda client: client.generate("hi")):
        with pytest.raises(raised):
            await _in_thread(door, work)


async def test_the_card_says_what_the_model_takes_of_images() -> None:
    for card in (CARD, SEEING):
        assert await _in_thread(FakeDoor(card=card), Client.model) == card


def test_the_package_names_what_users_import() -> None:
    assert (lanehost.Client, lanehost.AsyncClient) == (Client, AsyncClient)
    assert all(hasattr(lanehost, name) for name in lanehost.__all__)


def test_importing_the_package_loads_no_server_and_no_torch() -> None:
    heavy = "{'torch', 'numpy', 'starlette', 'uvicorn', 'lanehost.master', 'lanehost.server'}"
    code = f"import sys, lanehost; sys.exit(bool({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


async def test_a_reply_is_whole() -> None:
    reply = await _in_thread(FakeDoor(), lambda client: client.generate("hi", max_tokens=4))
    assert (reply.text, reply.token_ids) == ("Hello é", (10, 11, 12, 2))
    assert (reply.finish_reason, reply.matched, reply.seed) == ("eos", 2, 7)
    assert reply.usage.cached_tokens == 3


async def test_an_awaited_reply_is_the_same() -> None:
    reply = await _awaited(FakeDoor(), lambda client: client.generate("hi", max_tokens=4))
    assert reply == await _in_thread(FakeDoor(), lambda client: client.generate("hi"))


async def test_a_stream_gives_deltas_and_then_the_reply() -> None:
    texts, reply = await _in_thread(FakeDoor(), _collect)
    assert texts == ["Hel", "", "lo é"]
    assert reply == await _in_thread(FakeDoor(), lambda client: client.generate("hi"))


async def test_an_awaited_stream_is_the_same() -> None:
    assert await _awaited(FakeDoor(), _collect_async) == await _in_thread(FakeDoor(), _collect)


async def test_a_chat_and_token_ids_reach_the_door() -> None:
    door = FakeDoor()
    await _in_thread(door, lambda client: client.generate(messages=USER))
    await _awaited(door, lambda client: client.generate(token_ids=[1, 2]))
    chat, tokens = (request.prompt for request in door.requests)
    assert (chat.messages[0].content, tokens.token_ids) == ("hi", (1, 2))


async def test_the_questions_are_answered() -> None:
    def ask(client: Client) -> tuple[Any, ...]:
        return (
            client.tokenize("AB"),
            client.tokenize(messages=USER),
            client.detokenize([65]),
            client.detokenize([65], keep_special=True),
            client.model(),
            client.health(),
        )

    async def ask_async(client: AsyncClient) -> tuple[Any, ...]:
        return (
            await client.tokenize("AB"),
            await client.tokenize(messages=USER),
            await client.detokenize([65]),
            await client.detokenize([65], keep_special=True),
            await client.model(),
            await client.health(),
        )

    answers = ((65, 66), (2,), "A", "<s>A", CARD, True)
    assert await _in_thread(FakeDoor(), ask) == answers
    assert await _awaited(FakeDoor(), ask_async) == answers


@pytest.mark.parametrize(
    ("refusal", "kind", "fact"),
    [
        (InvalidRequest("max_tokens", "is 0"), BadRequest, ("field", "max_tokens")),
        (Overloaded("full", retry_after_s=2), ServerBusy, ("retry_after_s", 2.0)),
    ],
)
async def test_a_refusal_is_typed_on_every_call(refusal, kind, fact) -> None:
    for run, work in (
        (_in_thread, lambda client: client.generate("hi")),
        (_in_thread, _collect),
        (_in_thread, lambda client: client.tokenize("hi")),
        (_awaited, lambda client: client.generate("hi")),
        (_awaited, _collect_async),
        (_awaited, lambda client: client.tokenize("hi")),
    ):
        with pytest.raises(kind) as caught:
            await run(FakeDoor(refusal=refusal), work)
        assert getattr(caught.value, fact[0]) == fact[1]


CALLS = (
    lambda client: client.generate("hi"),
    lambda client: client.tokenize("hi"),
    lambda client: client.detokenize([65]),
    lambda client: client.model(),
)


@pytest.mark.parametrize("key", [None, "other"])
async def test_without_the_right_key_every_call_but_health_is_refused(key) -> None:
    async with serve(FakeDoor(key="secret")) as served:
        async with AsyncClient(served.address, key=key) as client:
            for call in (*CALLS, _collect_async):
                with pytest.raises(KeyRefused):
                    await call(client)
            assert await client.health()

        def ask() -> None:
            with Client(served.address, key=key) as client:
                for call in (*CALLS, _collect):
                    with pytest.raises(KeyRefused):
                        call(client)
                assert client.health()

        await asyncio.to_thread(ask)


async def test_the_key_is_sent_with_every_call() -> None:
    async with serve(FakeDoor(key="secret")) as served:
        async with AsyncClient(served.address, key="secret") as client:
            for call in (*CALLS, _collect_async):
                await call(client)

        def ask() -> None:
            with Client(served.address, key="secret") as client:
                for call in (*CALLS, _collect):
                    call(client)

        await asyncio.to_thread(ask)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("key", ["", "two words", "secr\u00e9t", "k" * 513])
def test_a_key_that_can_be_none_is_said_at_once_and_not_repeated(kind, key: str) -> None:
    with pytest.raises(ValueError, match="is not 1 to 512 visible characters") as caught:
        kind("a:1", key=key)
    assert key == "" or key not in str(caught.value)


async def test_a_reply_that_fails_keeps_its_text_so_far() -> None:
    door = FakeDoor(events=(*HELD, Failed(error=Overloaded("x", retry_after_s=1))))

    def work(client: Client) -> str:
        with client.stream("hi") as stream:
            with pytest.raises(ServerBusy):
                list(stream)
            with pytest.raises(RuntimeError, match="has not ended"):
                _ = stream.reply
            return f"{stream.text} {stream!r}"

    assert await _in_thread(door, work) == "a <ReplyStream open 1 characters>"


async def test_leaving_the_block_cancels_the_job() -> None:
    door = FakeDoor(events=HELD)

    def work(client: Client) -> None:
        with client.stream("hi") as stream:
            next(iter(stream))

    async with serve(door) as served:
        await asyncio.to_thread(lambda: work(Client(served.address)))
        await asyncio.wait_for(door.streams[0].ended.wait(), WAIT_S)
    assert door.streams[0].cancelled


async def test_leaving_the_awaited_block_cancels_the_job() -> None:
    door = FakeDoor(events=HELD)
    async with serve(door) as served, AsyncClient(served.address) as client:
        async with client.stream("hi") as stream:
            await anext(aiter(stream))
        await asyncio.wait_for(door.streams[0].ended.wait(), WAIT_S)
    assert door.streams[0].cancelled


async def test_a_stream_that_was_cancelled_says_so() -> None:
    def work(client: Client) -> None:
        with client.stream("hi") as stream:
            for _ in stream:
                stream.cancel()

    async def work_async(client: AsyncClient) -> None:
        async with client.stream("hi") as stream:
            async for _ in stream:
                stream.cancel()

    with pytest.raises(CallCancelled, match="the reply was cancelled"):
        await _in_thread(FakeDoor(events=HELD), work)
    with pytest.raises(CallCancelled, match="the reply was cancelled"):
        await _awaited(FakeDoor(events=HELD), work_async)


async def test_a_cancelled_task_is_cancelled_and_its_job_too() -> None:
    door = FakeDoor(events=HELD)
    async with serve(door) as served, AsyncClient(served.address) as client:
        task = asyncio.create_task(_collect_async(client))
        await asyncio.wait_for(door.submitted.wait(), WAIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(door.streams[0].ended.wait(), WAIT_S)


@pytest.mark.parametrize("run", ["_in_thread", "_awaited"])
async def test_the_timeout_is_the_deadline_and_names_the_phase(run: str) -> None:
    door = FakeDoor(events=HELD)
    with pytest.raises(DeadlineExceeded) as caught:
        await globals()[run](door, lambda client: client.generate("hi", timeout=0.5))
    assert caught.value.phase == "decode"


async def test_5_mib_are_taken_and_70_mib_refused() -> None:
    door = FakeDoor()
    await _in_thread(door, lambda client: client.generate("x" * 5 * MIB))
    with pytest.raises(MessageTooLarge, match=str(64 * MIB)):
        await _in_thread(door, lambda client: client.generate("x" * 70 * MIB))
    assert len(door.requests) == 1


async def test_nobody_at_the_address_is_said() -> None:
    with Client("127.0.0.1:1") as client:
        with pytest.raises(Unreachable, match=r"^no gRPC server answers at 127\.0\.0\.1:1$"):
            client.generate("hi")
        with pytest.raises(Unreachable):
            client.health()
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(Unreachable):
            await client.health()


async def test_what_it_is_is_shown() -> None:
    with Client("a:1", key="secret") as client:
        assert repr(client) == "<Client a:1>"
    async with AsyncClient("a:1") as client:
        assert repr(client) == "<AsyncClient a:1>"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("address", ["localhost", "http://localhost:8000", "::1:50051"])
def test_an_address_that_is_none_is_said_at_once(kind, address: str) -> None:
    with pytest.raises(ValueError, match="should be HOST:PORT"):
        kind(address)


async def test_an_ipv6_address_is_reached() -> None:
    server = build_grpc_server(FakeDoor(), Health(), reflection=False)
    port = bind_grpc(server, "::1", 0)
    await server.start()
    async with AsyncClient(f"[::1]:{port}") as client:
        assert (await client.generate("hi")).text == "Hello é"
    await server.stop(None)


async def test_a_closed_client_says_so() -> None:
    client, async_client = Client("127.0.0.1:1"), AsyncClient("127.0.0.1:1")
    client.close()
    await async_client.close()
    for call in (
        client.health,
        client.model,
        lambda: client.generate("x"),
        lambda: client.stream("x"),
    ):
        with pytest.raises(RuntimeError, match="was closed"):
            call()
    for call in (async_client.health, async_client.model, lambda: async_client.generate("x")):
        with pytest.raises(RuntimeError, match="was closed"):
            await call()


async def test_a_server_that_ends_during_a_reply_is_no_absent_one() -> None:
    door = FakeDoor(events=HELD)
    async with serve(door) as served, AsyncClient(served.address) as client:
        async with client.stream("hi") as stream:
            deltas = aiter(stream)
            await anext(deltas)
            await served.server.stop(None)
            with pytest.raises(ConnectionLost, match=r"^the server ended during the reply$"):
                await anext(deltas)
        assert stream.text == "a"


async def test_one_can_wait_for_the_server_to_serve() -> None:
    async with serve(FakeDoor()) as served, AsyncClient(served.address) as client:
        served.health.set_not_serving()
        with pytest.raises(DeadlineExceeded):
            await client.wait_until_serving(timeout=0.05)
        waiting = asyncio.create_task(client.wait_until_serving(timeout=20))
        in_thread = asyncio.create_task(
            asyncio.to_thread(Client(served.address).wait_until_serving, 20)
        )
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert not in_thread.done()
        served.health.set_serving()
        await asyncio.wait_for(asyncio.gather(waiting, in_thread), WAIT_S)
