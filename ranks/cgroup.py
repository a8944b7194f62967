"""What the control groups of this process leave it: bytes of memory, cores.

Laws: a limit of any group on the way up to the root holds, so the smallest counts. Pages
of files that the kernel can drop at once (`inactive_file`) count as free.

Both versions are read: of version 2 all lies in one tree; of version 1 each controller
has a tree of its own. In a container the path that the kernel names may lie outside of
what is mounted; the mounted root is then the group itself, so the root is always read.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def memory_left(membership: str, mounts: Path) -> int | None:
    """Bytes that the groups of a process can still take, None without a limit.

    Args:
        membership: What /proc/self/cgroup says.
        mounts: Where control groups are mounted, usually /sys/fs/cgroup.
    """
    left = [
        _left_in(folder, limit="memory.max", usage="memory.current", droppable="inactive_file")
        for folder in _folders_v2(membership, mounts)
    ]
    left += [
        _left_in(
            folder,
            limit="memory.limit_in_bytes",
            usage="memory.usage_in_bytes",
            droppable="total_inactive_file",
        )
        for folder in _folders_v1(membership, mounts, "memory")
    ]
    return min((one for one in left if one is not None), default=None)


def core_quota(membership: str, mounts: Path) -> float | None:
    """Cores' worth of time that the groups of a process may take, None without a limit.

    Takes the arguments of `memory_left`.
    """
    pairs = [
        _text(folder / "cpu.max").partition(" ")[::2] for folder in _folders_v2(membership, mounts)
    ]
    pairs += [
        (_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))
        for folder in _folders_v1(membership, mounts, "cpu")
    ]
    quotas = (_share(quota, period) for quota, period in pairs)
    return min((one for one in quotas if one is not None), default=None)


def _left_in(folder: Path, *, limit: str, usage: str, droppable: str) -> int | None:
    maximum, used = _number(_text(folder / limit)), _number(_text(folder / usage))
    if maximum is None or used is None:
        return None
    statistics = dict(
        line.split(" ", 1) for line in _text(folder / "memory.stat").splitlines() if " " in line
    )
    dropped = _number(statistics.get(droppable, "")) or 0
    return max(0, maximum - max(0, used - dropped))


def _share(quota: str, period: str) -> float | None:
    total, length = _number(quota), _number(period)
    return total / length if total and length else None


def _folders_v2(membership: str, mounts: Path) -> Iterator[Path]:
    for controllers, path in _memberships(membership):
        if controllers == [""]:
            # Beside version 1, version 2 has a folder of its own.
            root = mounts / "unified"
            yield from _up_to_root(root if root.is_dir() else mounts, path)


def _folders_v1(membership: str, mounts: Path, controller: str) -> Iterator[Path]:
    for controllers, path in _memberships(membership):
        if controller in controllers:
            for name in (controller, ",".join(controllers)):
                if (mounts / name).is_dir():
                    yield from _up_to_root(mounts / name, path)
                    break


def _memberships(text: str) -> Iterator[tuple[list[str], str]]:
    """The controllers and the path of each line `number:controllers:path`."""
    for line in text.splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3:  # noqa: PLR2004 (as in the docstring)
            yield fields[1].split(","), fields[2]


def _up_to_root(root: Path, path: str) -> Iterator[Path]:
    inner = PurePosixPath(path.lstrip("/"))
    if ".." not in inner.parts:  # a group outside of this namespace cannot be reached
        for one in (inner, *inner.parents):
            if one != PurePosixPath():
                yield root / one
    yield root


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # no such group here, or no such controller in it
        return ""


def _number(text: str) -> int | None:
    """A count; None where there is no limit: `max`, -1, or nothing at all."""
    return int(text) if text.isdigit() else None
