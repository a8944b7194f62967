import asyncio

from lanehost.engine.inbox import Drain, Inbox
from tests.support.fake_engine import settle_loop


async def test_commands_are_taken_in_order_all_at_once():
    inbox = Inbox()
    first, second = Drain(), Drain()
    inbox.put(first)
    inbox.put(second)
    taken = await inbox.take_all()
    assert taken[0] is first
    assert taken[1] is second


async def test_a_reader_waits_for_the_next_command():
    inbox = Inbox()
    inbox.put(Drain())
    await inbox.take_all()
    waiting = asyncio.create_task(inbox.take_all())
    await settle_loop()
    assert not waiting.done()
    inbox.put(Drain())
    assert await waiting == [Drain()]
