"""A server of the bench is started with its options, asked, and ended; its ranks can be lost."""

import asyncio
import signal
import sys
from contextlib import asynccontextmanager

import pytest

from lanehost.bench.cache_servers import serving
from lanehost.bench.workload import Ask
from lanehost.errors import StartupFailed
from tests.support.fake_door import CARD, FakeDoor
from tests.support.served_door import serve


class FakeServer:
    """A door that is served; its ranks are whatever processes a test names."""

    def __init__(self, address, options):
        self.grpc_address = address
        self.options = options
        self.rank_pids = {}
        self.said = True
        self.heard = []

    async def wait_ready(self):
        self.heard.append("ready")

    async def wait_said(self, name, *, count=1, within_s=60.0):
        self.heard.append(name)
        return self.said

    async def end(self, *, within_s):
        self.heard.append("end")
        return 0


@pytest.fixture
def servers():
    return []


@pytest.fixture
def new_server(servers):
    @asynccontextmanager
    async def start(options):
        async with serve(FakeDoor()) as served:
            servers.append(FakeServer(served.address, options))
            yield servers[-1]

    return start


async def test_a_server_is_ready_before_it_is_asked_and_ended_afterwards(servers, new_server):
    async with serving(new_server, ("--lanes", "1")) as side:
        assert side.vocab_size == CARD.vocab_size
        reply = await side.load.ask(Ask(token_ids=(1, 2, 3), max_tokens=4))
        assert reply.failure is None
    assert servers[0].options == ("--lanes", "1")
    assert servers[0].heard == ["ready", "end"]


async def test_ranks_are_killed_and_awaited(servers, new_server):
    sleeper = (sys.executable, "-c", "import time; time.sleep(60)")
    rank = await asyncio.create_subprocess_exec(*sleeper)
    async with serving(new_server, ()) as side:
        servers[0].rank_pids = {0: rank.pid}
        await side.lose_ranks()
    assert await rank.wait() == -signal.SIGKILL
    assert servers[0].heard == ["ready", "epoch_formed", "end"]


async def test_ranks_that_do_not_come_back_end_the_bench(servers, new_server):
    async with serving(new_server, ()) as side:
        servers[0].said = False
        with pytest.raises(StartupFailed, match="did not come back"):
            await side.lose_ranks()
