"""A stream that goes on, as users of the Python client hold it."""

import asyncio

import pytest

from lanehost.client import AsyncClient, Client
from lanehost.client_errors import IndexOutOfRange, StreamTakenOver, StreamUnknown
from lanehost.errors import IndexOutOfRange as NoSuchToken
from lanehost.errors import TakenOver, UnknownStream
from lanehost.job import Failed, Prefilled, Tokens
from tests.support.fake_door import FINISHED, FakeDoor
from tests.support.served_door import serve

REPLY = (
    Prefilled(cached_tokens=0),
    Tokens(token_ids=(5, 6, 7), text=" a b c"),
    Tokens(token_ids=(8,), text=" d"),
    FINISHED,
)


async def in_thread(door, work):
    def run(address):
        with Client(address) as client:
            return work(client)

    async with serve(door) as served:
        return await asyncio.wait_for(asyncio.to_thread(run, served.address), 20)


async def test_it_goes_on_where_it_was_told_to_and_says_where_it_is():
    def work(client):
        with client.resume("job-9", 3) as stream:
            assert (stream.request_id, stream.next_index) == ("job-9", 3)
            seen = [(delta.text, stream.next_index) for delta in stream]
            return seen, stream.reply

    door = FakeDoor(REPLY)
    seen, reply = await in_thread(door, work)
    assert seen == [(" a b c", 6), (" d", 7)]
    assert (reply.request_id, reply.token_ids, reply.text) == ("job-9", (5, 6, 7, 8), " a b c d")
    assert [(one.job_id, one.next_index) for one in door.resumptions] == [("job-9", 3)]


async def test_a_stream_names_itself_and_counts_its_tokens():
    def work(client):
        with client.stream("hi") as stream:
            assert (stream.request_id, stream.next_index) == ("", 0)
            for _ in stream:
                break
            return stream.request_id, stream.next_index

    assert await in_thread(FakeDoor(REPLY), work) == ("job-1", 3)


async def test_the_same_for_code_that_awaits():
    door = FakeDoor(REPLY)
    async with serve(door) as served, AsyncClient(served.address) as client:
        async with client.resume("job-9", 2, timeout=30) as stream:
            texts = [delta.text async for delta in stream]
        assert (texts, stream.next_index) == ([" a b c", " d"], 6)
    assert door.resumptions[0].timeout_s < 30


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnknownStream("none"), StreamUnknown),
        (NoSuchToken(have=9, limit=4), IndexOutOfRange),
        (TakenOver("elsewhere"), StreamTakenOver),
    ],
)
async def test_what_goes_wrong_has_its_class(error, kind):
    def work(client):
        with pytest.raises(kind) as raised:
            list(client.resume("job-9"))
        return raised.value

    found = await in_thread(FakeDoor((Failed(error=error),)), work)
    assert found.message == str(error)


def test_an_index_that_does_not_fit_the_wire_makes_no_call():
    with Client("127.0.0.1:1") as client, pytest.raises(ValueError, match="next_index is -1"):
        client.resume("job-9", -1)
