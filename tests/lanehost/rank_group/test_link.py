"""The master's end of a stream: order kept, an end said once, to everyone."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from lanehost.errors import RankGroupLost
from lanehost.rank_group.link import RankLink
from ranks.wire.codec import encode_master_message
from ranks.wire.messages import Fatal, LoadProgress, Ready, Shutdown
from tests.support.rank_stream import StreamContext

READY = Ready(epoch=1)


@asynccontextmanager
async def served_link():
    link, context = RankLink(rank=1, pid=10, epoch=1), StreamContext()
    serving = asyncio.create_task(link.serve(context))
    try:
        yield link, context
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def test_what_is_sent_arrives_in_order():
    async with served_link() as (link, context):
        for reason in "abc":
            link.send(encode_master_message(Shutdown(reason=reason)))
        assert [(await context.hear()).reason for _ in range(3)] == ["a", "b", "c"]


async def test_what_the_rank_says_is_received_in_order_then_why_no_more_comes():
    async with served_link() as (link, context):
        context.say(LoadProgress(done_bytes=1, total_bytes=2))
        context.say(READY)
        context.hang_up()
        assert await link.receive() == LoadProgress(done_bytes=1, total_bytes=2)
        assert await link.receive() == READY
        for _ in range(2):
            with pytest.raises(RankGroupLost, match="rank 1 ended its stream"):
                await link.receive()


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda c: c.hang_up(), "rank 1 ended its stream"),
        (lambda c: c.say(Fatal(message="no memory")), "rank 1 failed: no memory"),
        (lambda c: c.say_bytes(b"\xff\xff"), "rank 1 sent 2 bytes are no ConnectRequest"),
    ],
)
async def test_an_ended_stream_says_why_to_who_waits_and_who_sends(act, says):
    async with served_link() as (link, context):
        waiting = asyncio.create_task(link.receive())
        act(context)
        with pytest.raises(RankGroupLost, match=says) as lost:
            await waiting
        assert (lost.value.rank, lost.value.epoch) == (1, 1)
        with pytest.raises(RankGroupLost, match=says):
            link.send(b"")


async def test_a_cancelled_stream_is_lost():
    # gRPC cancels the handler when the rank's process is gone.
    async with served_link() as (link, _):
        waiting = asyncio.create_task(link.receive())
        await asyncio.sleep(0)
    with pytest.raises(RankGroupLost, match="rank 1 ended its stream"):
        await waiting


async def test_a_sink_hears_messages_and_then_the_end_once():
    heard, ends = [], []
    async with served_link() as (link, context):
        link.deliver_to(heard.append, ends.append)
        context.say(READY)
        context.hang_up()
        with pytest.raises(RankGroupLost):
            await link.receive()
    assert heard == [READY]
    assert [str(end) for end in ends] == ["rank 1 ended its stream"]


async def test_a_sink_that_comes_after_the_end_hears_it():
    ends = []
    async with served_link() as (link, context):
        context.hang_up()
        with pytest.raises(RankGroupLost):
            await link.receive()
        link.deliver_to(lambda _: None, ends.append)
    assert len(ends) == 1


async def test_a_rank_that_takes_nothing_is_lost_rather_than_kept_in_memory():
    link = RankLink(rank=0, pid=1, epoch=1)
    for _ in range(512):
        link.send(b"x")
    for _ in range(2):
        with pytest.raises(RankGroupLost, match="takes nothing: 512 messages wait"):
            link.send(b"x")


async def test_a_rank_that_talks_without_end_is_lost_rather_than_kept_in_memory():
    link, context = RankLink(rank=1, pid=1, epoch=1), StreamContext()
    for done in range(600):
        context.say(LoadProgress(done_bytes=done, total_bytes=600))
    await asyncio.wait_for(link.serve(context), 5)
    with pytest.raises(RankGroupLost, match="512 messages that nobody asked for"):
        link.send(b"")


async def test_closing_ends_the_stream_after_what_was_sent():
    link, context = RankLink(rank=0, pid=1, epoch=1), StreamContext()
    link.send(encode_master_message(Shutdown(reason="last")))
    link.close()
    await asyncio.wait_for(link.serve(context), 5)
    assert (await context.hear()).reason == "last"
