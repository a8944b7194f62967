import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator

import pytest

from lanehost.errors import Cancelled, DoesNotFit, NotBuilt
from lanehost.http.body import ChatBody, CompletionBody
from lanehost.http.errors import BodiesTooMany, BodyTimeout, BodyTooLarge
from lanehost.http.reading import BodyReader, cancelled_when_gone, parse
from lanehost.job import TokenPrompt
from lanehost.settings import MAX_MESSAGE_BYTES
from tests.support.cards import make_card
from tests.support.fake_door import CARD, SEEING, FakeDoor, FakeStream
from tests.support.http_served import http_client, serve_http

MIB = 1024 * 1024
GONE = {"type": "http.disconnect"}


async def read_body(scope, receive, **options) -> bytes:
    async with BodyReader(**options).reading(scope, receive) as raw:
        return raw


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
    ids, card = list(range(100_000)), make_card(context_length=100_000, kv_tokens=100_000)
    raw = json.dumps({"model": "m", "prompt": ids}).encode()
    assert (await parse(CompletionBody, raw, card)).request.prompt == TokenPrompt(tuple(ids))


async def test_a_large_body_is_refused_as_a_small_one() -> None:
    large = json.dumps({"model": "m", "prompt": "x" * MIB, "n": 2}).encode()
    with pytest.raises(NotBuilt):
        await parse(CompletionBody, large, CARD)


async def test_a_body_that_images_make_long_is_parsed() -> None:
    picture = base64.b64encode(bytes(6 * MIB)).decode()
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}
    value = {"model": "m", "messages": [{"role": "user", "content": [url]}]}
    asked = await parse(ChatBody, json.dumps(value).encode(), SEEING)
    assert len(asked.request.prompt.messages[0].images[0].data) == 6 * MIB


@pytest.mark.parametrize("filler", ["[", "1,", "\\n"])
async def test_a_body_of_many_values_or_escapes_is_not_parsed_however_long_images_make_it(
    filler: str,
) -> None:
    raw = filler.encode() * (7 * MIB // len(filler))
    with pytest.raises(DoesNotFit, match="values and escapes, limit 3145728"):
        await parse(ChatBody, raw, SEEING)


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
    assert str(6 * MIB).encode() in answer


async def test_chunked_70_mib_over_the_socket_are_refused() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(70):
            yield bytes(MIB)

    async with http_client(FakeDoor()) as client:
        answer = await client.post("/v1/completions", content=parts())
    assert answer.status_code == 413


async def _never():
    await asyncio.Event().wait()


async def test_a_body_that_stalls_is_given_up() -> None:
    with pytest.raises(BodyTimeout, match=r"within 0\.01 s"):
        await read_body(_scope(), _never, timeout_s=0.01)


async def test_a_stalled_upload_is_told_so_and_its_connection_closed() -> None:
    async with serve_http(FakeDoor(), bodies=BodyReader(timeout_s=0.1)) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        answer = await asyncio.wait_for(reader.read(), 5)  # to its end: the server closes
        writer.close()
    assert b"408" in answer.splitlines()[0]
    assert b"body_timeout" in answer


async def test_all_bodies_together_are_bounded() -> None:
    bodies = BodyReader(max_bytes=10)
    async with bodies.reading(_scope(), _receive(_part(b"123456", more=False))):
        with pytest.raises(BodiesTooMany, match="12 bytes, limit 10"):
            async with bodies.reading(_scope(), _receive(_part(b"123456", more=False))):
                pass
        assert repr(bodies) == "<BodyReader 6/10 bytes>"
    assert repr(bodies) == "<BodyReader 0/10 bytes>"


async def test_who_came_when_there_was_no_room_is_told_to_come_back() -> None:
    async with http_client(FakeDoor(), bodies=BodyReader(max_bytes=10)) as client:
        answer = await client.post("/v1/completions", json={"model": "m", "prompt": "hi"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


class _Unbuilt(CompletionBody):
    @classmethod
    def model_validate(cls, *args, **kwargs):
        raise AssertionError("something was built")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"prompt": [1] * 129}, "129 tokens, limit 128"),
        ({"prompt": [[1] * 129]}, "129 tokens, limit 128"),
        ({"messages": [{}] * 129}, "129 messages, limit 128"),
    ],
)
async def test_too_many_are_refused_by_their_count_before_anything_is_built(body, said) -> None:
    with pytest.raises(DoesNotFit, match=said):
        await parse(_Unbuilt, json.dumps(body).encode(), CARD)
    with pytest.raises(AssertionError, match="something was built"):
        await parse(_Unbuilt, b"{}", CARD)


async def test_the_longest_body_that_is_parsed_holds_the_loop_for_a_moment_only() -> None:
    gaps = []

    async def tick() -> None:
        # What this process computes in between: others on the machine have no part in it.
        while True:
            before_s = time.process_time()
            await asyncio.sleep(0.001)
            gaps.append(time.process_time() - before_s)

    hostile = [
        b'{"model":"m","prompt":[' + b"1," * (3 * MIB - 50) + b"1]}",
        b"{" + b",".join(b'"k%d":1' % index for index in range(500_000)) + b"}",
        b'{"model":"m","messages":[' + b"{}," * (2 * MIB - 50) + b"{}]}",
    ]
    async with http_client(FakeDoor()) as client:
        ticking = asyncio.create_task(tick())
        answers = [await client.post("/v1/chat/completions", content=body) for body in hostile]
        ticking.cancel()
    assert [answer.status_code for answer in answers] == [400] * len(hostile)
    assert max(gaps) < 1.0  # generous: what parsing 6 MiB holds here is a fifth of it
