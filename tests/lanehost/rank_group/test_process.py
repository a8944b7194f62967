"""A rank process: its table, its death, its end."""

import asyncio
import os
import signal
import sys

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lanehost.rank_group.process import (
    TRANSITIONS,
    IllegalRankEvent,
    RankEvent,
    RankLife,
    RankProcess,
    RankState,
)
from tests.support.processes import num_open_files

END_STATES = {RankState.GONE, RankState.LOST}


class AlongTheTable(RuleBasedStateMachine):
    """Any events in any order: the life follows its laws, or refuses and stays."""

    def __init__(self):
        super().__init__()
        self.life = RankLife()
        self.taken = []

    @rule(event=st.sampled_from(RankEvent))
    def fire(self, event):
        before = self.life.state
        try:
            self.life.fire(event)
        except IllegalRankEvent:
            assert (before, event) not in TRANSITIONS
            assert self.life.state is before
            return
        self.taken.append(event)

    @invariant()
    def ready_only_after_hello_and_forming(self):
        if self.life.state is RankState.READY:
            assert self.taken == [RankEvent.SAID_HELLO, RankEvent.FORMED]

    @invariant()
    def gone_only_when_stopped_and_exited(self):
        if self.life.state is RankState.GONE:
            assert self.taken[-2:] == [RankEvent.STOP, RankEvent.EXITED]

    @invariant()
    def lost_stays_lost(self):
        if RankEvent.FAILED in self.taken:
            assert self.life.state is RankState.LOST

    @invariant()
    def who_exits_is_at_an_end(self):
        if RankEvent.EXITED in self.taken:
            assert self.life.state in END_STATES


TestAlongTheTable = AlongTheTable.TestCase


@pytest.mark.parametrize("state", [s for s in RankState if s is not RankState.GONE])
def test_any_living_rank_can_be_lost(state):
    assert TRANSITIONS[state, RankEvent.FAILED] is RankState.LOST


async def spawn(code):
    return await RankProcess.spawn(
        rank=3,
        command=(sys.executable, "-c", code),
        environment=os.environ,
    )


WAIT = "import signal; signal.pause()"


async def test_a_stopped_process_is_gone():
    process = await spawn(WAIT)
    await process.stop(timeout_s=5)
    assert process.life.state is RankState.GONE
    assert process.exit_code == -signal.SIGTERM


async def test_a_process_that_ignores_term_is_killed(tmp_path):
    # Opening a named pipe waits for its other end: so the test knows that TERM is ignored.
    up = tmp_path / "up"
    os.mkfifo(up)
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    process = await spawn(f"{ignore} open({str(up)!r}, 'w').close(); signal.pause()")
    await asyncio.to_thread(up.read_bytes)
    await process.stop(timeout_s=0.1)
    assert process.exit_code == -signal.SIGKILL
    assert process.life.state is RankState.GONE


async def test_a_process_that_ends_by_itself_is_lost_and_says_so_once():
    process = await spawn("raise SystemExit(9)")
    told = []
    process.on_exit(lambda: told.append(process.exit_code))
    assert await process.exited() == 9
    await process.stop(timeout_s=1)
    assert told == [9]
    assert process.life.state is RankState.LOST


async def test_the_death_pipe_is_open_until_the_stop():
    process = await spawn("import os, sys; os.read(int(sys.argv[2]), 1); raise SystemExit(5)")
    assert process.exit_code is None
    os.close(process._death_pipe)
    process._death_pipe = None
    assert await process.exited() == 5
    await process.stop(timeout_s=1)


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
