"""The file format of a trail: framed records, each proved by its checksum.

    file    = magic, format version (u16), frames (`lanehost.frames`)

Laws: what is read is what was written, up to the first byte that is not; a tail that was
torn off is an end, anything else that does not fit is a `TrailError`; no input crashes
the reader or makes it allocate more than a record's bound.

A run is one or more files, `<run id>.<number>.trail`; each begins with a header.

Format 2 is format 1 with plans that name what they follow, and with the version in the
checks; format 3 may hold several epochs. All are read.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from lanehost.frames import FrameChanged, FrameReader, NotARecord, Proof
from lanehost.recorder.records import (
    MAX_RECORD_BYTES,
    Header,
    Note,
    Record,
    StepSubmitted,
    pack,
    unpack,
)

FORMAT_VERSION = 4
_FIRST_FORMAT = 1
MAGIC = b"lanehost-trail"
START = MAGIC + struct.pack("<H", FORMAT_VERSION)
_FILE_NAME = re.compile(r"(?P<run>[\w-]+)\.(?P<number>\d{6})\.trail")


class TrailError(Exception):
    """A trail cannot be used; the message names the file and what is wrong."""


class ForeignFile(TrailError):
    """The file is no trail."""


class NewerTrail(TrailError):
    """A later version of lanehost wrote the trail."""


class DamagedTrail(TrailError):
    """Bytes of the trail have changed since they were written."""


class CannotReplay(TrailError):
    """The trail is whole, but this replay cannot be made of it."""


class IncompleteTrail(TrailError):
    """A file of the run is missing."""


def trail_name(run_id: str, file_number: int) -> str:
    """Return the name of a run's file."""
    return f"{run_id}.{file_number:06}.trail"


def frame(number: int, record: Record) -> bytes:
    """Return the bytes of a record as the frame with this number in its file.

    Raises:
        ValueError: the record is larger than a record may be.
    """
    payload = pack(record)
    if len(payload) > MAX_RECORD_BYTES:
        raise ValueError(f"a record has {len(payload)} bytes, limit {MAX_RECORD_BYTES}")
    return _proof(FORMAT_VERSION).frame(number, payload)


def _proof(version: int) -> Proof:
    return Proof(b"" if version == _FIRST_FORMAT else struct.pack("<H", version))


@dataclass(slots=True)
class Torn:
    """How many bytes at the end of a trail are no whole record."""

    num_bytes: int = 0


def read_file(path: Path, torn: Torn) -> Iterator[Record]:
    """Yield the records of one file, as far as they are whole.

    Args:
        path: The file.
        torn: Is told of a torn tail.

    Raises:
        TrailError: the file is no trail, of a later version, or damaged.
    """
    try:
        with path.open("rb") as source:
            yield from _read_open_file(path, source, torn)
    except OSError as err:
        raise ForeignFile(f"{path}: {err.strerror}") from err


def _read_open_file(path: Path, source: IO[bytes], torn: Torn) -> Iterator[Record]:
    start = source.read(len(START))
    if START.startswith(start) and len(start) < len(START):
        torn.num_bytes = len(start)
        return
    if not start.startswith(MAGIC):
        raise ForeignFile(f"{path} is no trail of lanehost")
    (version,) = struct.unpack("<H", start[len(MAGIC) :])
    if not _FIRST_FORMAT <= version <= FORMAT_VERSION:
        raise NewerTrail(f"{path} has format {version}, this lanehost reads {FORMAT_VERSION}")
    frames = FrameReader(source, _proof(version), max_payload_bytes=MAX_RECORD_BYTES)
    while (payload := _next_payload(path, frames)) is not None:
        try:
            record = unpack(payload)
        except NotARecord as err:
            number = frames.number - 1
            raise DamagedTrail(f"{path}: record {number} is none of ours: {err}") from None
        yield _of_first_format(record) if version == _FIRST_FORMAT else record
    torn.num_bytes = frames.num_torn_bytes


def _of_first_format(record: Record) -> Record:
    """Say what a plan followed when no step could fail: the one before."""
    if not isinstance(record, StepSubmitted):
        return record
    return replace(record, plan=replace(record.plan, follows=max(record.plan.step_id - 1, 0)))


def _next_payload(path: Path, frames: FrameReader) -> bytes | None:
    try:
        return frames.next_payload()
    except FrameChanged as changed:
        raise DamagedTrail(f"{path}: {changed.what}") from None


class Trail:
    """One run, read file after file; iterating yields everything but the headers.

    Read once it has been iterated to the end: `torn` says what was torn off.
    """

    def __init__(self, path: Path) -> None:
        """Open the run that `path` is: its first file, or a folder that holds one run.

        Raises:
            TrailError: there is no such run, or its beginning is not there.
        """
        self.torn = Torn()
        self._paths = _files_of_run(path)
        first = next(read_file(self._paths[0], self.torn), None)
        self.header = _header(self._paths[0], first, file_number=1)

    def __repr__(self) -> str:
        return f"<Trail {self.header.run_id} {len(self._paths)} files>"

    def __iter__(self) -> Iterator[Note]:
        """Yield all notes of the run, in order.

        Raises:
            TrailError: a file is not what it should be; all before it was yielded.
        """
        self.torn.num_bytes = 0
        for file_number, path in enumerate(self._paths, start=1):
            if self.torn.num_bytes:
                raise DamagedTrail(f"{path} goes on, but the file before it was torn off")
            records = read_file(path, self.torn)
            header = next(records, None)
            if header is None and 1 < file_number == len(self._paths):
                return
            self._check_same_run(path, _header(path, header, file_number=file_number))
            for record in records:
                if isinstance(record, Header):
                    raise DamagedTrail(f"{path} has a second header")
                yield record

    @property
    def num_bytes(self) -> int:
        """Size of all files."""
        return sum(path.stat().st_size for path in self._paths)

    def _check_same_run(self, path: Path, header: Header) -> None:
        if header.run_id != self.header.run_id:
            raise ForeignFile(f"{path} is of run {header.run_id}, not {self.header.run_id}")


def _header(path: Path, record: Record | None, *, file_number: int) -> Header:
    if not isinstance(record, Header):
        raise DamagedTrail(f"{path} has no header")
    if record.file_number != file_number:
        raise IncompleteTrail(
            f"{path} is file {record.file_number} of its run, where file {file_number} should be"
        )
    return record


def _files_of_run(path: Path) -> list[Path]:
    """Return the files of the run, in order, the first one first."""
    if path.is_dir():
        path = _only_first_file(path)
    if not path.is_file():
        raise ForeignFile(f"{path} is no file and no folder")
    named = _FILE_NAME.fullmatch(path.name)
    if named is None:
        return [path]
    if int(named["number"]) != 1:
        first = trail_name(named["run"], 1)
        raise IncompleteTrail(f"{path.name} goes on from others: name the first one, {first}")
    rest = sorted(path.parent.glob(f"{named['run']}.*.trail"))
    return [one for one in rest if _FILE_NAME.fullmatch(one.name)]


def _only_first_file(folder: Path) -> Path:
    firsts = sorted(folder.glob(trail_name("*", 1)))
    if not firsts:
        raise ForeignFile(f"{folder} holds no trail")
    if len(firsts) > 1:
        names = ", ".join(path.name for path in firsts)
        raise ForeignFile(f"{folder} holds {len(firsts)} trails, name one: {names}")
    return firsts[0]
