import asyncio

import pytest

from lanehost.engine.stream import JobStream
from lanehost.errors import Cancelled
from lanehost.job import Failed, Prefilled, Tokens
from tests.support.fake_engine import settle_loop

END = Failed(error=Cancelled("over"))
TOKEN = Tokens(token_ids=(1,), text="a")


def make_stream():
    cancelled = []
    return JobStream("j", on_cancel=cancelled.append), cancelled


async def test_events_are_read_once_in_order_until_the_terminal_one():
    stream, _ = make_stream()
    for event in (Prefilled(cached_tokens=0), TOKEN, END):
        stream.put(event)
    assert [event async for event in stream] == [Prefilled(cached_tokens=0), TOKEN, END]


async def test_a_reader_waits_for_what_is_not_there_yet():
    stream, _ = make_stream()

    async def read():
        return [event async for event in stream]

    reading = asyncio.create_task(read())
    await settle_loop()
    stream.put(TOKEN)
    await settle_loop()
    assert not reading.done()
    stream.put(END)
    assert await reading == [TOKEN, END]


async def test_nothing_follows_the_terminal_event():
    stream, _ = make_stream()
    stream.put(END)
    with pytest.raises(AssertionError):
        stream.put(TOKEN)


async def test_leaving_early_cancels_once():
    stream, cancelled = make_stream()
    async with stream:
        stream.cancel()
    assert cancelled == ["j"]


async def test_leaving_by_an_exception_cancels():
    stream, cancelled = make_stream()
    with pytest.raises(ValueError, match="reader"):
        async with stream:
            raise ValueError("reader broke")
    assert cancelled == ["j"]


async def test_leaving_after_the_end_cancels_nothing():
    stream, cancelled = make_stream()
    async with stream:
        stream.put(END)
    assert cancelled == []
    assert stream.is_ended


async def test_those_who_wait_for_the_close_are_called_once():
    stream, _ = make_stream()
    calls = []
    stream.when_closed(lambda: calls.append(1))
    for _ in range(2):
        async with stream:
            pass
    assert calls == [1]


async def test_repr_shows_what_is_unread():
    stream, _ = make_stream()
    stream.put(TOKEN)
    assert repr(stream) == "<JobStream j 1 unread ended=False>"
