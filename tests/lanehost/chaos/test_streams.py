import asyncio
import random

from lanehost.chaos.streams import Asked, Streams, make_asked
from lanehost.client import AsyncClient
from lanehost.errors import ReplyCorrupt
from lanehost.job import Failed, Prefilled, Tokens
from tests.support.fake_door import FINISHED, REPLY, FakeDoor
from tests.support.served_door import serve

ASKED = [Asked(token_ids=(5, 6), max_tokens=4), Asked(token_ids=(10, 12), max_tokens=4)]


def test_requests_differ_fit_and_every_second_one_is_seeded():
    asked = make_asked(random.Random(1), 20, vocab_size=300, tokens=64)
    assert len({one.token_ids for one in asked}) == 20
    assert all(len(one.token_ids) + one.max_tokens <= 64 for one in asked)
    assert [bool(one.options) for one in asked] == [False, True] * 10
    assert asked == make_asked(random.Random(1), 20, vocab_size=300, tokens=64)


async def test_a_reply_is_equal_only_if_its_tokens_are_those_of_the_undisturbed_one():
    door = FakeDoor()
    async with serve(door) as served, AsyncClient(served.address) as client:
        streams = Streams(client, ASKED)
        await streams.take_undisturbed()
        assert (await streams.ask(0)).is_equal
        door.events = (Prefilled(cached_tokens=3), Tokens(token_ids=(11,), text="Hel"), *REPLY[1:],
                       FINISHED)  # fmt: skip
        assert (await streams.ask(0)).is_equal is False
        door.events = (Prefilled(cached_tokens=3), Failed(error=ReplyCorrupt("nan")))
        failed = await streams.ask(1)
    assert (failed.error, failed.is_equal) == ("ReplyCorrupt", None)
    assert (streams.num_sent, len(streams.endings), streams.num_open) == (3, 3, 0)


async def test_streams_ask_until_they_are_stopped_and_end_what_is_open():
    async with serve(FakeDoor()) as served, AsyncClient(served.address) as client:
        streams = Streams(client, ASKED)
        await streams.take_undisturbed()
        running = asyncio.create_task(streams.run(3))
        assert await streams.wait_token(since_s=0, within_s=10)
        streams.stop()
        await running
    assert len(streams.endings) == streams.num_sent >= 3
    assert all(one.is_equal for one in streams.endings)


async def test_who_waits_for_a_token_that_never_comes_is_told():
    async with AsyncClient("127.0.0.1:1") as client:
        assert not await Streams(client, ASKED).wait_token(since_s=0, within_s=0.01)


async def test_the_token_of_the_first_prompt_alone_is_fed_by_nobody_else():
    async with serve(FakeDoor()) as served, AsyncClient(served.address) as client:
        streams = Streams(client, [Asked(token_ids=(12, 10, 5), max_tokens=4), ASKED[1]])
        await streams.take_undisturbed()
        assert streams.token_of_first_alone() == 5
