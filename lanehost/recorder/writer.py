"""Writes a trail on a thread of its own, so that nobody waits for the disk.

Laws: `put` returns at once and never raises; what waits to be written is bounded. When
the disk fails, or cannot keep up, the recording stops, with a line in the log and a last
`Cut` where that can still be written; whoever calls goes on as before.

How safe a record is: it is handed to the system within moments, so it outlives the
master however that ends; it is on the disk (fsync) within `SYNC_INTERVAL_S`, at the end
of each file and at the end of the run, so a power cut takes the last second.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

import structlog

from lanehost.errors import StartupFailed
from lanehost.fault import record_fault
from lanehost.recorder.records import Closed, Cut, Header, Note, Record
from lanehost.recorder.trail import START, frame, trail_name

log = structlog.get_logger()

SYNC_INTERVAL_S = 1.0
MAX_FILE_BYTES = 64 * 1024 * 1024
# Waiting to be written: some seconds of a busy server, and at most tens of MiB.
MAX_PENDING_WEIGHT = 4_000_000
_CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterLimits:
    """How large a file may grow, and how much may wait (in token ids, about)."""

    max_file_bytes: int = MAX_FILE_BYTES
    max_pending_weight: int = MAX_PENDING_WEIGHT


def prepare_folder(folder: Path) -> None:
    """Make the folder if it is not there, for its owner alone.

    Raises:
        StartupFailed: nothing can be written there.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as err:
        raise StartupFailed(f"--record {folder} cannot be made: {err.strerror}") from err
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StartupFailed(f"--record {folder} cannot be written to")


class TrailWriter:
    """One run's files, and the thread that writes them."""

    def __init__(
        self,
        folder: Path,
        header: Header,
        *,
        transform: Callable[[Note], Note],
        limits: WriterLimits,
        clock_ns: Callable[[], int],
    ) -> None:
        """Open nothing yet.

        Args:
            folder: Where the files go.
            header: That of the first file.
            transform: Runs on the thread, over each note before it is written.
            limits: When to begin another file, and when to give up.
            clock_ns: Nanoseconds that only rise; of the notes that the writer itself makes.
        """
        self._folder = folder
        self._header = header
        self._transform = transform
        self._limits = limits
        self._clock_ns = clock_ns
        self._notes: SimpleQueue[tuple[Note, int]] = SimpleQueue()
        # Each is written by one side alone: their difference needs no lock.
        self._weight_put = 0
        self._weight_taken = 0
        self._refusal: str | None = None
        self._is_ended = threading.Event()
        self._file: IO[bytes] | None = None
        self._num_frames = 0
        self._num_file_bytes = 0
        self._is_dirty = False
        self._thread = threading.Thread(target=self._run, name="trail-writer", daemon=True)

    def __repr__(self) -> str:
        state = "ended" if self._is_ended.is_set() else "writing"
        return f"<TrailWriter {self._header.run_id} file {self._header.file_number} {state}>"

    @property
    def path(self) -> Path:
        """The file that is written now."""
        return self._folder / trail_name(self._header.run_id, self._header.file_number)

    @property
    def is_recording(self) -> bool:
        """Whether notes are still taken."""
        return self._refusal is None and not self._is_ended.is_set()

    def start(self) -> None:
        """Write the header of the first file and begin.

        Raises:
            StartupFailed: the file cannot be written.
        """
        try:
            self._open()
        except OSError as err:
            raise StartupFailed(f"--record: {self.path}: {err.strerror}") from err
        self._thread.start()

    def put(self, note: Note, *, weight: int) -> None:
        """Take a note; returns at once, whatever the disk does.

        Args:
            note: What to write.
            weight: About how many numbers it holds.
        """
        if not self.is_recording:
            return
        pending = self._weight_put - self._weight_taken
        if pending + weight > self._limits.max_pending_weight:
            self.stop(
                f"the disk cannot keep up: {pending} numbers wait, one more note has {weight}"
            )
            return
        self._weight_put += weight
        self._notes.put((note, weight))

    def stop(self, reason: str) -> None:
        """Take no more notes; write what waits, and then why it stopped."""
        if self.is_recording:
            self._refusal = reason
            self._notes.put((Cut(at_ns=self._clock_ns(), reason=reason), 0))

    def close(self) -> None:
        """End the trail in order; waits for the disk, for a bounded time."""
        if self.is_recording:
            self._refusal = "closed"
            self._notes.put((Closed(at_ns=self._clock_ns()), 0))
        self._thread.join(_CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            log.error("recording_stopped", reason="the disk did not take the last records")

    def _run(self) -> None:
        try:
            self._write_all()
        except OSError as err:
            self._give_up(f"{type(err).__name__}: {err.strerror}")
        except Exception as bug:  # noqa: BLE001 - the thread's border: a bug here harms no reply
            self._give_up(f"internal error, record {record_fault(bug).record_id}")
        finally:
            self._is_ended.set()

    def _write_all(self) -> None:
        note: Note | None = None
        while not isinstance(note, Cut | Closed):
            try:
                note, weight = self._notes.get(timeout=SYNC_INTERVAL_S if self._is_dirty else None)
            except Empty:
                self._sync()
                continue
            self._write(self._transform(note))
            self._weight_taken += weight
        self._close_file()
        if isinstance(note, Cut):
            log.error("recording_stopped", reason=note.reason)

    def _write(self, record: Record) -> None:
        framed = frame(self._num_frames, record)
        if (
            self._num_frames > 1
            and self._num_file_bytes + len(framed) > self._limits.max_file_bytes
        ):
            self._close_file()
            self._header = replace(self._header, file_number=self._header.file_number + 1)
            self._open()
            framed = frame(self._num_frames, record)
        self._append(framed)

    def _open(self) -> None:
        # Never an existing file; and for its owner alone, as it holds what was said.
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(handle, "wb", buffering=0)
        self._num_frames = 0
        self._num_file_bytes = 0
        self._append(START + frame(0, self._header))

    def _append(self, content: bytes) -> None:
        assert self._file is not None
        written = 0
        while written < len(content):
            written += self._file.write(content[written:])
        self._num_frames += 1
        self._num_file_bytes += len(content)
        self._is_dirty = True

    def _sync(self) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._is_dirty = False

    def _close_file(self) -> None:
        assert self._file is not None
        self._sync()
        self._file.close()

    def _give_up(self, reason: str) -> None:
        """Log why, and try to end the file with a whole record that says so."""
        self._is_ended.set()
        log.error("recording_stopped", reason=reason)
        if self._file is None or self._file.closed:
            return
        with suppress(OSError):
            self._file.truncate(self._num_file_bytes)
            self._file.seek(self._num_file_bytes)
            self._append(frame(self._num_frames, Cut(at_ns=self._clock_ns(), reason=reason)))
        with suppress(OSError):
            # What did not get in whole is no part of the trail.
            self._file.truncate(self._num_file_bytes)
            self._file.close()
