"""The process of one rank on another host than the master's: held for the master, at its word.

Laws: what decides about the rank is the master alone (ADR 20, ADR 22); without a stream to it
there is no process, and a former one is gone before the agent dials again; whatever ends the
agent, its process is gone.
"""

import asyncio
import contextlib
import importlib.metadata
import os
import secrets
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import structlog

from lanehost.addresses import explain, format_address
from lanehost.rank_group.front import client_context, explain_tls
from lanehost.rank_group.network import address_towards
from lanehost.rank_group.process import RankProcess
from lanehost.rank_group.starter import FIRST_SPARE_AFTER_S, Doorway, RankStarter
from lanehost.settings import FollowSettings, RankPortSettings
from lanehost.tasks import beside, to_the_end
from ranks.errors import BadMessage
from ranks.wire.follow_codec import decode_follow_order, encode_agent_message
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
from ranks.wire.messages import SERVICE_NAME
from ranks.wire.tls import channel_credentials, read_certificates
from ranks.wire.transport import CLIENT_OPTIONS

log = structlog.get_logger()

_FOLLOW = f"/{SERVICE_NAME}/Follow"
_SIGHT_S = 0.25
_DIAL_S = 10.0
# A client whose certificate the master refuses hears of it with the first answer only.
_VERDICT_S = 0.5
# What is told beyond this waits for a master that takes nothing: then it is lost.
_MAX_QUEUED = 256
# Of a rank that is told to end, until it is killed.
_STOP_S = 2.0


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream ended, or never was; `has_joined` when the master had taken the agent."""

    reason: str
    has_joined: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The master will not have this agent."""

    reason: str


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The master needs this agent no more: it ends in order, or it has failed."""

    reason: str
    is_failure: bool


Outcome = Lost | Refused | Dismissed


class Agent:
    """Follows one master at a time."""

    def __init__(self, settings: FollowSettings, *, rank_command: tuple[str, ...]) -> None:
        """Take what starts a rank; dial nobody yet."""
        self._settings = settings
        self._starter = RankStarter(
            rank_command,
            world_size=settings.tp,
            port=settings.master,
            keeps_spare=settings.keeps_spare,
        )
        self._node_id = secrets.token_hex(8)

    async def follow(self) -> Outcome:
        """Dial, join, and do what the master says, until the stream ends or it says enough.

        When this returns, or is cancelled, the rank's process is gone.
        """
        master = self._settings.master
        unreachable = await why_unreachable(master)
        if unreachable is not None:
            return Lost(unreachable, has_joined=False)
        async with _channel(master) as channel:
            call: Any = channel.stream_stream(_FOLLOW)()
            turn = _Turn(self._settings, self._starter, call)
            try:
                return await turn.run(self._join())
            finally:
                call.cancel()
                await to_the_end(turn.end())

    def _join(self) -> Join:
        settings = self._settings
        return Join(
            rank=settings.rank,
            world_size=settings.tp,
            pid=os.getpid(),
            build=importlib.metadata.version("lanehost"),
            node_id=self._node_id,
            host=socket.gethostname(),
            model_path=str(settings.model_path.absolute()),
        )


class _Turn:
    """One stream to a master, and the process that lives with it."""

    # Any: a call of grpc.aio that carries bytes, for which its stubs have no type.
    def __init__(self, settings: FollowSettings, starter: RankStarter, call: Any) -> None:
        self._settings = settings
        self._starter = starter
        self._call = call
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue(_MAX_QUEUED)
        self._process: RankProcess | None = None
        self._life = 0
        self._told: ChildSight | None = None
        self._stopping: set[asyncio.Task[bool]] = set()
        self._has_joined = False

    async def run(self, join: Join) -> Outcome:
        """Obey until the end."""
        try:
            self._say(join)
            async with beside(self._write_all()), beside(self._look()):
                return await self._obey()
        except grpc.aio.AioRpcError as err:
            if err.code() is grpc.StatusCode.FAILED_PRECONDITION:
                return Refused(str(err.details()))
            return Lost(f"{err.code().name}: {err.details()}", self._has_joined)
        except asyncio.QueueFull:
            return Lost("the master takes nothing", self._has_joined)
        except BadMessage as err:
            return Lost(f"the master sent {err}", self._has_joined)

    async def end(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            await self._process.stop(timeout_s=_STOP_S)
        await self._starter.stop()
        await asyncio.gather(*self._stopping)

    async def _obey(self) -> Outcome:
        while (payload := await self._call.read()) is not grpc.aio.EOF:
            order = decode_follow_order(payload)
            self._has_joined = True
            match order:
                case SpawnChild():
                    await self._spawn(order)
                case StopChild(life=life, timeout_s=timeout_s):
                    if life == self._life and self._process is not None:
                        self._stop(self._process, timeout_s)
                case Dismiss(reason=reason, is_failure=is_failure):
                    return Dismissed(reason, is_failure)
        return Lost("the master closed the stream", self._has_joined)

    async def _spawn(self, order: SpawnChild) -> None:
        if self._process is not None:
            await self._process.kill()
        self._life, self._process, self._told = order.life, None, None
        master = self._settings.master
        try:
            host = address_towards(master.host, master.port)
            doorway = Doorway(
                master=format_address(master.host, master.port),
                bind_host=host,
                is_encrypted=True,
            )
            process = await self._starter.start(self._settings.rank, doorway, token=order.token)
        except OSError as err:
            self._say(ChildNotSpawned(life=order.life, reason=f"{err}"))
            return
        self._process = process
        self._say(ChildSpawned(life=order.life, pid=process.pid))
        process.on_exit(lambda: self._note_exit(process, order.life))
        self._starter.prepare(after_s=FIRST_SPARE_AFTER_S)

    def _stop(self, process: RankProcess, timeout_s: float) -> None:
        ending = process.stop(timeout_s=timeout_s) if timeout_s else process.kill()
        task = asyncio.create_task(ending)
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _note_exit(self, process: RankProcess, life: int) -> None:
        if process.exit_code is not None:
            with contextlib.suppress(asyncio.QueueFull):
                self._say(ChildExited(life=life, exit_code=process.exit_code))

    def _say(self, message: AgentMessage) -> None:
        self._outgoing.put_nowait(encode_agent_message(message))

    async def _write_all(self) -> None:
        # An error of the stream is told by the one who reads.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                await self._call.write(await self._outgoing.get())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_SIGHT_S)
            seen = None if self._process is None else self._process.see()
            if seen is None:
                continue
            sight = ChildSight(
                life=self._life, is_stopped=seen.is_stopped, cpu_ticks=seen.cpu_ticks
            )
            if sight != self._told:
                self._told = sight
                with contextlib.suppress(asyncio.QueueFull):
                    self._say(sight)


@asynccontextmanager
async def _channel(master: RankPortSettings) -> AsyncIterator[grpc.aio.Channel]:
    address = format_address(master.host, master.port)
    if master.tls is None:
        channel = grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)
    else:
        credentials = channel_credentials(read_certificates(master.tls))
        channel = grpc.aio.secure_channel(address, credentials, options=CLIENT_OPTIONS)
    async with channel:
        yield channel


async def why_unreachable(master: RankPortSettings) -> str | None:
    """Try the port, and the certificates on it; gRPC would only say that it found no way."""
    context = None if master.tls is None else client_context(master.tls)
    try:
        async with asyncio.timeout(_DIAL_S):
            reader, writer = await asyncio.open_connection(master.host, master.port, ssl=context)
            try:
                return await _verdict(reader)
            finally:
                writer.transport.abort()
    except ssl.SSLError as err:
        return f"the master's certificate is not of this group's authority: {explain_tls(err)}"
    except TimeoutError:
        return f"no answer within {_DIAL_S:g} s"
    except OSError as err:
        return explain(err)


async def _verdict(reader: asyncio.StreamReader) -> str | None:
    try:
        async with asyncio.timeout(_VERDICT_S):
            # The server of gRPC speaks first.
            first = await reader.read(1)
    except TimeoutError:
        return None
    except ssl.SSLError as err:
        return f"the master refuses this node's certificate: {explain_tls(err)}"
    return None if first else "the master closed the connection: it may want another --rank-tls"
