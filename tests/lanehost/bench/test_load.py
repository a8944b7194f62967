import asyncio
from itertools import islice

import pytest

from lanehost.bench.load import Load, MonotonicClock
from lanehost.bench.workload import Ask, Lengths, make_asks
from lanehost.client import AsyncClient
from lanehost.errors import Overloaded
from tests.support.bench_client import CACHED_TOKENS, GAP_S, JumpingClock, ScriptedClient
from tests.support.fake_door import FakeDoor
from tests.support.served_door import serve

LENGTHS = Lengths(prompt=(5,), reply=(4,))


def asks(count):
    return list(islice(make_asks(LENGTHS, vocab_size=1000, seed="1"), count))


class Rig:
    def __init__(self, **script):
        self.clock = JumpingClock()
        self.client = ScriptedClient(self.clock, **script)
        self.heard = []
        self.load = Load(self.client, self.clock, self.heard.append)


async def test_events_are_timed_as_they_arrive_and_those_without_tokens_are_not_arrivals():
    rig = Rig()
    found = await rig.load.ask(asks(1)[0])
    assert [one.at_s - found.sent_s for one in found.arrivals] == [
        GAP_S * number for number in range(1, 5)
    ]
    assert (found.prompt_tokens, found.cached_tokens) == (5, CACHED_TOKENS)
    assert found.failure is None


async def test_a_closed_loop_keeps_as_many_open_as_it_has_streams_until_all_are_asked():
    rig = Rig(holds=3)
    found = await rig.load.closed(asks(10), num_streams=3)
    assert rig.client.most_open == 3
    assert len(found) == len(rig.heard) == 10
    assert len(set(rig.client.prompts)) == 10


async def test_in_a_closed_loop_a_request_is_due_when_its_stream_is_free():
    rig = Rig()
    found = await rig.load.closed(asks(2), num_streams=1)
    assert found[1].due_s == found[1].sent_s == found[0].ended_s


async def test_an_open_loop_sends_at_the_arrivals_however_many_are_open():
    rig = Rig(holds=4)  # no reply begins before all four are open
    began_s = rig.clock.now_s()
    found = await rig.load.open(asks(4), [1.0, 2.0, 4.0, 8.0])
    assert [one.due_s - began_s for one in found] == [1.0, 2.0, 4.0, 8.0]
    assert rig.client.most_open == 4


async def test_a_client_that_is_late_does_not_shorten_the_time_to_the_first_token():
    rig = Rig()
    began_s = rig.clock.now_s()
    rig.clock.pass_s(3.0)
    late = await rig.load.ask(asks(1)[0], due_s=began_s)
    assert late.ttft_s == 3.0 + GAP_S


async def test_a_request_that_fails_is_noted_and_stops_no_other():
    rig = Rig(fails=lambda number: number == 1)
    found = await rig.load.closed(asks(3), num_streams=1)
    assert [one.failure for one in found] == [None, "ServerBusy", None]
    assert rig.load.first_error is not None


async def test_the_long_prompt_is_sent_when_every_stream_has_a_quarter_of_its_reply():
    rig = Rig(holds=2)
    running = [Ask(token_ids=(1,), max_tokens=8), Ask(token_ids=(2,), max_tokens=40)]
    found = await rig.load.long_round(running, Ask(token_ids=(3,) * 50, max_tokens=1))
    assert rig.client.prompts[-1] == (3,) * 50
    for number, wanted in ((0, 2), (1, 10)):
        before = [at for at in found.running[number].arrivals if at.at_s <= found.long.sent_s]
        assert len(before) >= wanted
    assert len(found.long.arrivals) == 1


async def test_a_stream_that_failed_is_not_waited_for():
    rig = Rig(fails=lambda number: number == 0)
    long = Ask(token_ids=(3,), max_tokens=1)
    found = await rig.load.long_round(asks(2), long)
    assert found.running[0].failure == "ServerBusy"
    assert found.long.failure is None


async def test_over_grpc_tokens_cached_tokens_and_refusals_arrive():
    async def ask(door):
        async with serve(door) as served, AsyncClient(served.address) as client:
            load = Load(client, MonotonicClock(), lambda _: None)
            return await load.ask(asks(1)[0])

    found = await ask(FakeDoor())
    assert [one.num_tokens for one in found.arrivals] == [1, 1, 2]
    assert found.cached_tokens == 3
    assert found.sent_s < found.arrivals[0].at_s <= found.arrivals[-1].at_s <= found.ended_s
    refused = await ask(FakeDoor(refusal=Overloaded("full", retry_after_s=1.0)))
    assert refused.failure == "ServerBusy"


async def test_cancelling_a_run_leaves_no_request_open():
    rig = Rig(holds=9)  # nobody ever answers
    task = asyncio.create_task(rig.load.closed(asks(4), num_streams=2))
    for _ in range(2):
        await rig.client.opened.acquire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.client.num_open == 0


async def test_the_clock_of_this_machine_waits_for_what_is_to_come_and_not_for_what_is_past():
    clock = MonotonicClock()
    began_s = clock.now_s()
    await clock.wait_until(began_s - 100)
    await clock.wait_until(began_s + 0.01)
    assert clock.now_s() >= began_s + 0.01
