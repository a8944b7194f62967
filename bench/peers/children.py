"""Run other programs: with a time limit, their peak memory noted, and gone afterwards.

Peak memory is the sum over the processes of a program of the most that each ever had in
memory (VmHWM), read a few times a second; what processes share counts in each.

Law: whatever is started here is ended here, by its id: TERM, a wait, KILL.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

Command = list[str | Path]
_LOOK_S = 0.25
_STOP_S = 10.0
_TOLD_CHARACTERS = 600


class ChildFailed(Exception):
    """A program did not do what was asked; the message says which and how it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a program wrote, and the most memory it had."""

    out: str
    err: str
    peak_bytes: int


@dataclass(slots=True)
class PeakMemory:
    """The most memory of each process of a program, as far as it was looked at."""

    pid: int
    _by_pid: dict[int, int] = field(default_factory=dict[int, int])

    def look(self) -> None:
        """Read what the processes have had up to now."""
        for pid in family(self.pid):
            peak = peak_bytes(pid)
            if peak is not None:
                self._by_pid[pid] = peak

    @property
    def total(self) -> int:
        """The sum of all."""
        return sum(self._by_pid.values())


@dataclass(slots=True, kw_only=True)
class Running:
    """A program that serves until its block ends."""

    name: str
    process: subprocess.Popen[bytes]
    memory: PeakMemory
    log: IO[bytes]

    def check(self) -> None:
        """See that it still runs.

        Raises:
            ChildFailed: It has ended.
        """
        code = self.process.poll()
        if code is not None:
            raise ChildFailed(f"{self.name} ended with {code}: {_tail(self.log)}")


def run(command: Command, *, limit_s: float, cwd: Path | None = None) -> Finished:
    """Run a program to its end.

    Raises:
        ChildFailed: It cannot start, failed, or took longer than `limit_s`.
    """
    name = Path(command[0]).name
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = _start(command, out, err, cwd)
        memory = PeakMemory(process.pid)
        try:
            code = _wait(process, memory, limit_s)
        finally:
            stop(process)
        if code is None:
            raise ChildFailed(f"{name} took longer than {limit_s:g} s")
        if code:
            raise ChildFailed(f"{name} ended with {code}: {_tail(err) or _tail(out)}")
        return Finished(out=_read(out), err=_read(err), peak_bytes=memory.total)


@contextmanager
def serving(command: Command, *, cwd: Path | None = None) -> Iterator[Running]:
    """Let a program run for as long as the block does; its output is kept for a failure.

    Raises:
        ChildFailed: It cannot start.
    """
    with tempfile.TemporaryFile() as log:
        process = _start(command, log, log, cwd)
        memory = PeakMemory(process.pid)
        try:
            name = Path(command[0]).name
            yield Running(name=name, process=process, memory=memory, log=log)
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process, and wait until it is gone."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def family(pid: int) -> list[int]:
    """Return a process and all that it started, as far as they still run."""
    found, unread = [pid], [pid]
    while unread:
        for path in Path(f"/proc/{unread.pop()}/task").glob("*/children"):
            try:
                children = [int(word) for word in path.read_text(encoding="ascii").split()]
            except OSError:
                continue  # it has ended meanwhile
            found += children
            unread += children
    return found


def peak_bytes(pid: int) -> int | None:
    """Return the most memory a process has had; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return int(lines["VmHWM"].split()[0]) * 1024 if "VmHWM" in lines else None


def _start(
    command: Command, out: IO[bytes], err: IO[bytes], cwd: Path | None
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - what the person who runs this named
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=cwd,
            start_new_session=True,  # Ctrl-C is for us, and we end it
        )
    except OSError as error:
        raise ChildFailed(f"{command[0]} cannot be started: {error}") from error


def _wait(process: subprocess.Popen[bytes], memory: PeakMemory, limit_s: float) -> int | None:
    """Wait for the end; None when the time is over."""
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        memory.look()
        try:
            return process.wait(min(_LOOK_S, limit_s))
        except subprocess.TimeoutExpired:
            continue
    return None


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _tail(file: IO[bytes]) -> str:
    return _read(file).strip()[-_TOLD_CHARACTERS:]
