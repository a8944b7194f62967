"""Tell a cancel of the running task from a CancelledError that something within it made."""

import asyncio


def is_cancelling() -> bool:
    """Say whether the running task itself was cancelled, and has to end as such."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
