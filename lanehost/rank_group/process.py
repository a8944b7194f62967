"""One rank process of this host: started, watched from then on, and ended.

A spare is started before anybody knows which rank it is; it becomes one by a line that it reads.

Laws: what ends a process is in one place: TERM, wait, KILL, wait. A process that was
started is always waited for. Its death pipe is open for as long as the master wants it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, Self

import structlog

from lanehost.rank_group.liveness import ProcessSight

log = structlog.get_logger()

# What a killed process may take until the kernel has freed its memory.
KILL_TIMEOUT_S = 10.0
_STDERR_FD = 2
# In /proc/PID/stat behind the name: the state, and what it used of the processor.
_STATE, _USER_TICKS, _SYSTEM_TICKS = 0, 11, 12


class Process(Protocol):
    """The process of a rank, of this host or of another."""

    @property
    def pid(self) -> int:
        """Its process id, on its host."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs, or where nobody knows."""
        ...

    @property
    def end(self) -> str:
        """How it ended, for people."""
        ...

    def see(self) -> ProcessSight | None:
        """Look at it from outside; None when there is nothing to see."""
        ...

    def on_exit(self, callback: Callable[[], None]) -> None:
        """Call back from the event loop once the process has ended."""
        ...

    async def ended(self) -> str:
        """Wait for the end; says how it was."""
        ...

    async def stop(self, *, timeout_s: float) -> bool:
        """End it in order, or after `timeout_s` at once; says whether it is gone."""
        ...

    async def kill(self) -> bool:
        """End it at once; says whether it is gone."""
        ...


class RankProcess:
    """Implements `Process`: `spawn` makes it, `stop` or `kill` ends it.

    `rank` is None for as long as it is a spare.
    """

    def __init__(
        self, *, rank: int | None, process: asyncio.subprocess.Process, death_pipe: int
    ) -> None:
        """Take a started process and the write end of its death pipe; use `spawn`."""
        self.rank = rank
        self._process = process
        self._death_pipe: int | None = death_pipe
        self._watcher = asyncio.create_task(self._watch(), name=f"watch rank {rank}")

    def __repr__(self) -> str:
        """Show rank, pid and how it ended."""
        return f"<RankProcess {self.rank} pid {self.pid} exit code {self.exit_code}>"

    @classmethod
    async def spawn(
        cls, *, rank: int | None, command: tuple[str, ...], environment: Mapping[str, str]
    ) -> Self:
        """Start `command`, with `--death-fd` appended, in a session of its own.

        Without a `rank` it is a spare, and `become` must follow.

        Raises:
            OSError: The command cannot be started.
        """
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                "--death-fd",
                str(read_end),
                stdin=asyncio.subprocess.PIPE if rank is None else asyncio.subprocess.DEVNULL,
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
        if rank is None:
            log.info("spare_spawned", pid=process.pid)
        else:
            log.info("rank_spawned", rank=rank, pid=process.pid, was_spare=False)
        return cls(rank=rank, process=process, death_pipe=write_end)

    def become(self, rank: int, orders: bytes) -> None:
        """Tell a spare which rank it is; one that has ended is told in vain, and `on_exit` says so.

        Args:
            rank: What it is from now on.
            orders: The line that it reads.
        """
        assert self.rank is None, f"{self!r} is no spare"
        assert self._process.stdin is not None
        self.rank = rank
        self._process.stdin.write(orders)
        self._process.stdin.close()
        log.info("rank_spawned", rank=rank, pid=self.pid, was_spare=True)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    def see(self) -> ProcessSight | None:
        """Look at it from outside; None when there is nothing to see any more."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        # The name may hold anything, a bracket too.
        fields = stat.rpartition(")")[2].split()
        return ProcessSight(
            is_stopped=fields[_STATE] in "Tt",
            cpu_ticks=int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS]),
        )

    def on_exit(self, callback: Callable[[], None]) -> None:
        """Call back from the event loop once the process has ended."""
        self._watcher.add_done_callback(lambda _: callback())

    @property
    def end(self) -> str:
        """How it ended, for people."""
        code = self.exit_code
        return "its process still runs" if code is None else f"exit code {code}"

    async def ended(self) -> str:
        """Wait for the end; says how it was."""
        await self.exited()
        return self.end

    async def exited(self) -> int:
        """Wait for the end; returns the exit code, negative for a signal."""
        return await asyncio.shield(self._watcher)

    async def stop(self, *, timeout_s: float) -> bool:
        """TERM, wait `timeout_s`, KILL, wait; says whether the process is gone."""
        return await self._end((signal.SIGTERM, timeout_s), (signal.SIGKILL, KILL_TIMEOUT_S))

    async def kill(self) -> bool:
        """KILL, wait; says whether the process is gone."""
        return await self._end((signal.SIGKILL, KILL_TIMEOUT_S))

    async def _end(self, *steps: tuple[signal.Signals, float]) -> bool:
        try:
            return await self._signal(steps)
        finally:
            self._close_death_pipe()

    async def _signal(self, steps: tuple[tuple[signal.Signals, float], ...]) -> bool:
        for number, wait_s in steps:
            if self._watcher.done():
                return True
            # It may end between the look and the signal. `send_signal` of asyncio would look by
            # itself, and take the exit code from who waits for it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            done, _ = await asyncio.wait({self._watcher}, timeout=wait_s)
            if done:
                return True
            log.warning("rank_ignores_signal", rank=self.rank, signal=number.name, waited_s=wait_s)
        return False

    def _close_death_pipe(self) -> None:
        if self._death_pipe is not None:
            os.close(self._death_pipe)
            self._death_pipe = None

    async def _watch(self) -> int:
        exit_code = await self._process.wait()
        # Nobody ends a process that has ended by itself, and the pipe would stay.
        self._close_death_pipe()
        if self.rank is None:
            log.info("spare_exited", pid=self.pid, exit_code=exit_code)
        else:
            log.info("rank_exited", rank=self.rank, exit_code=exit_code)
        return exit_code
