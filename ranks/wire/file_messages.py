"""Works on files of the prompt cache, as master and ranks speak of them (ADR 25).

The master orders, a rank does it on a thread of its own and says FileDone. Digests are hex
digits here, in names of files, and bytes on the wire.
"""

from dataclasses import dataclass
from enum import Enum


class FileFault(Enum):
    """Why a work was not done; what each means is said where the master decides.

    From MISSING to TOKENS it is what a file was, from NO_SPACE on what came in the way.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """How the files of an entry are named: two digests of 64 hex digits."""

    layout: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeader:
    """What a file must say of itself; a rank adds its number and the world size."""

    name: FileName
    num_tokens: int
    tokens_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFile:
    """Write the rows of these blocks, in order."""

    header: FileHeader
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFile:
    """Read a file and verify all of it: phase one of an adopt."""

    header: FileHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptFile:
    """Copy a file that was checked into these blocks, in order: phase two."""

    header: FileHeader
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFile:
    """Forget that a file was checked; give up one that is being saved."""

    name: FileName


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFiles:
    """Remove the files of these entries, whatever world size they are of."""

    names: tuple[FileName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Move the files of these entries aside."""

    names: tuple[FileName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFiles:
    """Remove temporary files, and those of entries that are not known."""

    known: tuple[FileName, ...]


FileWork = SaveFile | CheckFile | AdoptFile | DropFile | DeleteFiles | SetAside | SweepFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOrder:
    """A work of this epoch."""

    order_id: int
    epoch: int
    work: FileWork


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDone:
    """What became of a work; `fault` None when it was done, `num_bytes` of the file then."""

    order_id: int
    epoch: int
    fault: FileFault | None = None
    message: str = ""
    num_bytes: int = 0
    took_ns: int = 0
