"""Read what a master that is gone left in its journal.

A file is of use once it says `Ready`: until then all it holds stands in the file before it, too,
which goes only then. So a master may be killed while it begins a file, and nothing is lost.

Laws: the newest file of use is read, and no other; of its records those that have changed are
passed over, named and counted; a journal of another model is refused, with both values.
"""

import re
from dataclasses import dataclass, field, fields
from pathlib import Path

import structlog

from lanehost.errors import StartupFailed
from lanehost.journal.records import Header, JournalModel, Note
from lanehost.journal.segment import Damage, read_segment
from lanehost.journal.streams import Streams

log = structlog.get_logger()

# Room is made in parts, so a file may pass its bound by one.
_SLACK_BYTES = 1024 * 1024
_NAME = re.compile(r"(\d{6})\.journal")


def segment_path(folder: Path, number: int) -> Path:
    """Return where the file with this number is."""
    return folder / f"{number:06}.journal"


@dataclass(slots=True, kw_only=True)
class Recovered:
    """What was found: the streams, which files there are, and what of them was not to be read."""

    streams: Streams
    paths: tuple[Path, ...] = ()
    damage: Damage = field(default_factory=Damage)
    header: Header | None = None

    @property
    def last_number(self) -> int:
        """The number of the newest file; 0 when there is none."""
        return max((int(path.stem) for path in self.paths), default=0)


def recover(folder: Path, model: JournalModel, *, max_file_bytes: int) -> Recovered:
    """Read the newest file of use.

    Raises:
        StartupFailed: a file is none of ours, too large, or of another model.
    """
    paths = tuple(sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name)))
    best = Recovered(streams=Streams(), paths=paths)
    for path in reversed(paths):
        found = _read(path, paths, max_file_bytes)
        if found.streams.is_ready or best.header is None:
            best = found
        if found.streams.is_ready:
            break
    _check_model(best, model)
    _tell(best)
    return best


def _read(path: Path, paths: tuple[Path, ...], max_file_bytes: int) -> Recovered:
    num_bytes = path.stat().st_size
    if num_bytes > max_file_bytes + _SLACK_BYTES:
        raise StartupFailed(
            f"--journal: {path} has {num_bytes} bytes, limit {max_file_bytes} (--journal-mib)"
        )
    found = Recovered(streams=Streams(), paths=paths)
    for record in read_segment(path, found.damage):
        if found.header is None:
            found.header = _header(path, record)
        elif isinstance(record, Header):
            found.damage.note("a second header")
        else:
            found.streams.apply(record)
    if found.header is None and found.damage.num_records:
        raise StartupFailed(_no_header(path))
    return found


def _header(path: Path, record: Header | Note) -> Header:
    if not isinstance(record, Header):
        raise StartupFailed(_no_header(path))
    return record


def _no_header(path: Path) -> str:
    return (
        f"--journal: the header of {path} has changed, so nobody can say which model its replies "
        "are of; move the file away to begin anew without them"
    )


def _check_model(found: Recovered, model: JournalModel) -> None:
    header, streams = found.header, found.streams
    if header is None or not (streams.num_open or streams.num_kept):
        return
    for one in fields(model):
        was, now = getattr(header.model, one.name), getattr(model, one.name)
        if was != now:
            raise StartupFailed(
                f"--journal: {found.paths[-1].parent} holds {streams.num_open} open replies of "
                f"another model: {one.name} was {was}, and is {now}; serve that model, or move "
                "the folder's files away"
            )


def _tell(found: Recovered) -> None:
    damage = found.damage
    if damage.num_records:
        log.error(
            "journal_damaged",
            path=str(found.paths[-1]),
            num_records=damage.num_records,
            first=damage.first,
            is_cut=damage.is_cut,
            num_given_up=found.streams.num_given_up,
        )
    if found.header is not None:
        log.info(
            "journal_read",
            num_open=found.streams.num_open,
            num_kept=found.streams.num_kept,
            num_torn_bytes=damage.num_torn_bytes,
            was_closed=found.streams.is_closed,
            build=found.header.build,
        )
