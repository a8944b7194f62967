"""How faults are chosen and done; whole runs are in tests/chaos."""

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys

from lanehost.chaos.orders import Orders
from lanehost.chaos.run import Injector
from lanehost.chaos.seen import Seen
from lanehost.chaos.table import Fault
from tests.support.chaos_seen import RUN


class Sleepers:
    """Stands for a server: each rank is a process that sleeps, and is replaced when asked for."""

    exit_code = None

    def __init__(self):
        self.ended = []
        self.processes = {}

    async def start(self, rank):
        self.processes[rank] = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "import time; time.sleep(600)"
        )

    def living_rank(self, rank):
        return self.processes[rank].pid

    def all_said(self, name):
        return []

    async def wait_said(self, name, *, count, within_s):
        return False


class Fresh:
    """Stands for streams, each of which has just had a token."""

    async def wait_all(self, *, since_s, within_s):
        return True


def injector(run, served, seen, tmp_path):
    orders = Orders(tmp_path)
    said = lambda _: None  # noqa: E731
    return Injector(run, served, seen=seen, streams=Fresh(), orders=orders, say=said)


async def with_sleepers(run, tmp_path):
    served, seen = Sleepers(), Seen()
    seen.health.note(is_serving=True)
    for rank in (0, 1):
        await served.start(rank)
    try:
        await injector(run, served, seen, tmp_path).go()
        if Fault.STOP not in run.faults:
            hit = {done.rank for done in seen.done}
            await asyncio.gather(*(served.processes[rank].wait() for rank in hit))
        ended = [rank for rank in (0, 1) if served.processes[rank].returncode is not None]
    finally:
        for process in served.processes.values():
            # Not its own `kill`: that would take the exit code from who waits for it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            await process.wait()
    return seen, ended


async def test_a_fault_meets_the_rank_that_is_noted_and_the_number_is_kept(tmp_path):
    run = dataclasses.replace(RUN, max_faults=1, pause_s=0.01)
    seen, ended = await with_sleepers(run, tmp_path)
    (done,) = seen.done
    assert (done.fault, done.was_serving) == (Fault.KILL, True)
    assert ended == [done.rank]
    assert not seen.never_served_again


async def test_the_same_seed_does_the_same_faults(tmp_path):
    run = dataclasses.replace(RUN, faults=(Fault.KILL, Fault.STOP), max_faults=2, pause_s=0.01)
    runs = [await with_sleepers(run, tmp_path) for _ in range(2)]
    first, second = ([(d.fault, d.rank) for d in seen.done] for seen, _ in runs)
    assert first == second


async def test_an_order_that_no_step_takes_is_withdrawn_and_not_counted(tmp_path):
    seen, served = Seen(), Sleepers()
    run = dataclasses.replace(RUN, faults=(Fault.OOM,))
    await injector(run, served, seen, tmp_path)._do_one()
    assert (seen.done, list(tmp_path.iterdir())) == ([], [])


async def test_who_is_told_to_stop_does_no_more(tmp_path):
    seen = Seen()
    seen.health.note(is_serving=True)
    one = injector(RUN, Sleepers(), seen, tmp_path)
    one.stop()
    await one.go()
    assert seen.done == []
