"""A rank group whose rank 1 is an agent's, with ranks that compute by arithmetic; one process."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from lanehost.addresses import parse_address
from lanehost.errors import LanehostError
from lanehost.rank_group.agent import Agent
from lanehost.rank_group.supervisor import running_rank_groups
from lanehost.settings import FollowSettings, RankGroupSettings, RankPortSettings
from lanehost.tasks import end_all
from tests.support.rank_process import rank_command

WITHIN_S = 60
LOOPBACK = RankPortSettings(host="127.0.0.1", port=0)


class Hosts:
    """The master's supervisor, which a task runs, and agents that a test starts."""

    def __init__(self, behaviour, settings):
        loop = asyncio.get_running_loop()
        self.states = []
        self.supervisor = loop.create_future()
        self.address = loop.create_future()
        self.outcomes = []
        self._enough = asyncio.Event()
        self._tasks = [asyncio.create_task(self._serve(behaviour, settings))]

    async def _serve(self, behaviour, settings):
        running = running_rank_groups(
            settings,
            on_progress=self._see,
            rank_command=rank_command(behaviour),
            report_interval_s=0.05,
        )
        try:
            async with running as supervisor:
                self.supervisor.set_result(supervisor)
                await self._enough.wait()
        except LanehostError as err:
            self.supervisor.set_exception(err)

    def _see(self, state):
        self.states.append(state)
        if state.rank_port and not self.address.done():
            self.address.set_result(parse_address(state.rank_port))

    async def agent(self, behaviour="ok", **changes):
        """An agent that a test lets follow."""
        host, port = await asyncio.wait_for(self.address, WITHIN_S)
        usual = {"rank": 1, "tp": 2, "model_path": Path("its-model"), "keeps_spare": False}
        master = RankPortSettings(host=host, port=port)
        settings = FollowSettings(**({**usual, "master": master} | changes))
        return Agent(settings, rank_command=rank_command(behaviour))

    async def following(self, behaviour="ok", **changes):
        """A task in which an agent follows once; its result is how that ended."""
        agent = await self.agent(behaviour, **changes)
        task = asyncio.create_task(agent.follow())
        self._tasks.append(task)
        return task

    async def next_group(self):
        supervisor = await asyncio.wait_for(self.supervisor, WITHIN_S)
        return await asyncio.wait_for(supervisor.next_backend(), WITHIN_S)

    async def end(self):
        """End the master in order, and wait for it."""
        self._enough.set()
        await asyncio.wait({self._tasks[0]}, timeout=WITHIN_S)

    async def close(self):
        await end_all(*self._tasks)
        if self.supervisor.done() and not self.supervisor.cancelled():
            self.supervisor.exception()


@asynccontextmanager
async def hosts(behaviour="ok", **settings):
    """Serve on a free port; nobody follows yet."""
    settings = {"keeps_spare": False} | settings
    group = RankGroupSettings(model_path=Path("model"), tp=2, rank_port=LOOPBACK, **settings)
    found = Hosts(behaviour, group)
    try:
        yield found
    finally:
        await found.close()
