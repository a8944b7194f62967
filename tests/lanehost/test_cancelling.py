import asyncio

import pytest

from lanehost.cancelling import is_cancelling


async def _seen_when_cancelled(work) -> bool:
    try:
        await work
    except asyncio.CancelledError:
        return is_cancelling()
    raise AssertionError


async def test_a_cancel_of_the_task_is_its_own() -> None:
    task = asyncio.create_task(_seen_when_cancelled(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    assert await task


async def test_a_cancel_from_within_is_not() -> None:
    within = asyncio.get_running_loop().create_future()
    within.cancel()
    assert not await _seen_when_cancelled(within)


def test_outside_of_any_task_nothing_is_cancelled() -> None:
    with pytest.raises(RuntimeError):
        is_cancelling()
