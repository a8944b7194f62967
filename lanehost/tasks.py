"""Ways to wait that asyncio does not have: all or the first error, beside, to the end."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any


async def all_or_first_error(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all; the first error cancels the others and is raised as itself, not as a group."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` for as long as the body runs, then cancel it."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        # Not `await task`: that could not tell the task's cancellation from the caller's.
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end even when the caller is cancelled, any number of times.

    A cancellation is raised once the work is done. The work must be bounded in time.
    """
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as err:
            cancelled = err
    if cancelled is not None and task.exception() is None:
        raise cancelled
    task.result()


async def end_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until each has ended; what they raised is not looked at."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
