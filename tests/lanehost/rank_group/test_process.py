"""A rank process: how it is seen, its death, its end."""

import asyncio
import os
import signal
import sys

import pytest

from lanehost.rank_group.process import RankProcess
from tests.support.processes import num_open_files, until


async def spawn(code):
    return await RankProcess.spawn(
        rank=3,
        command=(sys.executable, "-c", code),
        environment=os.environ,
    )


WAIT = "import signal; signal.pause()"


async def test_a_stopped_process_is_gone():
    process = await spawn(WAIT)
    assert await process.stop(timeout_s=5)
    assert process.exit_code == -signal.SIGTERM


async def test_a_process_that_ignores_term_is_killed(tmp_path):
    # Opening a named pipe waits for its other end: so the test knows that TERM is ignored.
    up = tmp_path / "up"
    os.mkfifo(up)
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    process = await spawn(f"{ignore} open({str(up)!r}, 'w').close(); signal.pause()")
    await asyncio.to_thread(up.read_bytes)
    assert await process.stop(timeout_s=0.1)
    assert process.exit_code == -signal.SIGKILL


async def test_a_killed_process_is_gone_even_when_it_was_stopped():
    process = await spawn(WAIT)
    os.kill(process.pid, signal.SIGSTOP)
    assert await process.kill()
    assert process.exit_code == -signal.SIGKILL


async def test_the_exit_code_of_a_process_that_ends_while_it_is_killed_is_kept():
    async def end_twice():
        process = await RankProcess.spawn(
            rank=0, command=("sh", "-c", "exec sleep 60"), environment=os.environ
        )
        os.kill(process.pid, signal.SIGKILL)
        await process.kill()
        return process.exit_code

    # Each is a race: it went wrong once in some dozens.
    codes = [await end_twice() for _ in range(150)]
    assert set(codes) == {-signal.SIGKILL}


async def test_a_process_is_seen_to_be_stopped_and_to_use_the_processor():
    process = await spawn("while True: pass")
    first = process.see()
    try:
        async with asyncio.timeout(10):
            await until(lambda: process.see().cpu_ticks > first.cpu_ticks)
            assert not process.see().is_stopped
            os.kill(process.pid, signal.SIGSTOP)
            await until(lambda: process.see().is_stopped)
    finally:
        await process.kill()
    assert process.see() is None


async def test_a_process_that_ends_by_itself_says_so_once():
    process = await spawn("raise SystemExit(9)")
    told = []
    process.on_exit(lambda: told.append(process.exit_code))
    assert await process.exited() == 9
    await process.stop(timeout_s=1)
    assert told == [9]


async def test_the_death_pipe_is_open_until_the_stop():
    process = await spawn("import os, sys; os.read(int(sys.argv[2]), 1); raise SystemExit(5)")
    assert process.exit_code is None
    process._close_death_pipe()
    assert await process.exited() == 5
    await process.stop(timeout_s=1)


async def spare(code):
    return await RankProcess.spawn(
        rank=None, command=(sys.executable, "-c", code), environment=os.environ
    )


async def test_a_spare_becomes_a_rank_by_the_line_that_it_reads():
    process = await spare("import sys; raise SystemExit(int(sys.stdin.read()))")
    assert (process.rank, process.exit_code) == (None, None)
    process.become(1, b"17\n")
    assert process.rank == 1
    assert await process.exited() == 17


async def test_a_spare_that_has_ended_is_told_in_vain_and_its_end_is_seen():
    process = await spare("raise SystemExit(3)")
    await process.exited()
    told = []
    process.on_exit(lambda: told.append(process.exit_code))
    process.become(1, b"17\n")
    assert await process.exited() == 3
    await asyncio.sleep(0)
    assert told == [3]


async def test_a_spare_is_ended_like_a_rank_and_leaves_no_descriptor():
    await (await spare(WAIT)).kill()
    before = num_open_files()
    for _ in range(3):
        process = await spare(WAIT)
        assert await process.kill()
        assert process.exit_code == -signal.SIGKILL
    assert num_open_files() == before


async def test_a_command_that_is_not_there_leaves_no_descriptor():
    before = num_open_files()
    with pytest.raises(FileNotFoundError):
        await RankProcess.spawn(rank=0, command=("/no/such/program",), environment={})
    assert num_open_files() == before


async def test_start_and_stop_leave_no_descriptor():
    process = await spawn(WAIT)
    await process.stop(timeout_s=5)
    before = num_open_files()
    for _ in range(5):
        process = await spawn(WAIT)
        await process.stop(timeout_s=5)
    assert num_open_files() == before


async def test_a_process_that_ends_by_itself_leaves_no_descriptor():
    warm = await spawn("pass")  # whatever asyncio opens once
    await warm.exited()
    await warm.kill()
    before = num_open_files()
    for _ in range(3):
        await (await spawn("pass")).exited()
    assert num_open_files() == before
