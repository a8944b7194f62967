"""Look at processes from outside, without waiting by guess."""

import asyncio
import os
import select
import time
from collections.abc import Callable
from pathlib import Path

# A machine that is always busy stops no clock for ever: so much of real time counts at least.
LEAST_PART = 0.05


def unhindered_s() -> float:
    """Seconds of a clock that almost stands while anybody here waits for a processor (Linux).

    By it is judged what has to be done in time: on a machine that is busy with other things,
    other tests for one, everybody is late. Where the kernel does not tell, it is a clock like any.
    """
    passed_s, stalled_s = time.monotonic() - _BEGAN[0], _stalled_s() - _BEGAN[1]
    return max(passed_s - stalled_s, passed_s * LEAST_PART)


def _stalled_s() -> float:
    try:
        stalled = Path("/proc/pressure/cpu").read_text()
    except OSError:
        return 0.0
    return int(stalled.split("total=")[1].split()[0]) / 1e6


_BEGAN = (time.monotonic(), _stalled_s())


def all_end(pids: list[int], *, within_s: float) -> bool:
    """Say whether all processes end in time; children of others too (Linux)."""
    deadline_s = unhindered_s() + within_s
    for pid in pids:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            while not select.select([watched], [], [], 0.05)[0]:
                if unhindered_s() > deadline_s:
                    return False
        finally:
            os.close(watched)
    return True


def is_alive(pid: int) -> bool:
    """Say whether the process runs; one that has ended and waits for its parent does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def num_open_files() -> int:
    """Count this process's open descriptors (Linux)."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def until(is_so: Callable[[], object], *, within_s: float = 60) -> None:
    """Wait for something that nobody tells: look again and again, up to a bound."""
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - another process does it, and sets no event
            await asyncio.sleep(0.01)
