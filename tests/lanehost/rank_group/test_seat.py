"""A rank number's one life, and what is said of its end."""

import asyncio
import os
import sys

from lanehost.rank_group.link import RankLink
from lanehost.rank_group.process import RankProcess
from lanehost.rank_group.seat import Seat
from ranks.wire.codec import encode_master_message
from ranks.wire.messages import Shutdown


async def exited_process(code):
    process = await RankProcess.spawn(
        rank=1, command=(sys.executable, "-c", f"raise SystemExit({code})"), environment=os.environ
    )
    await process.exited()
    return process


def with_link(seat):
    seat.link = RankLink(rank=1, pid=1)
    seat.last_words = asyncio.get_running_loop().create_future()


async def test_one_that_never_dialled_is_known_by_its_exit_code():
    seat = Seat(1)
    seat.process = await exited_process(7)
    said = "rank 1 ended before its Hello, exit code 7; its log says why"
    assert await seat.find_out() == said
    await seat.process.stop(timeout_s=1)


async def test_one_that_failed_is_known_by_its_last_words_and_its_exit_code():
    seat = Seat(1)
    with_link(seat)
    seat.process = await exited_process(1)
    finding = asyncio.create_task(seat.find_out())
    await asyncio.sleep(0)
    seat.last_words.set_result("rank 1 failed: no memory")
    assert await finding == "rank 1 failed: no memory; exit code 1"
    await seat.process.stop(timeout_s=1)


async def test_what_is_sent_to_a_seat_without_a_stream_is_dropped():
    seat = Seat(1)
    seat.send(Shutdown(reason="x"))
    with_link(seat)
    seat.send(Shutdown(reason="x"))
    assert seat.link._outgoing.get_nowait() == encode_master_message(Shutdown(reason="x"))
