"""Agents as the master sees them: one at a time, and no word of a former life."""

import asyncio

import pytest

from lanehost.rank_group.agents import Agents
from lanehost.rank_group.link import AgentLink
from lanehost.rank_group.liveness import ProcessSight
from ranks.wire.follow_codec import decode_follow_order
from ranks.wire.follow_messages import (
    ChildExited,
    ChildNotSpawned,
    ChildSight,
    ChildSpawned,
    Dismiss,
    Join,
    SpawnChild,
    StopChild,
)
from tests.support.rank_facts import BUILD, terms


def join(**changes):
    usual = {
        "rank": 1,
        "world_size": 2,
        "pid": 7,
        "build": BUILD,
        "node_id": "n",
        "host": "node-b",
        "model_path": "/models/m",
    }
    return Join(**(usual | changes))


class Played:
    """Agents of a group of two, of which the test plays one."""

    def __init__(self):
        self.agents = Agents(terms=terms(), followed=range(1, 2))
        self.link = None

    def dial(self, **changes):
        self.link = AgentLink(join(**changes))
        self.agents.take(self.link)
        return self.link

    def say(self, message, link=None):
        (link or self.link)._deliver(message)

    def told(self, link=None):
        return decode_follow_order((link or self.link)._outgoing.get_nowait())

    async def spawned(self, life=1):
        spawning = asyncio.create_task(self.agents.spawn(1, token="t"))
        await asyncio.sleep(0)
        assert self.told() == SpawnChild(life=life, token="t")
        self.say(ChildSpawned(life=life, pid=70 + life))
        return await spawning


async def test_a_process_lives_and_ends_as_its_agent_says():
    played = Played()
    assert played.agents.missing == [1]
    played.dial()
    assert (played.agents.missing, played.agents.model_path(1)) == ([], "/models/m")
    assert played.agents.model_path(0) is None
    process = await played.spawned()
    assert (process.pid, process.exit_code, process.see()) == (71, None, None)
    played.say(ChildSight(life=1, is_stopped=True, cpu_ticks=5))
    assert process.see() == ProcessSight(is_stopped=True, cpu_ticks=5)
    ended = []
    process.on_exit(lambda: ended.append(process.exit_code))
    stopping = asyncio.create_task(process.stop(timeout_s=3))
    await asyncio.sleep(0)
    assert played.told() == StopChild(life=1, timeout_s=3)
    played.say(ChildExited(life=1, exit_code=-9))
    assert await stopping
    assert await process.ended() == process.end == "exit code -9"
    assert ended == [-9]


async def test_what_is_said_of_a_former_life_is_dropped():
    played = Played()
    played.dial()
    first = await played.spawned()
    played.say(ChildExited(life=1, exit_code=0))
    second = await played.spawned(life=2)
    played.say(ChildExited(life=1, exit_code=3))
    played.say(ChildSight(life=1, is_stopped=True, cpu_ticks=1))
    assert (first.exit_code, second.exit_code, second.see()) == (0, None, None)


async def test_a_process_whose_agent_is_gone_counts_as_gone_and_its_code_is_not_known():
    played = Played()
    played.dial()
    process = await played.spawned()
    played.link.cut("is gone")
    assert await process.ended() == "the agent of rank 1 on node-b is gone"
    assert process.exit_code is None
    assert played.agents.missing == [1]


async def test_an_agent_that_dials_again_takes_its_own_place():
    played = Played()
    former = played.dial()
    process = await played.spawned()
    assert played.agents.refuse(join()) is None
    played.dial()
    assert "has dialled again" in await process.ended()
    played.say(ChildExited(life=1, exit_code=0), link=former)
    assert process.exit_code is None
    assert (await played.spawned(life=2)).pid == 72


async def test_who_waits_for_an_agent_hears_when_it_is_given_up():
    played = Played()
    spawning = asyncio.create_task(played.agents.spawn(1, token="t"))
    await asyncio.sleep(0)
    played.agents.give_up(1)
    with pytest.raises(OSError, match="no agent has dialled for rank 1"):
        await spawning
    # The next life waits again.
    spawning = asyncio.create_task(played.agents.spawn(1, token="t"))
    await asyncio.sleep(0)
    played.dial()
    await asyncio.sleep(0)
    played.say(ChildNotSpawned(life=1, reason="no program"))
    with pytest.raises(OSError, match="no program, on node-b"):
        await spawning


async def test_an_agent_that_is_gone_in_the_middle_of_a_start_fails_it():
    played = Played()
    played.dial()
    spawning = asyncio.create_task(played.agents.spawn(1, token="t"))
    await asyncio.sleep(0)
    played.link.cut("is gone")
    with pytest.raises(OSError, match="the agent of rank 1 on node-b is gone"):
        await spawning


async def test_all_are_dismissed_and_so_is_who_dials_later():
    played = Played()
    farewell = Dismiss(reason="enough", is_failure=False)
    played.dial()
    played.agents.dismiss(farewell)
    assert played.told() == farewell
    assert played.told(played.dial()) == farewell


class Written:
    """A stream that takes its time for what is written."""

    def __init__(self):
        self.payloads = []

    async def read(self):
        await asyncio.Event().wait()

    async def write(self, payload):
        await asyncio.sleep(0)
        self.payloads.append(decode_follow_order(payload))


async def test_a_dismissal_is_out_before_the_stream_is_over():
    played, farewell = Played(), Dismiss(reason="enough", is_failure=True)
    stream = Written()
    serving = asyncio.create_task(played.dial().serve(stream))
    await asyncio.sleep(0)
    await played.agents.dismiss_all(farewell)
    assert stream.payloads == [farewell]
    await serving


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"build": "9"}, "the agent of rank 1 on node-b runs build 9, the master runs 1.2.3"),
        ({"world_size": 4}, "believes in 4 ranks (--tp), the master in 2"),
        ({"rank": 0}, "the agent of rank 0 on node-b is none of this group: agents hold rank 1"),
        ({"rank": 2}, "the agent of rank 2 on node-b is none of this group: agents hold rank 1"),
        (
            {"node_id": "m", "host": "node-c", "pid": 8},
            "rank 1 is followed on node-b (pid 7) already, node-c (pid 8) asks for it too",
        ),
    ],
)
async def test_who_is_not_of_this_group_is_refused_with_both_values(changes, says):
    played = Played()
    played.dial()
    assert says in played.agents.refuse(join(**changes))
