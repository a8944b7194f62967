"""All or the first error; beside; to the end."""

import asyncio

import pytest

from lanehost.tasks import all_or_first_error, beside, end_all, to_the_end


async def test_the_first_error_is_raised_as_itself_and_ends_the_others():
    ended = []

    async def fails():
        raise KeyError("first")

    async def waits():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    with pytest.raises(KeyError):
        await all_or_first_error([waits(), fails()])
    assert ended == ["waits"]


async def test_what_runs_beside_ends_with_the_body():
    ended = []

    async def waits():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("beside")

    async with beside(waits()):
        await asyncio.sleep(0)
        assert ended == []
    assert ended == ["beside"]


async def test_work_runs_to_its_end_however_often_the_caller_is_cancelled():
    go, done = asyncio.Event(), []

    async def cleans():
        await go.wait()
        done.append("clean")

    caller = asyncio.create_task(to_the_end(cleans()))
    for _ in range(3):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["clean"]


async def test_an_error_of_the_work_is_not_hidden_by_a_cancellation():
    async def fails():
        await asyncio.sleep(0)
        raise KeyError("work")

    caller = asyncio.create_task(to_the_end(fails()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(KeyError):
        await caller


async def test_beside_lets_a_cancel_of_its_caller_through():
    """`await task` in its end could not tell whose cancel it met, and swallowed the caller's."""
    reached = []

    async def body():
        async with beside(asyncio.Event().wait()):
            pass
        await asyncio.Event().wait()
        reached.append("after")

    caller = asyncio.create_task(body())
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(caller, 1)
    assert reached == []


async def test_beside_raises_what_its_work_raised():
    async def work():
        raise ValueError("work broke")

    with pytest.raises(ValueError, match="work broke"):
        async with beside(work()):
            await asyncio.sleep(0)


async def test_end_all_ends_every_task_whatever_it_raised():
    async def broken():
        raise ValueError("ignored")

    tasks = [asyncio.create_task(broken()), asyncio.create_task(asyncio.Event().wait())]
    await asyncio.sleep(0)
    await end_all(*tasks)
    assert [task.done() for task in tasks] == [True, True]
