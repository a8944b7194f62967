"""Read the header of a GGUF file, bounded.

Laws: no two tensors share a byte, and no length in the file is believed before it is checked
against the bytes that are left, so a hostile file costs no more time or memory than its own
size. Long texts and arrays (the tokenizer's) are walked over, not kept; `read_gguf_value` reads
one of them.

The master reads this header as the ranks do, so nothing here loads torch (ADR 8).

The `gguf` package's own reader walks any count that the file claims; it is used for
its constants and its dequantising only.

Layout: magic, version, number of tensors, number of fields; the fields (name, type,
value); the tensors (name, dimensions with the fastest first, type, offset); padding
to the alignment; the tensors' bytes.
"""

import math
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from ranks.errors import BadCheckpoint

Scalar = int | float | bool | str
FieldValue = Scalar | tuple[Scalar, ...] | None

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_NAME_BYTES = 65_535
_MAX_FIELDS = 65_536
_MAX_TENSORS = 262_144
_MAX_DIMENSIONS = 4
_MAX_ARRAY_KEPT = 4_096
_MAX_STRING_KEPT = 65_536
_MAX_VALUES = 4_194_304
_DEFAULT_ALIGNMENT = 32
_MAX_MESSAGE = 2_000

_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """Where a tensor lies; `shape` has the slowest dimension first."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """Fields and tensors.

    What is long, and every array of texts, is None in `fields`; `value_starts` says at
    which byte each value is.
    """

    fields: dict[str, FieldValue]
    value_starts: dict[str, int]
    tensors: dict[str, TensorInfo]


def shortened(message: str) -> str:
    """Leave out the middle of a message that repeats a long text of a file."""
    if len(message) <= _MAX_MESSAGE:
        return message
    half = _MAX_MESSAGE // 2
    return f"{message[:half]} … {message[-half:]}"


def map_gguf(path: Path) -> npt.NDArray[np.uint8]:
    """Map a file.

    Raises:
        BadCheckpoint: It cannot be read, or is empty.
    """
    try:
        return np.memmap(path, mode="r", dtype=np.uint8)
    except (OSError, ValueError) as err:  # ValueError: an empty file cannot be mapped
        raise BadCheckpoint(f"{path}: cannot be read: {err}") from err


def read_gguf_header(path: Path, data: npt.NDArray[np.uint8]) -> GgufHeader:
    """Read the header of the mapped file `data`.

    Raises:
        BadCheckpoint: The file is not a GGUF file, is cut short or contradicts itself.
    """
    cursor = _Cursor(path, data)
    num_tensors, num_fields = _read_counts(cursor)
    fields: dict[str, FieldValue] = {}
    value_starts: dict[str, int] = {}
    for _ in range(num_fields):
        name = cursor.read_name("field name")
        if name in fields:
            raise cursor.error(f"field {name!r} is there twice")
        value_starts[name] = cursor.at
        fields[name] = _read_value(cursor, cursor.read("<I"))
    infos = [_read_tensor_info(cursor) for _ in range(num_tensors)]
    alignment = _read_alignment(cursor, fields)
    start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for info in infos:
        if info.name in tensors:
            raise cursor.error(f"tensor {info.name!r} is there twice")
        if info.offset % alignment:
            raise cursor.error(
                f"tensor {info.name!r} has offset {info.offset}, no multiple of {alignment}"
            )
        tensors[info.name] = _place(cursor, info, start)
    _refuse_overlaps(cursor, tensors)
    return GgufHeader(fields=fields, value_starts=value_starts, tensors=tensors)


def read_gguf_value(path: Path, data: npt.NDArray[np.uint8], start: int) -> Scalar | list[Scalar]:
    """Read one value whole, however long; `start` is one of the header's `value_starts`.

    Raises:
        BadCheckpoint: A text is not UTF-8, or an array has more values than any tokenizer.
    """
    cursor = _Cursor(path, data)
    cursor.at = start
    type_id = cursor.read("<I")
    if type_id == _STRING:
        return cursor.read_text(cursor.read("<Q"), "text")
    if type_id != _ARRAY:
        return cursor.read(_SCALARS[type_id])
    type_id, length = cursor.read("<I"), cursor.read("<Q")
    if length > _MAX_VALUES:
        raise cursor.error(f"an array has {length} values, the limit is {_MAX_VALUES}")
    if type_id == _STRING:
        return [cursor.read_text(cursor.read("<Q"), "text") for _ in range(length)]
    return list(_read_numbers(cursor, type_id, length))


class _Cursor:
    """A position in the mapped file that never passes its end."""

    def __init__(self, path: Path, data: npt.NDArray[np.uint8]) -> None:
        self.path = path
        self.data = memoryview(data.data)
        self.at = 0

    def error(self, message: str) -> BadCheckpoint:
        return BadCheckpoint(f"{self.path}: {message}")

    def too_short(self, num_bytes: int) -> BadCheckpoint:
        return self.error(
            f"the header wants {num_bytes} bytes at offset {self.at}, "
            f"the file has {self.num_left} left"
        )

    @property
    def num_left(self) -> int:
        return len(self.data) - self.at

    def skip(self, num_bytes: int) -> int:
        """Move on and return where it was."""
        if num_bytes > self.num_left:
            raise self.too_short(num_bytes)
        start, self.at = self.at, self.at + num_bytes
        return start

    def read(self, form: str) -> int:
        start = self.skip(struct.calcsize(form))
        value: int = struct.unpack_from(form, self.data, start)[0]
        return value

    def read_name(self, what: str) -> str:
        length = self.read("<Q")
        if length > _MAX_NAME_BYTES:
            raise self.error(f"a {what} has {length} bytes, the limit is {_MAX_NAME_BYTES}")
        return self.read_text(length, what)

    def read_text(self, num_bytes: int, what: str) -> str:
        start = self.skip(num_bytes)
        try:
            return str(self.data[start : self.at], "utf-8")
        except UnicodeDecodeError as err:
            raise self.error(f"a {what} at offset {start} is not UTF-8") from err


def _read_counts(cursor: _Cursor) -> tuple[int, int]:
    if bytes(cursor.data[:4]) != _MAGIC:
        raise cursor.error(f"not a GGUF file: it begins with {bytes(cursor.data[:4])!r}")
    cursor.skip(4)
    version = cursor.read("<I")
    if version not in _VERSIONS:
        raise cursor.error(f"GGUF version is {version}, supported are {_VERSIONS}")
    num_tensors, num_fields = cursor.read("<Q"), cursor.read("<Q")
    if num_tensors > _MAX_TENSORS:
        raise cursor.error(f"number of tensors is {num_tensors}, the limit is {_MAX_TENSORS}")
    if num_fields > _MAX_FIELDS:
        raise cursor.error(f"number of fields is {num_fields}, the limit is {_MAX_FIELDS}")
    return num_tensors, num_fields


def _read_value(cursor: _Cursor, type_id: int) -> FieldValue:
    if type_id == _ARRAY:
        return _read_array(cursor)
    if type_id == _STRING:
        return _read_string(cursor)
    if type_id not in _SCALARS:
        raise cursor.error(f"a field has type {type_id}, which GGUF does not know")
    return cursor.read(_SCALARS[type_id])


def _read_string(cursor: _Cursor) -> str | None:
    length = cursor.read("<Q")
    start = cursor.skip(length)
    if length > _MAX_STRING_KEPT:
        return None
    # Text that the model does not need must not keep it from loading.
    return bytes(cursor.data[start : cursor.at]).decode(errors="replace")


def _read_array(cursor: _Cursor) -> tuple[Scalar, ...] | None:
    type_id, length = cursor.read("<I"), cursor.read("<Q")
    if type_id == _STRING:
        _skip_strings(cursor, length)
        return None
    if type_id not in _SCALARS:
        raise cursor.error(f"an array has values of type {type_id}, which is not supported")
    if length > _MAX_ARRAY_KEPT:
        cursor.skip(length * struct.calcsize(_SCALARS[type_id]))
        return None
    return _read_numbers(cursor, type_id, length)


def _read_numbers(cursor: _Cursor, type_id: int, length: int) -> tuple[Scalar, ...]:
    start = cursor.skip(length * struct.calcsize(_SCALARS[type_id]))
    form = f"<{length}{_SCALARS[type_id][1]}"
    return struct.unpack_from(form, cursor.data, start)


def _skip_strings(cursor: _Cursor, length: int) -> None:
    """Walk over texts; there may be half a million, so a step of this loop is a short one."""
    if length * _LENGTH.size > cursor.num_left:
        raise cursor.too_short(length * _LENGTH.size)
    read_length, data, last = _LENGTH.unpack_from, cursor.data, len(cursor.data) - _LENGTH.size
    at = cursor.at
    for _ in range(length):
        if at > last:
            raise cursor.error(f"a text begins at byte {at}, the file ends at {len(data)}")
        at += _LENGTH.size + read_length(data, at)[0]
    cursor.skip(at - cursor.at)


def _read_tensor_info(cursor: _Cursor) -> TensorInfo:
    name = cursor.read_name("tensor name")
    num_dimensions = cursor.read("<I")
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise cursor.error(
            f"tensor {name!r} has {num_dimensions} dimensions, the limit is {_MAX_DIMENSIONS}"
        )
    shape = tuple(reversed([cursor.read("<Q") for _ in range(num_dimensions)]))
    if 0 in shape:
        raise cursor.error(f"tensor {name!r} has shape {shape}: a dimension is 0")
    type_id, offset = cursor.read("<I"), cursor.read("<Q")
    return TensorInfo(name=name, shape=shape, type_id=type_id, offset=offset, num_bytes=0)


def _read_alignment(cursor: _Cursor, fields: dict[str, FieldValue]) -> int:
    alignment = fields.get("general.alignment", _DEFAULT_ALIGNMENT)
    if isinstance(alignment, int) and not isinstance(alignment, bool):  # true is an int as well
        is_power_of_two = alignment >= 1 and alignment & (alignment - 1) == 0
        if is_power_of_two:
            return alignment
    raise cursor.error(f"general.alignment is {alignment!r}, it must be a power of two")


def _refuse_overlaps(cursor: _Cursor, tensors: dict[str, TensorInfo]) -> None:
    """A file of a thousand tensors in the same place would take a thousand times its bytes."""
    in_order = sorted(tensors.values(), key=lambda info: info.offset)
    for before, info in pairwise(in_order):
        if info.offset < before.offset + before.num_bytes:
            raise cursor.error(
                f"tensor {info.name!r} begins at byte {info.offset}, "
                f"{before.name!r} ends at {before.offset + before.num_bytes}"
            )


def _place(cursor: _Cursor, info: TensorInfo, start: int) -> TensorInfo:
    try:
        group, group_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(info.type_id)]
    except (ValueError, KeyError) as err:
        raise cursor.error(f"tensor {info.name!r} has the unknown type {info.type_id}") from err
    if info.shape[-1] % group:
        raise cursor.error(
            f"tensor {info.name!r} has rows of {info.shape[-1]} values in groups of {group}"
        )
    num_bytes = math.prod(info.shape) // group * group_bytes
    offset, length = start + info.offset, len(cursor.data)
    if offset + num_bytes > length:
        raise cursor.error(
            f"tensor {info.name!r} ends at byte {offset + num_bytes}, the file at {length}"
        )
    return TensorInfo(
        name=info.name,
        shape=info.shape,
        type_id=info.type_id,
        offset=offset,
        num_bytes=num_bytes,
    )
