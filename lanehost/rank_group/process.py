"""One rank process: started, watched from then on, and ended.

    STARTING ─said hello─▶ LOADING ─formed─▶ READY ─stop─▶ STOPPING ─exited─▶ GONE
    any of them ─exited or failed on its own─▶ LOST

Laws: what ends a process is in one place: TERM, wait, KILL, wait. A process that was
started is always waited for. Its death pipe is open for as long as the master wants it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Self

import structlog

log = structlog.get_logger()

# What a killed process may take until the kernel has freed its memory.
_KILL_TIMEOUT_S = 10.0
_STDERR_FD = 2


class RankState(Enum):
    """Where a rank process is in its life."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"
    GONE = "gone"
    LOST = "lost"


class RankEvent(Enum):
    """What happens to a rank process."""

    SAID_HELLO = "said hello"
    FORMED = "formed"
    STOP = "stop"
    EXITED = "exited"
    FAILED = "failed"


TRANSITIONS: dict[tuple[RankState, RankEvent], RankState] = {
    (RankState.STARTING, RankEvent.SAID_HELLO): RankState.LOADING,
    (RankState.LOADING, RankEvent.FORMED): RankState.READY,
    (RankState.STARTING, RankEvent.STOP): RankState.STOPPING,
    (RankState.LOADING, RankEvent.STOP): RankState.STOPPING,
    (RankState.READY, RankEvent.STOP): RankState.STOPPING,
    (RankState.STOPPING, RankEvent.EXITED): RankState.GONE,
    (RankState.STARTING, RankEvent.EXITED): RankState.LOST,
    (RankState.LOADING, RankEvent.EXITED): RankState.LOST,
    (RankState.READY, RankEvent.EXITED): RankState.LOST,
    (RankState.STARTING, RankEvent.FAILED): RankState.LOST,
    (RankState.LOADING, RankEvent.FAILED): RankState.LOST,
    (RankState.READY, RankEvent.FAILED): RankState.LOST,
    # Not even KILL ended it.
    (RankState.STOPPING, RankEvent.FAILED): RankState.LOST,
    # A lost rank is stopped as well; that it then exits changes nothing more.
    (RankState.LOST, RankEvent.STOP): RankState.LOST,
    (RankState.LOST, RankEvent.EXITED): RankState.LOST,
    (RankState.LOST, RankEvent.FAILED): RankState.LOST,
}


class IllegalRankEvent(AssertionError):
    """The event cannot happen in this state: a bug of ours."""


class RankLife:
    """A rank's state, moved along the table alone."""

    def __init__(self) -> None:
        """Start in STARTING."""
        self.state = RankState.STARTING

    def fire(self, event: RankEvent) -> None:
        """Move along the table, or fail loudly and stay put."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise IllegalRankEvent(f"{event.name} in {self.state.name}")
        self.state = after


class RankProcess:
    """One process; `spawn` makes it, `stop` ends it, in whatever state it is."""

    def __init__(self, *, rank: int, process: asyncio.subprocess.Process, death_pipe: int) -> None:
        """Take a started process and the write end of its death pipe; use `spawn`."""
        self.rank = rank
        self.life = RankLife()
        self._process = process
        self._death_pipe: int | None = death_pipe
        self._watcher = asyncio.create_task(self._watch(), name=f"watch rank {rank}")

    def __repr__(self) -> str:
        """Show rank, state and pid."""
        return f"<RankProcess {self.rank} {self.life.state.name} pid {self.pid}>"

    @classmethod
    async def spawn(
        cls, *, rank: int, command: tuple[str, ...], environment: Mapping[str, str]
    ) -> Self:
        """Start `command`, with `--death-fd` appended, in a session of its own.

        Raises:
            OSError: The command cannot be started.
        """
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                "--death-fd",
                str(read_end),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=_STDERR_FD,
                start_new_session=True,
                pass_fds=(read_end,),
                env=dict(environment),
            )
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        log.info("rank_spawned", rank=rank, pid=process.pid)
        return cls(rank=rank, process=process, death_pipe=write_end)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    def on_exit(self, callback: Callable[[], None]) -> None:
        """Call back from the event loop once the process has ended."""
        self._watcher.add_done_callback(lambda _: callback())

    async def exited(self) -> int:
        """Wait for the end; returns the exit code, negative for a signal."""
        return await asyncio.shield(self._watcher)

    async def stop(self, *, timeout_s: float) -> None:
        """TERM, wait `timeout_s`, KILL, wait; returns when the process is gone or lost."""
        if self.life.state not in (RankState.STOPPING, RankState.GONE):
            self.life.fire(RankEvent.STOP)
        await self._end_process(timeout_s)
        if self._death_pipe is not None:
            os.close(self._death_pipe)
            self._death_pipe = None

    async def _end_process(self, timeout_s: float) -> None:
        for number, wait_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, _KILL_TIMEOUT_S)):
            if self._watcher.done():
                return
            # It may end between the look and the signal.
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            done, _ = await asyncio.wait({self._watcher}, timeout=wait_s)
            if done:
                return
            log.warning("rank_ignores_signal", rank=self.rank, signal=number.name, waited_s=wait_s)
        self.life.fire(RankEvent.FAILED)

    async def _watch(self) -> int:
        exit_code = await self._process.wait()
        self.life.fire(RankEvent.EXITED)
        log.info("rank_exited", rank=self.rank, exit_code=exit_code, state=self.life.state.name)
        return exit_code
