"""The one server of a replica: started, watched, drained.

Laws: ready is its own word, the line with its addresses; it is always waited for; what ends it
is TERM, its drain, KILL, wait. It ends with the process that started it (`__main__`).
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Self

import structlog

from lanehost.errors import StartupFailed

log = structlog.get_logger()

_ADDRESS = re.compile(r"HTTP (http://[^\s,]+:\d+)")
_STDERR_FD = 2


class ServerGone(RuntimeError):
    """The server of a replica does not answer."""


def server_command(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return what starts `lanehost` with these arguments, to end with this process."""
    return (sys.executable, "-m", "lanehost.replicas", str(os.getpid()), *arguments)


class ServerProcess:
    """One running server; `start` makes it, `stop` ends it. One event loop owns it."""

    def __init__(
        self, process: asyncio.subprocess.Process, url: str, *, end_timeout_s: float
    ) -> None:
        """Take a server that is ready; use `start`."""
        self._process = process
        self._end_timeout_s = end_timeout_s
        self.url = url

    def __repr__(self) -> str:
        return f"<ServerProcess pid {self.pid} at {self.url} exit code {self.exit_code}>"

    @classmethod
    async def start(
        cls, command: Sequence[str], *, ready_timeout_s: float, end_timeout_s: float
    ) -> Self:
        """Start it and wait until it serves.

        Args:
            command: What is started.
            ready_timeout_s: How long it may take until it serves.
            end_timeout_s: How long `stop` lets it drain before it is killed.

        Raises:
            StartupFailed: it ended first, or took too long; its own lines say why.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=_STDERR_FD,
        )
        try:
            async with asyncio.timeout(ready_timeout_s):
                url = await _read_url(process)
        except TimeoutError:
            await _kill(process)
            message = f"the server was not ready within {ready_timeout_s:g} s, and was killed"
            raise StartupFailed(message) from None
        except BaseException:
            await _kill(process)
            raise
        log.info("replica_ready", pid=process.pid, url=url)
        return cls(process, url, end_timeout_s=end_timeout_s)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    async def exited(self) -> int:
        """Wait for its end; returns the exit code, negative for a signal."""
        return await self._process.wait()

    async def stop(self) -> int:
        """Drain it, kill it if that takes too long, and return its exit code."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(self._end_timeout_s):
                    await self._process.wait()
            except TimeoutError:
                await _kill(self._process)
        exit_code = await self._process.wait()
        log.info("replica_ended", pid=self.pid, exit_code=exit_code)
        return exit_code


async def _read_url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        if (match := _ADDRESS.search(line.decode(errors="replace"))) is not None:
            return match[1]
    exit_code = await process.wait()
    raise StartupFailed(f"the server ended with code {exit_code} before it was ready")


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
