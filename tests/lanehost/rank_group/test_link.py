"""The master's end of a stream: order kept, an end said once, nothing kept."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from lanehost.rank_group.link import RankLink
from ranks.wire.codec import encode_master_message
from ranks.wire.messages import Fatal, LoadProgress, Ready, Shutdown
from tests.support.rank_stream import StreamContext

READY = Ready(epoch=1)


class Heard:
    """What a link told."""

    def __init__(self):
        self.link, self.context = RankLink(rank=1, pid=10), StreamContext()
        self.messages, self.ends, self.ended = [], [], asyncio.Event()
        self.link.deliver_to(self.messages.append, self.take_end)

    def take_end(self, reason):
        self.ends.append(reason)
        self.ended.set()


@asynccontextmanager
async def served_link():
    heard = Heard()
    serving = asyncio.create_task(heard.link.serve(heard.context))
    try:
        yield heard
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def test_what_is_sent_arrives_in_order():
    async with served_link() as heard:
        for reason in "abc":
            heard.link.send(encode_master_message(Shutdown(reason=reason)))
        assert [(await heard.context.hear()).reason for _ in range(3)] == ["a", "b", "c"]


async def test_what_the_rank_says_is_heard_in_order_then_why_no_more_comes_once():
    async with served_link() as heard:
        heard.context.say(LoadProgress(done_bytes=1, total_bytes=2))
        heard.context.say(READY)
        heard.context.hang_up()
        await asyncio.wait_for(heard.ended.wait(), 5)
    assert heard.messages == [LoadProgress(done_bytes=1, total_bytes=2), READY]
    assert heard.ends == ["rank 1 ended its stream"]


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda c: c.hang_up(), "rank 1 ended its stream"),
        (lambda c: c.say(Fatal(message="no memory")), "rank 1 failed: no memory"),
        (lambda c: c.say_bytes(b"\xff\xff"), "rank 1 sent 2 bytes are no ConnectRequest"),
    ],
)
async def test_an_ended_stream_says_why_and_takes_nothing_more(act, says):
    async with served_link() as heard:
        act(heard.context)
        await asyncio.wait_for(heard.ended.wait(), 5)
        assert says in heard.ends[0]
        heard.link.send(b"x")
        assert heard.context.to_rank.empty()


async def test_a_cancelled_stream_is_at_its_end():
    # gRPC cancels the handler when the rank's process is gone.
    async with served_link() as heard:
        await asyncio.sleep(0)
    assert heard.ends == ["rank 1 ended its stream"]


async def test_a_rank_that_takes_nothing_is_lost_rather_than_kept_in_memory():
    heard = Heard()
    for _ in range(513):
        heard.link.send(b"x")
    assert heard.ends == ["rank 1 takes nothing: 512 messages wait"]
    heard.link.send(b"x")
    assert len(heard.ends) == 1
