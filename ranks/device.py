"""What this machine can give a rank: a device, threads, bytes for the KV pool."""

import os
from pathlib import Path

import torch

from ranks.errors import BadDevice

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
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
        raise BadDevice(f"{world_size} ranks need as many CUDA devices, there are {num_devices}")
    return torch.device("cuda", rank)


def choose_num_threads(asked: int | None, *, world_size: int) -> int:
    """Threads for one rank: what was asked, or an equal part of the cores."""
    return asked or max(1, usable_cores() // world_size)


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_bytes(device: torch.device, *, world_size: int) -> int:
    """Bytes free for one rank: of its CUDA device, or its equal part of the host's memory."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return host_free_bytes(meminfo=_MEMINFO, cgroup=_CGROUP) // world_size


def host_free_bytes(*, meminfo: Path, cgroup: Path) -> int:
    """Bytes that the host, and the control group if it has a limit, can still give.

    A host without /proc tells its physical memory only: half of it counts as free.

    Args:
        meminfo: The kernel's table of memory, as /proc/meminfo.
        cgroup: The folder of the control group (version 2).
    """
    if not meminfo.exists():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * _KIB
    limit, used = cgroup / "memory.max", cgroup / "memory.current"
    if limit.exists() and used.exists() and (maximum := limit.read_text().strip()) != "max":
        available = min(available, max(0, int(maximum) - int(used.read_text())))
    return available
