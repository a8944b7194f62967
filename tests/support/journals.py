"""Journals for tests: their settings, jobs and records, and disks that fill or fail."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lanehost.job import Finished, FinishReason, StopParams, Timing, Usage
from lanehost.journal.journal import Journal
from lanehost.journal.records import Accepted, Drawn, Ended, Header, JournalModel
from lanehost.journal.recovery import recover
from lanehost.journal.segment import Disk
from lanehost.settings import JournalSettings
from tests.support.jobs import make_job

MODEL = JournalModel(
    weights_digest="w1",
    config_digest="c1",
    text_digest="t1",
    weights="float32",
    dtype="float32",
    device="cpu",
    vocab_size=251,
    eos_token_ids=(2,),
)
HEADER = Header(build="0.0.0", model=MODEL)


def finished(num_tokens: int, **values: Any) -> Finished:
    usage = Usage(prompt_tokens=3, cached_tokens=0, completion_tokens=num_tokens)
    timing = Timing(queue_s=0.0, prefill_s=0.5, decode_s=1.0)
    fields = {"reason": FinishReason.LENGTH, "matched": None, "usage": usage, "timing": timing}
    return Finished(**(fields | values))


def accepted(number: int = 1, **values: Any) -> Accepted:
    job = make_job(job_id=f"job-{number}", max_tokens=64)
    fields = {
        "number": number,
        "job_id": job.job_id,
        "scope": "",
        "label": "",
        "priority": job.priority,
        "prompt_ids": job.prompt_ids,
        "marks": (),
        "max_tokens": job.max_tokens,
        "draw": job.draw,
        "stop": StopParams(),
    }
    return Accepted(**(fields | values))


def drawn(number: int, index: int, *token_ids: int) -> Drawn:
    return Drawn(runs=((number, index, token_ids),))


def ended(number: int, num_tokens: int, *, at_s: float = 0.0) -> Ended:
    return Ended(number=number, at_s=at_s, finished=finished(num_tokens))


class Wall:
    """A clock of the world that moves only when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class UnsyncedDisk(Disk):
    """No test pulls the plug: what the kernel has is safe."""

    def sync(self, handle: int) -> None:
        """Wait for no disk."""


class SmallDisk(UnsyncedDisk):
    """A disk with so many bytes left for files; room that was made is there to be written."""

    def __init__(self, num_bytes: int) -> None:
        self.num_left = num_bytes
        self.is_broken = False
        self._taken: dict[int, int] = {}

    def write(self, handle: int, content: bytes, at: int) -> int:
        self._take(handle, at + len(content))
        return super().write(handle, content, at)

    def make_room(self, handle: int, num_bytes: int) -> None:
        self._take(handle, num_bytes)
        super().make_room(handle, num_bytes)

    def _take(self, handle: int, num_bytes: int) -> None:
        if self.is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        inode = os.fstat(handle).st_ino
        more = max(0, num_bytes - self._taken.get(inode, 0))
        if more > self.num_left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.num_left -= more
        self._taken[inode] = max(num_bytes, self._taken.get(inode, 0))


def open_journal(
    folder: Path,
    *,
    max_mib: int = 64,
    model: JournalModel = MODEL,
    wall: Callable[[], float] | None = None,
    disk: Disk | None = None,
) -> Journal:
    """What `journaling` does, without the lock, as a journal that nobody will close."""
    settings = JournalSettings(folder=folder, max_mib=max_mib)
    recovered = recover(folder, model, max_file_bytes=settings.max_file_bytes)
    return Journal(
        settings,
        replace(HEADER, model=model),
        recovered=recovered,
        wall_clock=wall or Wall(),
        disk=disk or UnsyncedDisk(),
    )


def tokens_on_disk(folder: Path) -> dict[str, list[int]]:
    """Return what a master that begins now would find, by job."""
    streams = recover(folder, MODEL, max_file_bytes=1 << 40).streams
    return {one.accepted.job_id: one.token_ids for one in (*streams.open, *streams.kept)}
