"""What processes hold, as the kernel says: memory, descriptors, threads, shared memory (Linux)."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_SHARED = Path("/dev/shm")  # noqa: S108 - looked at, never written
_PPID = 1
# Not those that are gone: behind them the kernel writes so.
_MAPPED = re.compile(rf"{_SHARED}/(\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one process holds."""

    rss_bytes: int
    num_files: int
    num_threads: int
    shared_names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a server holds, each process by its role."""

    usages: dict[str, Usage]

    @property
    def shared_names(self) -> frozenset[str]:
        """Names in shared memory that one of its processes has mapped: nobody else's count."""
        return frozenset[str]().union(*(usage.shared_names for usage in self.usages.values()))


def usage_of(pid: int) -> Usage | None:
    """Look at a process; None when it is gone."""
    try:
        status = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
        num_files = len(os.listdir(_PROC / str(pid) / "fd"))  # noqa: PTH208 - names alone
        maps = (_PROC / str(pid) / "maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "VmRSS" not in fields:  # a zombie holds nothing
        return None
    return Usage(
        rss_bytes=int(fields["VmRSS"].split()[0]) * 1024,
        num_files=num_files,
        num_threads=int(fields["Threads"]),
        shared_names=frozenset(_MAPPED.findall(maps)),
    )


def holding_of(pids: dict[str, int]) -> Holding:
    """Look at processes, by role."""
    seen = {role: usage_of(pid) for role, pid in pids.items()}
    return Holding(usages={role: usage for role, usage in seen.items() if usage is not None})


def names_left(names: frozenset[str]) -> frozenset[str]:
    """Say which names in shared memory are still there."""
    return frozenset(name for name in names if (_SHARED / name).exists())


def parent_of(pid: int) -> int | None:
    """Say who started a process that still runs; None when it has ended."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[: _PPID + 1]
    return None if state == "Z" else int(parent)
