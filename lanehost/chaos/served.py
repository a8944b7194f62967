"""A `lanehost serve` of the kit's own: started, its log read line by line, and ended.

All times are of this process's monotonic clock, as a line is read. Nothing that was started is
left: leaving the block ends the server, and its ranks end with it.
"""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from lanehost.chaos.resources import parent_of
from lanehost.errors import StartupFailed

_READY = re.compile(r"gRPC (?P<grpc>[^\s,]+:\d+)(?:, HTTP http://(?P<http>[^\s,]+:\d+))?")
_MAX_LINE_BYTES = 1 << 20
_KEPT_LINES = 40
START_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One event of the server's log, or of a rank's."""

    at_s: float
    name: str
    fields: Mapping[str, Any]


class ServedHere:
    """One server; used as an `async with` block."""

    def __init__(self, args: tuple[str, ...], *, environment: Mapping[str, str]) -> None:
        """Start nothing yet.

        Args:
            args: What `lanehost serve` is given.
            environment: What is added to its environment.
        """
        self._args = args
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self.said: list[Said] = []
        self.last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.grpc_address = ""
        self.http_address = ""

    def __repr__(self) -> str:
        return f"<ServedHere pid {self.pid} {self.grpc_address} {self.exit_code}>"

    async def __aenter__(self) -> Self:
        """Start it; `wait_ready` waits."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lanehost", "serve", "--log-json", *self._args),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environment},
            limit=_MAX_LINE_BYTES,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            asyncio.create_task(self._read(self._process.stdout, self._take_word)),
            asyncio.create_task(self._read(self._process.stderr, self._take_line)),
        ]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it whatever its state."""
        self.kill_master()
        await self.exited()
        for reader in self._readers:
            reader.cancel()
        await asyncio.wait(self._readers)

    @property
    def pid(self) -> int:
        """The master's."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The master's; None while it runs."""
        return None if self._process is None else self._process.returncode

    @property
    def rank_pids(self) -> dict[int, int]:
        """The last process of each rank number, whether it still runs or not."""
        return {one.fields["rank"]: one.fields["pid"] for one in self.all_said("rank_spawned")}

    def living_rank(self, rank: int) -> int | None:
        """Give the pid of a rank that runs and is this server's own child."""
        pid = self.rank_pids.get(rank)
        return pid if pid is not None and parent_of(pid) == self.pid else None

    def all_said(self, name: str, **fields: object) -> list[Said]:
        """Return the events of this name, and of these values."""
        return [
            one
            for one in self.said
            if one.name == name and all(one.fields.get(key) == fields[key] for key in fields)
        ]

    async def wait_until(self, is_so: Callable[[], object], *, within_s: float) -> bool:
        """Wait for something that its lines tell; says whether it came in time."""
        try:
            async with asyncio.timeout(within_s):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def wait_said(self, name: str, *, count: int = 1, within_s: float = 60.0) -> bool:
        """Wait for an event; says whether it came in time."""
        return await self.wait_until(lambda: len(self.all_said(name)) >= count, within_s=within_s)

    async def wait_ready(self) -> None:
        """Wait for the line with the addresses.

        Raises:
            StartupFailed: It ended, or took too long.
        """
        is_there = lambda: self.grpc_address or self.exit_code is not None  # noqa: E731
        ended = asyncio.create_task(self.exited())
        try:
            ended.add_done_callback(lambda _: self._changed.set())
            await self.wait_until(is_there, within_s=START_TIMEOUT_S)
        finally:
            ended.cancel()
        if not self.grpc_address:
            raise StartupFailed(f"the server did not start: {self.last_words()}")

    async def exited(self) -> int:
        """Wait for the end of the master; returns its exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def end(self, *, within_s: float) -> int | None:
        """SIGTERM, and wait; None when it does not end in time."""
        self.signal_master(signal.SIGTERM)
        try:
            async with asyncio.timeout(within_s):
                return await self.exited()
        except TimeoutError:
            return None

    def kill_master(self) -> None:
        """SIGKILL the master, if it runs."""
        self.signal_master(signal.SIGKILL)

    def signal_master(self, number: signal.Signals) -> None:
        """Send a signal to the master, if it runs."""
        if self.exit_code is None:
            os.kill(self.pid, number)

    def last_words(self) -> str:
        """The last lines that it wrote."""
        return " | ".join(list(self.last_lines)[-3:])

    async def _read(self, stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
        while raw := await stream.readline():
            take(raw.decode(errors="replace").rstrip())
            self._changed.set()

    def _take_word(self, line: str) -> None:
        match = _READY.search(line)
        if match is not None:
            self.grpc_address, self.http_address = match["grpc"], match["http"] or ""

    def _take_line(self, line: str) -> None:
        self.last_lines.append(line)
        try:
            fields = json.loads(line)
        except ValueError:
            return
        if isinstance(fields, dict) and isinstance(fields.get("event"), str):
            self.said.append(Said(at_s=time.monotonic(), name=fields["event"], fields=fields))
