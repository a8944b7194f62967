"""The agents of ranks on other hosts, as the master sees them (ADR 22).

Laws: a rank has one agent at a time; what an agent says of a former life is dropped; a process
whose agent is gone counts as gone, since an agent ends it before it dials again. Nobody waits
for an agent that was given up.
"""

import asyncio
from collections.abc import Callable, Collection

import structlog

from lanehost.rank_group.agreement import Terms, refuse_join
from lanehost.rank_group.link import AgentLink
from lanehost.rank_group.liveness import ProcessSight
from lanehost.tasks import end_all
from ranks.wire.follow_codec import encode_follow_order
from ranks.wire.follow_messages import (
    AgentMessage,
    ChildExited,
    ChildNotSpawned,
    ChildSight,
    ChildSpawned,
    Dismiss,
    Join,
    SpawnChild,
    StopChild,
)

log = structlog.get_logger()

# From an order to end a process to the word that it is gone, beyond what the order allows. An
# agent that says nothing for so long is cut off.
ANSWER_S = 5.0
_FAREWELL_S = 2.0


class AgentProcess:
    """One life of a rank that an agent holds; implements `Process`."""

    def __init__(self, link: AgentLink, life: int, pid: int) -> None:
        """Take a process that the agent has started."""
        self._link = link
        self._life = life
        self.pid = pid
        self.exit_code: int | None = None
        self._sight: ProcessSight | None = None
        self._gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        """Show the rank, the host, the pid and how it ended."""
        join, end = self._link.join, self._gone.result() if self._gone.done() else "runs"
        return f"<AgentProcess {join.rank} on {join.host} pid {self.pid} {end}>"

    def see(self) -> ProcessSight | None:
        """Say how it looked when the agent last told; None before."""
        return self._sight

    def on_exit(self, callback: Callable[[], None]) -> None:
        """Call back from the event loop once the process has ended."""
        self._gone.add_done_callback(lambda _: callback())

    async def ended(self) -> str:
        """Wait for the end; says how it was."""
        return await asyncio.shield(self._gone)

    @property
    def end(self) -> str:
        """How it ended, for people."""
        return self._gone.result() if self._gone.done() else "its process still runs"

    async def stop(self, *, timeout_s: float) -> bool:
        """Have it ended in order; says that it is gone, see the laws above."""
        self._link.send(encode_follow_order(StopChild(life=self._life, timeout_s=timeout_s)))
        done, _ = await asyncio.wait({self._gone}, timeout=timeout_s + ANSWER_S)
        if not done:
            self._link.cut(f"did not answer within {timeout_s + ANSWER_S:g} s")
        return True

    async def kill(self) -> bool:
        """Have it ended at once; says that it is gone, see the laws above."""
        return await self.stop(timeout_s=0.0)

    def note_sight(self, sight: ProcessSight) -> None:
        """Take how it looks."""
        self._sight = sight

    def note_exit(self, exit_code: int) -> None:
        """Take that it has ended."""
        log.info("rank_exited", rank=self._link.join.rank, exit_code=exit_code)
        self.exit_code = exit_code
        self._finish(f"exit code {exit_code}")

    def note_agent_lost(self, reason: str) -> None:
        """Take that nobody knows of it any more."""
        self._finish(reason)

    def _finish(self, end: str) -> None:
        if not self._gone.done():
            self._gone.set_result(end)


class _Post:
    """One rank's agent, and what it was told last."""

    def __init__(self) -> None:
        self.link: AgentLink | None = None
        self.life = 0
        self.starting: asyncio.Future[AgentProcess] | None = None
        self.process: AgentProcess | None = None
        self.changed = asyncio.Event()
        self.is_given_up = False


class Agents:
    """Owns the streams of the agents."""

    def __init__(self, *, terms: Terms, followed: Collection[int]) -> None:
        """Wait for nobody yet; `followed` are the ranks whose agents may dial."""
        self._terms = terms
        self._posts = {rank: _Post() for rank in followed}
        self._farewell: Dismiss | None = None

    @property
    def missing(self) -> list[int]:
        """Ranks that no agent holds."""
        return [rank for rank, post in self._posts.items() if post.link is None]

    def holds(self, rank: int) -> bool:
        """Whether this rank is an agent's, and not the master's own."""
        return rank in self._posts

    def model_path(self, rank: int) -> str | None:
        """Say where the model lies on the host of a rank's agent, if it has one."""
        post = self._posts.get(rank)
        return None if post is None or post.link is None else post.link.join.model_path

    def refuse(self, join: Join) -> str | None:
        """Say why an agent is refused, None when it is welcome."""
        post = self._posts.get(join.rank)
        taken = None if post is None or post.link is None else post.link.join
        return refuse_join(join, self._terms, followed=self._posts, taken=taken)

    def take(self, link: AgentLink) -> None:
        """Take the stream of an agent that is welcome; whoever serves it serves it to its end."""
        rank, post = link.join.rank, self._posts[link.join.rank]
        if post.link is not None:
            post.link.cut("has dialled again")
        log.info("agent_joined", rank=rank, host=link.join.host, pid=link.join.pid)
        post.link = link
        link.deliver_to(
            lambda message: self._hear(post, link, message),
            lambda reason: self._note_end(post, link, reason),
        )
        post.changed.set()
        if self._farewell is not None:
            _dismiss(link, self._farewell)

    async def spawn(self, rank: int, *, token: str) -> AgentProcess:
        """Wait for the agent of a rank, and have it start a process.

        Raises:
            OSError: The agent cannot, or is gone meanwhile, or was given up.
        """
        post = self._posts[rank]
        post.is_given_up = False
        while post.link is None:
            if post.is_given_up or self._farewell is not None:
                raise OSError(f"no agent has dialled for rank {rank}")
            post.changed.clear()
            await post.changed.wait()
        post.life += 1
        post.starting = asyncio.get_running_loop().create_future()
        post.link.send(encode_follow_order(SpawnChild(life=post.life, token=token)))
        try:
            post.process = await post.starting
        finally:
            post.starting = None
        return post.process

    def give_up(self, rank: int) -> None:
        """Let nobody wait for the agent of this rank any more."""
        post = self._posts[rank]
        post.is_given_up = True
        post.changed.set()

    def dismiss(self, farewell: Dismiss) -> None:
        """Tell all agents, and who dials from now on, that they may go."""
        self._farewell = farewell
        for post in self._posts.values():
            post.changed.set()
            if post.link is not None:
                _dismiss(post.link, farewell)

    async def dismiss_all(self, farewell: Dismiss) -> None:
        """Dismiss all, and wait a bounded time until they have been told."""
        links = [post.link for post in self._posts.values() if post.link is not None]
        self.dismiss(farewell)
        told = [asyncio.create_task(link.served.wait()) for link in links]
        if told:
            await asyncio.wait(told, timeout=_FAREWELL_S)
            await end_all(*told)

    def _hear(self, post: _Post, link: AgentLink, message: AgentMessage) -> None:
        if isinstance(message, Join):
            link.cut("said Join twice")
        elif post.link is not link or message.life != post.life:
            log.debug("agent_said_late", rank=link.join.rank, life=message.life)
        elif isinstance(message, ChildSpawned | ChildNotSpawned):
            _note_start(post, link, message)
        elif post.process is not None:
            _note_child(post.process, message)

    def _note_end(self, post: _Post, link: AgentLink, reason: str) -> None:
        if post.link is not link:
            return
        if self._farewell is None:
            log.warning("agent_lost", rank=link.join.rank, host=link.join.host, reason=reason)
        post.link = None
        if post.starting is not None and not post.starting.done():
            post.starting.set_exception(OSError(reason))
        if post.process is not None:
            post.process.note_agent_lost(reason)
        post.changed.set()


def _dismiss(link: AgentLink, farewell: Dismiss) -> None:
    link.send(encode_follow_order(farewell))
    link.close("was dismissed")


def _note_start(post: _Post, link: AgentLink, message: ChildSpawned | ChildNotSpawned) -> None:
    starting = post.starting
    if starting is None or starting.done():
        return
    match message:
        case ChildSpawned(life=life, pid=pid):
            log.info("rank_spawned", rank=link.join.rank, pid=pid, host=link.join.host)
            # Before whoever waits for it has run: what is told next may be its end.
            post.process = AgentProcess(link, life, pid)
            starting.set_result(post.process)
        case ChildNotSpawned(reason=reason):
            starting.set_exception(OSError(f"{reason}, on {link.join.host}"))


def _note_child(process: AgentProcess, message: ChildExited | ChildSight) -> None:
    match message:
        case ChildExited(exit_code=exit_code):
            process.note_exit(exit_code)
        case ChildSight(is_stopped=is_stopped, cpu_ticks=cpu_ticks):
            process.note_sight(ProcessSight(is_stopped, cpu_ticks))
