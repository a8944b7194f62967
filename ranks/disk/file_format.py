"""What a file of the prompt cache is, byte by byte: safetensors, with one header that fits.

    8 bytes      length of the header, little-endian
    header       JSON: what the file says of itself, its checksum, its tensors; padded with spaces
    data         the tensors, one after the other

Laws: a file is taken only if its header is, but for the checksum, the very bytes that this rank
would write: of this layout, entry, tokens, rank and cut, with the tensors that the loaded
weights give. The checksum (xxh3-128) covers the header, with zeros in the checksum's place, and
all data. So nothing that a file says is ever used to read it; a header that differs is parsed
only to say how, bounded, and whatever it holds is a miss.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from ranks.models.state import StateTensor
from ranks.wire.file_messages import FileFault, FileHeader

FORMAT_NAME = "lanehost-prefix"
FORMAT_VERSION = 1
LENGTH_BYTES = 8
# Of a header that is no file of ours, what is read at most.
MAX_HEADER_BYTES = 1 << 20
_ALIGNMENT = 8
_NO_CHECKSUM = "0" * 32
_MUST_EQUAL = {
    "layout": FileFault.FOREIGN,
    "key": FileFault.FOREIGN,
    "rank": FileFault.FOREIGN,
    "world_size": FileFault.FOREIGN,
    "num_tokens": FileFault.TOKENS,
    "tokens_digest": FileFault.TOKENS,
}
_DTYPE_NAMES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}


class FileMiss(Exception):
    """A file is not what is asked for; `fault` says how."""

    def __init__(self, fault: FileFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """The one layout that a file of an entry has on this rank."""

    header: bytes
    checksum_at: int
    sizes: tuple[int, ...]

    @property
    def data_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(self.sizes)

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole file."""
        return LENGTH_BYTES + len(self.header) + self.data_bytes

    def check_size(self, num_bytes: int) -> None:
        """See that a file has as many bytes as it must have.

        Raises:
            FileMiss: It has not.
        """
        if num_bytes != self.num_bytes:
            fault = FileFault.TORN if num_bytes < self.num_bytes else FileFault.FOREIGN
            raise FileMiss(fault, f"it has {num_bytes} bytes of {self.num_bytes}")

    def new_checksum(self) -> "xxhash.xxh3_128":
        """Begin a checksum; the data is still to be added."""
        return xxhash.xxh3_128(self.header)

    def head(self, checksum: str = _NO_CHECKSUM) -> bytes:
        """Return length and header, with a checksum of 32 hex digits in it."""
        at = self.checksum_at
        signed = self.header[:at] + checksum.encode() + self.header[at + len(checksum) :]
        return len(signed).to_bytes(LENGTH_BYTES, "little") + signed

    def checksum_in(self, head: bytes) -> str:
        """Return what checksum a file names, from as many first bytes as `head()` has.

        Raises:
            FileMiss: They are not the header of this entry on this rank.
        """
        at = LENGTH_BYTES + self.checksum_at
        named = head[at : at + len(_NO_CHECKSUM)]
        if head[:at] + _NO_CHECKSUM.encode() + head[at + len(_NO_CHECKSUM) :] != self.head():
            raise _describe(head[LENGTH_BYTES:], self.header)
        return named.decode("ascii", errors="replace")


def lay_out(
    header: FileHeader,
    state: Sequence[StateTensor],
    *,
    block_size: int,
    rank: int,
    world_size: int,
) -> FileLayout:
    """Lay out the file of an entry, from what the loaded weights give.

    Raises:
        FileMiss: The entry is not a whole number of blocks.
    """
    num_blocks, rest = divmod(header.num_tokens, block_size)
    if rest:
        raise FileMiss(
            FileFault.NO_ROOM, f"{header.num_tokens} tokens are no blocks of {block_size}"
        )
    sizes = tuple(tensor.num_bytes(num_blocks, block_size=block_size) for tensor in state)
    said: dict[str, Any] = {
        "__metadata__": {
            "format": FORMAT_NAME,
            "version": str(FORMAT_VERSION),
            "layout": header.name.layout,
            "key": header.name.key,
            "num_tokens": str(header.num_tokens),
            "tokens_digest": header.tokens_digest,
            "rank": str(rank),
            "world_size": str(world_size),
            "checksum": _NO_CHECKSUM,
        }
    }
    end = 0
    for tensor, size in zip(state, sizes, strict=True):
        said[tensor.name] = {
            "dtype": _DTYPE_NAMES[str(tensor.dtype).removeprefix("torch.")],
            "shape": tensor.shape(num_blocks, block_size=block_size),
            "data_offsets": [end, end + size],
        }
        end += size
    text = json.dumps(said, separators=(",", ":")).encode()
    padded = text.ljust(-(-len(text) // _ALIGNMENT) * _ALIGNMENT)
    mark = f'"checksum":"{_NO_CHECKSUM}"'.encode()
    return FileLayout(header=padded, checksum_at=padded.index(mark) + len(mark) - 33, sizes=sizes)


def length_in(prefix: bytes) -> int:
    """Return how long a file's header says it is, from its first bytes.

    Raises:
        FileMiss: They are too few, or no header of ours is that long.
    """
    if len(prefix) < LENGTH_BYTES:
        raise FileMiss(FileFault.TORN, f"it has {len(prefix)} bytes")
    length = int.from_bytes(prefix[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        raise FileMiss(
            FileFault.FOREIGN, f"its header has {length} bytes, the limit is {MAX_HEADER_BYTES}"
        )
    return length


def _describe(text: bytes, expected: bytes) -> FileMiss:
    """Say how a header differs from what it should be."""
    said = _parse(text)
    if said is None:
        return FileMiss(FileFault.FOREIGN, "its header is no header of safetensors")
    ours: dict[str, Any] = json.loads(expected)
    theirs, wanted = said.get("__metadata__"), ours["__metadata__"]
    if not isinstance(theirs, dict) or theirs.get("format") != FORMAT_NAME:
        return FileMiss(FileFault.FOREIGN, "it is no file of the prompt cache")
    if theirs.get("version") != wanted["version"]:
        return _describe_version(theirs.get("version"))
    for name, fault in _MUST_EQUAL.items():
        if theirs.get(name) != wanted[name]:
            return FileMiss(fault, f"its {name} is another")
    return FileMiss(FileFault.GEOMETRY, "its tensors are not those of the loaded weights")


def _describe_version(version: object) -> FileMiss:
    if isinstance(version, str) and version.isascii() and version.isdigit():
        # Compared as text: what a header may hold is longer than any number should be.
        digits, ours = version.lstrip("0"), str(FORMAT_VERSION)
        is_older = (len(digits), digits) < (len(ours), ours)
        fault = FileFault.OLDER if is_older else FileFault.NEWER
        return FileMiss(fault, f"it is of another version than {ours} of the format")
    return FileMiss(FileFault.FOREIGN, "it names no version of the format")


def _parse(text: bytes) -> dict[str, Any] | None:
    """Parse what may be anything; None when it is no object of JSON."""
    try:
        # Numbers stay text: one may have millions of digits.
        said = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None
