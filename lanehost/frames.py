"""Framed records in a file, each proved by its checksum: what trails and journals are made of.

    frame = length (u32), check of the length (4 bytes), checksum (8 bytes), payload

Both checks are BLAKE2b over the number of the frame in its file and what they check, with a
word of the format as its person, so a frame that was lost, moved, or is of another format is
seen like one that was changed. Numbers are little-endian. Payloads are msgpack.

Laws: what is read is what was written, up to the first byte that is not; no input crashes the
reader or makes it allocate more than a payload's bound.
"""

import struct
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import IO, Any, TypeVar

import msgpack
from pydantic import TypeAdapter, ValidationError

_HEAD = struct.Struct("<I4s8s")
HEAD_BYTES = _HEAD.size
_PART_BYTES = 1 << 16
_Record = TypeVar("_Record")


class FrameChanged(Exception):
    """A frame is not what was written; what follows it can be read if its length is known.

    Attributes:
        number: Of the frame in its file.
        at: Where it begins.
        what: What is wrong with it, in words.
        can_go_on: Whether the next call reads the frame behind it.
        is_tail: Whether nothing but zeros is behind its head, so it may never have been whole.
    """

    def __init__(self, number: int, at: int, what: str, *, can_go_on: bool, is_tail: bool) -> None:
        """Say which frame, and what of it."""
        super().__init__(what)
        self.number = number
        self.at = at
        self.what = what
        self.can_go_on = can_go_on
        self.is_tail = is_tail


@dataclass(frozen=True, slots=True)
class Proof:
    """The checks of the frames of one format."""

    person: bytes

    def of_length(self, number: int, length: int) -> bytes:
        """Return the check of a length."""
        return self._check(number, struct.pack("<I", length), size=4)

    def of(self, number: int, payload: bytes) -> bytes:
        """Return the checksum of a payload."""
        return self._check(number, payload, size=8)

    def frame(self, number: int, payload: bytes) -> bytes:
        """Return the bytes of a payload as the frame with this number in its file."""
        length = len(payload)
        return (
            _HEAD.pack(length, self.of_length(number, length), self.of(number, payload)) + payload
        )

    def _check(self, number: int, content: bytes, *, size: int) -> bytes:
        numbered = struct.pack("<Q", number) + content
        return blake2b(numbered, digest_size=size, person=self.person).digest()


class FrameReader:
    """Reads the frames of one file, from where it stands."""

    def __init__(self, source: IO[bytes], proof: Proof, *, max_payload_bytes: int) -> None:
        """Begin with frame 0."""
        self._source = source
        self._proof = proof
        self._max_payload_bytes = max_payload_bytes
        self.number = 0
        self.num_torn_bytes = 0

    def __repr__(self) -> str:
        return f"<FrameReader at frame {self.number}>"

    def next_payload(self) -> bytes | None:
        """Return the next payload, or None at the end; `num_torn_bytes` are no whole frame.

        Raises:
            FrameChanged: its bytes are not those that were written.
        """
        at, number = self._source.tell(), self.number
        head = self._source.read(HEAD_BYTES)
        if len(head) < HEAD_BYTES:
            self.num_torn_bytes = len(head)
            return None
        length, length_check, checksum = _HEAD.unpack(head)
        if length_check != self._proof.of_length(number, length):
            self._end_in_zeros(head, at)
            return None
        if length > self._max_payload_bytes:
            what = f"record {number} has {length} bytes, limit {self._max_payload_bytes}"
            raise FrameChanged(number, at, what, can_go_on=False, is_tail=False)
        payload = self._source.read(length)
        if len(payload) < length:
            self.num_torn_bytes = HEAD_BYTES + len(payload)
            return None
        self.number += 1
        if checksum != self._proof.of(number, payload):
            what = f"record {number} at byte {at} has changed"
            raise FrameChanged(number, at, what, can_go_on=True, is_tail=False)
        return payload

    def _end_in_zeros(self, head: bytes, at: int) -> None:
        """Take zeros for the end: room that was made, or lost in a power cut, and not written."""
        is_tail = rest_is_zero(self._source)
        if is_tail and not any(head):
            self.num_torn_bytes = self._source.tell() - at
            return
        what = f"the length of record {self.number} at byte {at} has changed"
        raise FrameChanged(self.number, at, what, can_go_on=False, is_tail=is_tail)


def rest_is_zero(source: IO[bytes]) -> bool:
    """Read a file to its end, and say whether there is nothing but zeros."""
    return not any(any(part) for part in iter(lambda: source.read(_PART_BYTES), b""))


class NotARecord(Exception):
    """Bytes that are no record of ours; the message says why."""


def pack_fields(fields: object) -> bytes:
    """Write fields as msgpack; words of an enum as their values."""
    packed = msgpack.packb(fields, use_bin_type=True, default=_value_of)
    assert isinstance(packed, bytes)
    return packed


def _value_of(word: Enum) -> object:
    return word.value


# Any: what msgpack gives, not looked at yet.
def unpack_fields(payload: bytes) -> Any:
    """Read msgpack, bounded by the size of its bytes.

    Raises:
        NotARecord: it is none.
    """
    try:
        return msgpack.unpackb(
            payload,
            raw=False,
            use_list=False,
            strict_map_key=True,
            max_str_len=1 << 20,
            max_bin_len=len(payload),
            max_array_len=len(payload),
            max_map_len=1 << 6,
            max_ext_len=0,
        )
    except (msgpack.UnpackException, ValueError, RecursionError) as err:
        raise NotARecord(f"no msgpack: {type(err).__name__}") from None


# Any: what `unpack_fields` gave.
def check_fields(adapter: TypeAdapter[_Record], fields: Any) -> _Record:
    """Make a record of fields.

    Raises:
        NotARecord: they are none; the message has where and what kind, and not the input, which
            may be of a prompt.
    """
    try:
        return adapter.validate_python(fields)
    except ValidationError as err:
        wrong = err.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, wrong["loc"]))
        raise NotARecord(f"{where or 'record'}: {wrong['type']}") from None
