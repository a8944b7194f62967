"""What this machine can give a rank: a device, threads, bytes for the KV pool."""

import os
from pathlib import Path

import torch

from ranks.cgroup import core_quota, memory_left
from ranks.errors import BadDevice

_MEMINFO = Path("/proc/meminfo")
_MEMBERSHIP = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")
_KIB = 1024


def choose_device(name: str, *, rank: int, world_size: int) -> torch.device:
    """Map `auto`, `cpu` or `cuda` to this rank's device: ranks on CUDA get one device each.

    Raises:
        BadDevice: There is no such device, or there are fewer than ranks.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise BadDevice(f"device is {name!r}, known are auto, cpu and cuda")
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    num_devices = torch.cuda.device_count()
    if num_devices < world_size:
        raise BadDevice(
            f"each rank needs a CUDA device of its own: --tp is {world_size}, "
            f"torch finds {num_devices}; --device cpu needs none"
        )
    return torch.device("cuda", rank)


def choose_num_threads(asked: int | None, *, world_size: int) -> int:
    """Threads for one rank: what was asked, or an equal part of the cores."""
    return asked or max(1, usable_cores() // world_size)


def usable_cores() -> int:
    """Cores that this process may use: of its affinity, and of its control groups' quota."""
    if hasattr(os, "sched_getaffinity"):
        num_cores = len(os.sched_getaffinity(0))
    else:
        num_cores = os.cpu_count() or 1
    quota = core_quota(_membership(), _CGROUPS)
    # Rounded down: a thread beyond the quota makes all of them wait for the next period.
    return num_cores if quota is None else max(1, min(num_cores, int(quota)))


def free_bytes(device: torch.device, *, world_size: int) -> int:
    """Bytes free for one rank: of its CUDA device, or its equal part of the host's memory."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return host_free_bytes() // world_size


def host_free_bytes() -> int:
    """Bytes that the host, and the control groups of this process, can still give.

    A host without /proc tells its physical memory only: half of it counts as free.
    """
    if not _MEMINFO.exists():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    available = available_bytes(_MEMINFO.read_text())
    left = memory_left(_membership(), _CGROUPS)
    return available if left is None else min(available, left)


def available_bytes(meminfo: str) -> int:
    """Bytes that the kernel calls available, in the text of /proc/meminfo."""
    fields = dict(line.split(":", 1) for line in meminfo.splitlines())
    return int(fields["MemAvailable"].split()[0]) * _KIB


def _membership() -> str:
    return _MEMBERSHIP.read_text() if _MEMBERSHIP.exists() else ""
