"""The journal of a master that runs: appends what was accepted and drawn, and keeps it bounded.

    accept   one record, and room on the disk for all that the reply can ever append
    append   one record a step, for all streams of it
    end      one record, with the next write
    compact  a new file of what is still known; the old one goes once the new one is on the disk

How safe a record is: it is with the system when the client is told, so it outlives the master
however that ends. Only a new file is brought to the disk (fsync): a power cut may take what was
written since.

Laws: a token is appended before it is sent (ADR 21); an accepted request has its room, so a disk
that is full refuses new ones and disturbs no other; files take no more than their bound. When a
write fails all the same replies go on, new requests are refused, and the first for which all that
is known can be written anew is taken again.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from lanehost.errors import (
    Draining,
    NotJournaled,
    RankGroupLost,
    StartupFailed,
)
from lanehost.job import Failed, Finished, Job, StopParams
from lanehost.journal.records import (
    MAX_RECORD_BYTES,
    Closed,
    Drawn,
    Ended,
    Header,
    JournalModel,
    Ready,
)
from lanehost.journal.recovery import Recovered, recover, segment_path
from lanehost.journal.room import (
    TOKEN_ROOM_BYTES,
    accepted_of,
    record_room_of,
    reply_room_of,
    room_left_of,
)
from lanehost.journal.segment import Disk, Segment
from lanehost.journal.streams import KnownStream, Streams
from lanehost.settings import JournalSettings

log = structlog.get_logger()

# A file is not written anew before so much stands behind what it began with.
LEAST_COMPACT_BYTES = 4 * 1024 * 1024
_RETRY_AFTER_S = 1.0
# Told to those who are here when the server ends, of whom a restarted one goes on.
_NOT_OF_THE_REPLY = (Draining, RankGroupLost)


class Journal:
    """Implements `lanehost.journal.interface.StreamJournal`; owned by the event loop."""

    def __init__(
        self,
        settings: JournalSettings,
        header: Header,
        *,
        recovered: Recovered,
        wall_clock: Callable[[], float],
        disk: Disk | None = None,
    ) -> None:
        """Begin a file with what was recovered.

        Args:
            settings: Where, and how large.
            header: Of every file.
            recovered: What an earlier master left.
            wall_clock: Seconds of the world's time.
            disk: What files ask of the system.

        Raises:
            StartupFailed: nothing can be written.
        """
        self._settings = settings
        self._header = header
        self._wall_clock = wall_clock
        self._disk = disk or Disk()
        self._streams = recovered.streams
        self._next_number = self._streams.max_number + 1
        self._file_number = recovered.last_number
        self._old_paths = recovered.paths
        self._ends: list[Ended] = []
        self._room_bytes = 0
        self._segment: Segment | None = None
        self._num_begun_bytes = 0
        self._compact_at = 0
        self._is_failing = False
        self._is_full = False
        self.num_damaged_records = recovered.damage.num_records
        self.num_recovered = recovered.streams.num_open
        self.num_given_up = 0
        for stream in self._streams.open:
            stream.num_recoveries += not recovered.streams.is_closed
            self._room_bytes += room_left_of(stream)
        self._streams.forget_old(wall_clock())
        try:
            self._begin_file()
        except (OSError, ValueError) as err:
            raise StartupFailed(f"--journal {settings.folder} cannot be written: {err}") from err

    def __repr__(self) -> str:
        return f"<Journal {self._segment!r} {self._streams!r} failing={self._is_failing}>"

    @property
    def streams(self) -> Streams:
        """What is known, to look at."""
        return self._streams

    @property
    def num_bytes(self) -> int:
        """Bytes of the file, and of the room that open replies may still take."""
        written = 0 if self._segment is None else self._segment.num_bytes
        return written + self._room_bytes

    @property
    def is_failing(self) -> bool:
        """Whether the last write failed."""
        return self._is_failing

    def accept(self, job: Job, stop: StopParams) -> None:
        """Append an accepted job with its room; see `StreamJournal`."""
        accepted = accepted_of(job, stop, self._next_number)
        room_bytes = reply_room_of(job, stop)
        num_bytes = record_room_of(job, stop)
        if num_bytes > MAX_RECORD_BYTES:
            raise self._refusal(f"{num_bytes} bytes in one record, limit {MAX_RECORD_BYTES}")
        if self._is_failing and not self._compact():
            raise self._refusal("the journal cannot be written")
        if not self._fits(num_bytes + room_bytes):
            raise self._refusal(
                f"{num_bytes + room_bytes} bytes for it, {self.num_bytes} of "
                f"{self._settings.max_file_bytes} are taken (--journal-mib)"
            )
        try:
            assert self._segment is not None
            self._segment.make_room(num_bytes + room_bytes + self._room_bytes)
            self._segment.append([accepted])
        except OSError as err:
            raise self._refusal(_words_of(err)) from err
        stream = self._streams.accept(accepted)
        assert stream is not None, f"{job.job_id} is known already"
        self._is_full = False
        self._next_number += 1
        self._room_bytes += room_bytes

    def append(self, drawn: Iterable[tuple[str, Sequence[int]]]) -> None:
        """Append new tokens in one write; see `StreamJournal`."""
        runs = []
        for job_id, token_ids in drawn:
            stream = self._streams.find(job_id)
            if stream is None or not token_ids:
                continue
            runs.append((stream.accepted.number, len(stream.token_ids), tuple(token_ids)))
            stream.token_ids.extend(token_ids)
            stream.num_recoveries = 0
            self._room_bytes -= len(token_ids) * TOKEN_ROOM_BYTES
        self._write([*self._take_ends(), *([Drawn(runs=tuple(runs))] if runs else [])])

    def end(self, job_id: str, event: Finished | Failed) -> None:
        """Note a reply's end, if it is its own; see `StreamJournal`."""
        stream = self._streams.find(job_id)
        if stream is None or (
            isinstance(event, Failed) and isinstance(event.error, _NOT_OF_THE_REPLY)
        ):
            return
        at_s = self._wall_clock()
        finished = event if isinstance(event, Finished) else None
        self._ends.append(Ended(number=stream.accepted.number, at_s=at_s, finished=finished))
        self._room_bytes -= room_left_of(stream)
        self._streams.end(job_id, event, at_s)

    def give_up(self, job_id: str, reason: str) -> None:
        """Forget an open reply of an earlier master that cannot go on."""
        stream = self._streams.find(job_id)
        assert stream is not None
        log.error(
            "stream_given_up",
            job_id=job_id,
            label=stream.accepted.label or None,
            num_tokens=len(stream.token_ids),
            reason=reason,
        )
        self.num_given_up += 1
        self._ends.append(Ended(number=stream.accepted.number, at_s=0.0, finished=None))
        self._room_bytes -= room_left_of(stream)
        self._streams.forget(job_id)

    def flush(self) -> None:
        """Append ends that were noted, and begin a new file when enough of this one is over."""
        if self._ends:
            self._write(self._take_ends())
        if self._segment is not None and self._segment.num_bytes >= self._compact_at:
            self._compact()

    def find(self, job_id: str) -> KnownStream | None:
        """Return what is known of a job; not of one that ended too long ago."""
        self._streams.forget_old(self._wall_clock())
        return self._streams.find(job_id)

    def close(self) -> None:
        """End the file in order; open replies stay in it."""
        self._write([*self._take_ends(), Closed()])
        if self._segment is not None:
            with suppress(OSError):
                self._segment.sync()
            with suppress(OSError):
                self._segment.close()
            self._segment = None

    def _take_ends(self) -> list[Ended]:
        ends, self._ends = self._ends, []
        return ends

    def _write(self, records: Sequence[Drawn | Ended | Closed]) -> None:
        """Write, or note that it fails: what is lost is still known, and written anew later."""
        if not records or self._segment is None or self._is_failing:
            return
        try:
            self._segment.append(records)
        except OSError as err:
            self._fail(err)

    def _fail(self, err: OSError) -> None:
        if not self._is_failing:
            log.error("journal_failed", reason=_words_of(err))
        self._is_failing = True

    def _refusal(self, reason: str) -> NotJournaled:
        if not self._is_full:
            log.warning("journal_full", reason=reason, num_bytes=self.num_bytes)
        self._is_full = True
        return NotJournaled(
            f"the request cannot be journaled: {reason}", retry_after_s=_RETRY_AFTER_S
        )

    def _fits(self, num_bytes: int) -> bool:
        """Say whether so much more may be taken; ended replies go first for it."""
        limit = self._settings.max_file_bytes
        if self.num_bytes + num_bytes <= limit:
            return True
        assert self._segment is not None
        is_worth_it = self._segment.num_bytes - self._num_begun_bytes >= limit // 8
        if not is_worth_it and not self._streams.num_kept:
            return False
        self._streams.forget_kept()
        return self._compact() and self.num_bytes + num_bytes <= limit

    def _compact(self) -> bool:
        """Begin a new file with what is known; says whether that could be done."""
        before = self._segment
        try:
            self._begin_file()
        except OSError as err:
            if before is not None:
                self._compact_at = before.num_bytes + LEAST_COMPACT_BYTES
            log.warning("journal_not_compacted", reason=_words_of(err))
            return False
        if self._is_failing:
            log.info("journal_written_again")
        self._is_failing = False
        assert self._segment is not None
        log.info(
            "journal_compacted",
            num_bytes=self._segment.num_bytes,
            before_bytes=None if before is None else before.num_bytes,
        )
        return True

    def _begin_file(self) -> None:
        """Write a new file, bring it to the disk, and let the old ones go."""
        self._file_number += 1
        path = segment_path(self._settings.folder, self._file_number)
        segment = Segment(path, self._disk)
        try:
            segment.append([self._header])
            for record in self._streams.records():
                segment.append([record])
            segment.append([Ready()])
            segment.make_room(self._room_bytes)
            segment.sync()
            self._sync_folder()
        except BaseException:
            segment.close()
            path.unlink(missing_ok=True)
            raise
        before, self._segment = self._segment, segment
        # All that they say stands in the file that was just begun.
        self._ends.clear()
        with suppress(OSError):
            if before is not None:
                before.close()
            for old in self._old_paths:
                old.unlink(missing_ok=True)
        self._old_paths = (path,)
        self._num_begun_bytes = segment.num_bytes
        self._compact_at = max(LEAST_COMPACT_BYTES, 2 * segment.num_bytes)

    def _sync_folder(self) -> None:
        handle = os.open(self._settings.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._disk.sync(handle)
        finally:
            os.close(handle)


def _words_of(err: OSError) -> str:
    return f"{type(err).__name__}: {err.strerror}"


@contextmanager
def journaling(
    settings: JournalSettings,
    build: str,
    model: JournalModel,
    *,
    wall_clock: Callable[[], float],
    disk: Disk | None = None,
) -> Iterator[Journal]:
    """Read what is there, go on with it, and end the journal in order.

    Args:
        settings: Where, and how large.
        build: The version of this program.
        model: What the replies are of.
        wall_clock: Seconds of the world's time.
        disk: What files ask of the system.

    Raises:
        StartupFailed: another server uses the folder; it cannot be used, or holds another model.
    """
    with _locked(settings.folder):
        recovered = recover(settings.folder, model, max_file_bytes=settings.max_file_bytes)
        header = Header(build=build, model=model)
        journal = Journal(settings, header, recovered=recovered, wall_clock=wall_clock, disk=disk)
        try:
            yield journal
        finally:
            journal.close()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Own the folder: the lock goes with this process, however it ends."""
    handle = _open_lock(folder)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StartupFailed(f"--journal {folder} is in use by another server") from None
        yield
    finally:
        os.close(handle)


def _open_lock(folder: Path) -> int:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as err:
        raise StartupFailed(f"--journal {folder} cannot be used: {err.strerror}") from err
