"""What the disk tier asks of all ranks at once, and what it is told (ADR 25).

An entry is one file on each rank and a manifest, which the master writes last. Files are named
by layout and entry key; a rank adds its own part of the name. Blocks are named by the master:
those of a save are held and full, and nobody writes them; those of an adopt are held and empty,
and nobody reads them before the outcome is there.

Laws: every work that was started has exactly one outcome, unless its epoch ends first: then it
has none. No outcome comes before every rank has answered. What a file can be is a `FileReason`,
never an exception.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeader:
    """What a file says of itself, and what it must say to be taken; equal on all ranks.

    Attributes:
        layout: Fingerprint of the model part of the identity, 64 hex digits; see `identity`.
        key: Of the entry: scope and every token that the state covers, 64 hex digits.
        num_tokens: Positions that the state covers: a whole number of blocks, at least one.
        tokens_digest: Of the token ids alone, 64 hex digits.
    """

    layout: str
    key: str
    num_tokens: int
    tokens_digest: str

    @property
    def name(self) -> "FileName":
        """How its files are named."""
        return FileName(layout=self.layout, key=self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """Where the files of an entry are: `<layout>/<key>.r<rank>of<world size>.safetensors`."""

    layout: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFile:
    """Write the rows of these blocks, in order; a file that is there already is replaced."""

    order_id: int
    header: FileHeader
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFile:
    """Read a file and verify all of it: phase one of an adopt."""

    order_id: int
    header: FileHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptFile:
    """Copy a file that was checked into these blocks, in order: phase two."""

    order_id: int
    header: FileHeader
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFile:
    """Forget that a file was checked; give up one that is being saved."""

    order_id: int
    name: FileName


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFiles:
    """Remove the files of these entries, whatever world size they are of; none there is fine."""

    order_id: int
    names: tuple[FileName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Move the files of these entries aside: they are not what they should be."""

    order_id: int
    names: tuple[FileName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFiles:
    """Remove temporary files, and files of entries without a manifest.

    Attributes:
        order_id: Rises.
        known: Every entry that has a manifest, of all layouts.
    """

    order_id: int
    known: tuple[FileName, ...]


FileWork = SaveFile | CheckFile | AdoptFile | DropFile | DeleteFiles | SetAside | SweepFiles


class FileReason(Enum):
    """Why a work was not done; the first eight are what a file was, and each is a miss.

    MISSING: there is none. TORN: shorter than it says, or not whole. CHECKSUM: its bytes have
    changed. FOREIGN: not of this format, or of another layout, entry, rank or world size. OLDER,
    NEWER: of another version of the format. GEOMETRY: its tensors are not those that the loaded
    weights give. TOKENS: it covers other tokens than it is taken for.

    NO_SPACE, DENIED, IO: what the system says. GONE: the folder is not there. BUSY: too many
    works wait. NO_ROOM: it does not fit the blocks that were named. UNCHECKED: an adopt without
    its check.
    """

    MISSING = "missing"
    TORN = "torn"
    CHECKSUM = "checksum"
    FOREIGN = "foreign"
    OLDER = "older"
    NEWER = "newer"
    GEOMETRY = "geometry"
    TOKENS = "tokens"
    NO_SPACE = "no_space"
    DENIED = "denied"
    IO = "io"
    GONE = "gone"
    BUSY = "busy"
    NO_ROOM = "no_room"
    UNCHECKED = "unchecked"

    @property
    def is_of_the_file(self) -> bool:
        """Whether the file itself is at fault, so that it is moved aside."""
        return self in _OF_THE_FILE


_OF_THE_FILE = frozenset(
    {
        FileReason.MISSING,
        FileReason.TORN,
        FileReason.CHECKSUM,
        FileReason.FOREIGN,
        FileReason.OLDER,
        FileReason.NEWER,
        FileReason.GEOMETRY,
        FileReason.TOKENS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutcome:
    """What became of a work on all ranks.

    Attributes:
        order_id: Of the work.
        reason: None when every rank did it; else what the lowest rank said that did not.
        rank: That rank.
        message: Its words, for the log; "" when all is well.
        num_bytes: Of its file on each rank, by rank; 0 where there is none.
        seconds: What the slowest rank took.
    """

    order_id: int
    reason: FileReason | None = None
    rank: int | None = None
    message: str = ""
    num_bytes: tuple[int, ...] = ()
    seconds: float = 0.0

    @property
    def is_done(self) -> bool:
        """Whether every rank did it."""
        return self.reason is None


class RankFiles(Protocol):
    """The files of all ranks of one epoch; the rank group and the fake both give it.

    The event loop's. `tell` is called once, before the first `start`, with what outcomes go to;
    it is called back from the event loop and never from within `start`.
    """

    def tell(self, on_outcome: Callable[[FileOutcome], None]) -> None:
        """Have every outcome told."""
        ...

    def start(self, work: FileWork) -> None:
        """Hand a work to every rank; returns at once.

        Raises:
            RankGroupLost: the epoch has ended.
        """
        ...
