import asyncio
import os
import signal
import sys

import pytest

from lanehost.chaos.served import ServedHere
from lanehost.errors import StartupFailed

SPAWNED = '{"event": "rank_spawned", "rank": %d, "pid": %d, "level": "info"}'


async def test_a_server_that_cannot_start_says_why_and_has_ended(tmp_path):
    async with ServedHere(("--model", str(tmp_path / "absent")), environment={}) as served:
        with pytest.raises(StartupFailed, match="absent"):
            await served.wait_ready()
        assert await served.exited() == 2


async def test_leaving_the_block_ends_a_server_that_runs(tmp_path):
    fifo = tmp_path / "model"
    os.mkfifo(fifo)  # whoever opens it waits for ever
    args = ("--keys", str(fifo), "--port", "0", "--http-port", "off")
    async with ServedHere(args, environment={}) as served:
        assert served.exit_code is None
    assert served.exit_code == -signal.SIGKILL


def test_events_are_read_and_other_lines_are_kept_as_they_are():
    served = ServedHere((), environment={})
    for line in (SPAWNED % (0, 7), SPAWNED % (1, 8), "no event", "[1]", SPAWNED % (0, 9)):
        served._take_line(line)
    assert served.rank_pids == {0: 9, 1: 8}
    assert len(served.all_said("rank_spawned", rank=0)) == 2
    assert served.last_words().startswith("no event | [1] | ")


async def test_a_rank_is_living_only_as_a_child_of_this_server():
    served = ServedHere((), environment={})
    served._process = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
    await served.exited()
    served._take_line(SPAWNED % (0, os.getpid()))
    assert served.living_rank(0) is None
    assert served.living_rank(1) is None


async def test_an_event_that_is_awaited_wakes_and_one_that_does_not_come_is_said_so():
    served = ServedHere((), environment={})
    waiting = asyncio.create_task(served.wait_said("rank_spawned", within_s=10))
    await asyncio.sleep(0)
    served._take_line(SPAWNED % (0, 7))
    served._changed.set()
    assert await waiting
    assert not await served.wait_said("rank_spawned", count=2, within_s=0.01)
