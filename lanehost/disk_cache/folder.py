"""The folder of a master that runs: owned by it alone, and read and written beside its loop.

The lock is the system's (flock), and ends with the process. Its file has a number that rises with
each owner: a master whose number is not there any more writes nothing, whatever became of its lock,
and once it has found that out its ranks are asked for nothing. Until then they may have written one
file of an entry, whole, as they would for any owner.

Laws: one owner at a time; nobody waits for a disk in the event loop; works are done in the order
in which they came, and each has its outcome; a disk that hangs holds up the end of the server for
a bounded time.
"""

import asyncio
import fcntl
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

import structlog

from lanehost.disk_cache.interface import FileReason
from lanehost.disk_cache.manifests import (
    Found,
    empty_aside,
    find_manifests,
    reason_of,
    remove_manifest,
    sweep_manifests,
    write_manifest,
)
from lanehost.disk_cache.regular_file import open_regular, read_regular
from lanehost.disk_cache.shelf import (
    EmptyAside,
    RemoveManifest,
    ShelfOutcome,
    ShelfWork,
    WriteManifest,
)
from lanehost.errors import StartupFailed
from lanehost.fault import record_fault

log = structlog.get_logger()

# At the end a disk is waited for no longer.
CLOSE_TIMEOUT_S = 5.0
_LOCK = "lock"
_MAX_LOCK_BYTES = 32


class Folder:
    """Implements `lanehost.disk_cache.shelf.Shelf`."""

    def __init__(self, path: Path, found: Found, *, number: int) -> None:
        """Begin; `own_folder` makes one.

        Args:
            path: The folder.
            found: What was in it.
            number: Of this owner.
        """
        self.path = path
        self.found = found
        self._number = number
        self._works: SimpleQueue[tuple[ShelfWork, asyncio.AbstractEventLoop] | None] = SimpleQueue()
        # A daemon: no disk keeps the process from its end.
        self._thread = threading.Thread(target=self._run, name="disk-cache", daemon=True)
        self._thread.start()
        self._on_outcome: Callable[[ShelfOutcome], None] | None = None

    def __repr__(self) -> str:
        return f"<Folder {self.path} owner {self._number}>"

    @property
    def number(self) -> int:
        """How many have owned the folder, this one included."""
        return self._number

    def tell(self, on_outcome: Callable[[ShelfOutcome], None]) -> None:
        """Have every outcome told, on the loop that `start` is called from."""
        self._on_outcome = on_outcome

    def start(self, work: ShelfWork) -> None:
        """Take a work; returns at once."""
        loop = asyncio.get_running_loop()
        self._works.put((work, loop))

    def close(self) -> bool:
        """Do what was asked for, and end; says whether that is done by now.

        Blocks, for `CLOSE_TIMEOUT_S` at most: not for the event loop.
        """
        self._works.put(None)
        self._thread.join(CLOSE_TIMEOUT_S)
        is_closed = not self._thread.is_alive()
        if not is_closed:
            message = f"the disk has not answered for {CLOSE_TIMEOUT_S:g} s"
            reason = FileReason.IO.value
            log.warning("disk_cache_fault", work="close", reason=reason, message=message)
        return is_closed

    def _run(self) -> None:
        while (asked := self._works.get()) is not None:
            work, loop = asked
            outcome = self._do(work)
            # A loop that is closed is one whose server has ended.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._tell, outcome)

    def _tell(self, outcome: ShelfOutcome) -> None:
        if self._on_outcome is not None:
            self._on_outcome(outcome)

    def _do(self, work: ShelfWork) -> ShelfOutcome:
        try:
            if _read_number(self.path) != self._number:
                return ShelfOutcome(
                    order_id=work.order_id,
                    reason=FileReason.GONE,
                    message=f"{self.path} is not this server's any more",
                    is_disowned=True,
                )
            match work:
                case WriteManifest(manifest=manifest):
                    write_manifest(self.path, manifest)
                case RemoveManifest(name=name):
                    remove_manifest(self.path, name)
                case EmptyAside():
                    empty_aside(self.path)
        except OSError as err:
            return ShelfOutcome(
                order_id=work.order_id, reason=reason_of(err), message=str(err.strerror)
            )
        except Exception as bug:  # noqa: BLE001 - the border of this thread: logged, and answered
            fault = record_fault(bug)
            return ShelfOutcome(
                order_id=work.order_id, reason=FileReason.IO, message=f"a bug: {fault.record_id}"
            )
        return ShelfOutcome(order_id=work.order_id)


@contextmanager
def own_folder(path: Path) -> Iterator[Folder]:
    """Own a folder, made if it is not there, as long as the context lasts. Blocks.

    Raises:
        StartupFailed: it is another server's or user's, others may write in it, or it cannot be
            made, read or written.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(path)
        handle = open_regular(path / _LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as err:
        raise StartupFailed(f"--disk-cache: cannot use {path}: {err.strerror}") from err
    try:
        number = _take_lock(path, handle)
        found = find_manifests(path)
        sweep_manifests(path, found)
    except OSError as err:
        os.close(handle)
        raise StartupFailed(f"--disk-cache: cannot use {path}: {err.strerror}") from err
    except StartupFailed:
        os.close(handle)
        raise
    _tell(path, found)
    folder = Folder(path, found, number=number)
    try:
        yield folder
    finally:
        # What the disk still has in hand is this server's: its lock ends with the process then.
        if folder.close():
            os.close(handle)


@asynccontextmanager
async def owning_folder(path: Path) -> AsyncIterator[Folder]:
    """Own a folder beside the event loop, see `own_folder`.

    Raises:
        StartupFailed: As there.
    """
    owned = own_folder(path)
    folder = await asyncio.to_thread(owned.__enter__)
    try:
        yield folder
    finally:
        await asyncio.to_thread(owned.__exit__, None, None, None)


def _check_owner(path: Path) -> None:
    """See that nobody but this user, and who is above all users, can put files there."""
    found = path.stat()
    if found.st_uid != os.geteuid():
        raise StartupFailed(f"--disk-cache: {path} is another user's; prompts are kept in it")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StartupFailed(f"--disk-cache: others may write in {path}; chmod go-w it")


def _take_lock(path: Path, handle: int) -> int:
    """Lock the folder for this process; returns the number of this owner."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StartupFailed(
            f"--disk-cache: another server uses {path}; give each its own folder, or let that "
            "server do it (lanehost cache --server), or stop it"
        ) from None
    number = _read_number(path) + 1
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{number}\n".encode(), 0)
    os.fsync(handle)
    return number


def _read_number(path: Path) -> int:
    """Return the number of the last owner, 0 where nothing of ours is.

    Raises:
        OSError: the lock's file is not there, or cannot be read.
    """
    content = read_regular(path / _LOCK, _MAX_LOCK_BYTES).strip()
    return int(content) if content.isdigit() else 0


def _tell(path: Path, found: Found) -> None:
    log.info(
        "disk_cache_opened",
        path=str(path),
        num_entries=len(found.manifests),
        num_bytes=sum(manifest.num_bytes for manifest in found.manifests),
    )
    if found.broken:
        log.warning("disk_cache_swept", path=str(path), **found.misses)
