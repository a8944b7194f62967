"""One file of a journal: framed records, appended; room for those to come is made before.

    file = magic, format version (u16), frames (`lanehost.frames`)

Laws: records go to the system in one write, at the end of what was written whole; what a write
that failed left behind is cut off. The file may end in zeros: room that is not
used. It is for its owner alone, as it holds what was said.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lanehost.errors import StartupFailed
from lanehost.frames import FrameChanged, FrameReader, NotARecord, Proof, rest_is_zero
from lanehost.journal.records import MAX_RECORD_BYTES, Record, pack, unpack

# 2: accepted requests may have images. What 1 could say, 2 says in the same bytes.
FORMAT_VERSION = 2
_FIRST_FORMAT = 1
MAGIC = b"lanehost-journal"
START = MAGIC + struct.pack("<H", FORMAT_VERSION)
PROOF = Proof(b"journal\x01")
# Room is made in such parts, so that not every request asks the system for some.
_ROOM_BYTES = 256 * 1024


class Disk:
    """What a file asks of the system; all of it raises `OSError`."""

    def write(self, handle: int, content: bytes, at: int) -> int:
        """Write at a place, and say how many bytes."""
        return os.pwrite(handle, content, at)

    def make_room(self, handle: int, num_bytes: int) -> None:
        """Have so many bytes of the file on the disk, written or not."""
        os.posix_fallocate(handle, 0, num_bytes)

    def sync(self, handle: int) -> None:
        """Bring a file, or the names in a folder, to the disk."""
        os.fsync(handle)


class Segment:
    """A file that is written; nobody else writes it."""

    def __init__(self, path: Path, disk: Disk) -> None:
        """Make the file, which must not be there yet.

        Raises:
            OSError: it cannot be made.
        """
        self.path = path
        self._disk = disk
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._num_frames = 0
        self._num_room_bytes = 0
        self.num_bytes = 0
        try:
            self._write(START)
        except OSError:
            os.close(self._handle)
            path.unlink(missing_ok=True)
            raise

    def __repr__(self) -> str:
        return f"<Segment {self.path.name} {self.num_bytes} bytes>"

    def append(self, records: Iterable[Record]) -> None:
        """Write records behind all others, at once.

        Raises:
            OSError: they are not in the file.
            ValueError: one is too large.
        """
        frames = [
            PROOF.frame(self._num_frames + offset, pack(record))
            for offset, record in enumerate(records)
        ]
        self._write(b"".join(frames))
        self._num_frames += len(frames)

    def make_room(self, num_bytes: int) -> None:
        """See to it that so many bytes more can be written, whatever else fills the disk.

        Raises:
            OSError: they cannot.
        """
        wanted = self.num_bytes + num_bytes
        if wanted > self._num_room_bytes:
            wanted += -wanted % _ROOM_BYTES
            self._disk.make_room(self._handle, wanted)
            self._num_room_bytes = wanted

    def sync(self) -> None:
        """Bring all of it to the disk."""
        self._disk.sync(self._handle)

    def close(self) -> None:
        """Give the room back that was not used."""
        # Its number is given to whatever is opened next: nothing here may use it once more.
        handle, self._handle = self._handle, -1
        try:
            os.ftruncate(handle, self.num_bytes)
        finally:
            os.close(handle)

    def _write(self, content: bytes) -> None:
        written = 0
        try:
            while written < len(content):
                at = self.num_bytes + written
                written += self._disk.write(self._handle, content[written:], at)
        except OSError:
            # What did not get in whole is no part of the file; with it goes the room.
            with suppress(OSError):
                os.ftruncate(self._handle, self.num_bytes)
            self._num_room_bytes = 0
            raise
        self.num_bytes += len(content)


@dataclass(slots=True)
class Damage:
    """What of a file could not be read: how many records, the first one's fault, a torn tail.

    `is_cut` says that nothing behind a place could be read.
    """

    num_records: int = 0
    first: str = ""
    num_torn_bytes: int = 0
    is_cut: bool = False

    def note(self, what: str) -> None:
        """Count a record."""
        self.num_records += 1
        self.first = self.first or what


def read_segment(path: Path, damage: Damage) -> Iterator[Record]:
    """Yield the records of a file that are what was written, passing over those that are not.

    Args:
        path: The file.
        damage: Is told of what is passed over.

    Raises:
        StartupFailed: it is no journal, or of a later version, or cannot be read.
    """
    try:
        with path.open("rb") as source:
            yield from _read_open_file(path, source, damage)
    except OSError as err:
        raise StartupFailed(f"--journal: {path}: {err.strerror}") from err


def _read_open_file(path: Path, source: IO[bytes], damage: Damage) -> Iterator[Record]:
    start = source.read(len(START))
    if start != START and START.startswith(start.rstrip(b"\0")) and rest_is_zero(source):
        damage.num_torn_bytes = source.tell()
        return
    if not start.startswith(MAGIC):
        raise StartupFailed(f"--journal: {path} is no journal of lanehost")
    (version,) = struct.unpack("<H", start[len(MAGIC) :])
    if not _FIRST_FORMAT <= version <= FORMAT_VERSION:
        raise StartupFailed(
            f"--journal: {path} has format {version}, this lanehost reads {FORMAT_VERSION}"
        )
    frames = FrameReader(source, PROOF, max_payload_bytes=MAX_RECORD_BYTES)
    for payload in _payloads(frames, damage):
        try:
            yield unpack(payload)
        except NotARecord as err:
            damage.note(f"record {frames.number - 1} is none of ours: {err}")


def _payloads(frames: FrameReader, damage: Damage) -> Iterator[bytes]:
    # The last one that has changed, until something whole is found behind it.
    held: FrameChanged | None = None
    while held is None or held.can_go_on:
        try:
            payload = frames.next_payload()
        except FrameChanged as changed:
            if held is not None:
                damage.note(held.what)
            held = changed
            continue
        if payload is None:
            break
        if held is not None:
            damage.note(held.what)
            held = None
        yield payload
    damage.num_torn_bytes = frames.num_torn_bytes
    if held is not None:
        _note_last(held, damage)


def _note_last(changed: FrameChanged, damage: Damage) -> None:
    """Tell a tail that was torn off, with unused room behind it, from one that has changed."""
    is_torn = damage.num_torn_bytes > 0 if changed.can_go_on else changed.is_tail
    if is_torn:
        damage.num_torn_bytes = max(1, damage.num_torn_bytes)
    else:
        damage.note(changed.what)
        damage.is_cut = not changed.can_go_on
