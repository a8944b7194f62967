"""What an image file says of itself, read from its bytes before any decoder sees them.

The kind comes from the content, never from a name or a label. Everything here is bounded by the
length of the file, and nothing is decompressed, so that a file that would unpack to gigabytes is
known by its own word before a byte of it is unpacked. What a decoder finds later has to agree.

Laws: bytes are one kind or none; a file that ends within its own structure is `Truncated`; the
orientation is 1 wherever its record cannot be read, for a picture is no worse for a broken one.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar


class ImageKind(Enum):
    """The kinds of files that are taken, by the name of their media type."""

    JPEG = "image/jpeg"
    PNG = "image/png"
    WEBP = "image/webp"


class WrongHeader(Exception):
    """The file contradicts its own kind; the message says how, to be read behind "image 2 "."""


class Truncated(WrongHeader):
    """The file ends before it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHeader:
    """What a file says: its size in pixels as stored, and how it is to be turned.

    `orientation` is that of EXIF, 1 to 8. `num_scans` is how often a JPEG's decoder goes over
    the whole picture, 1 for other kinds.
    """

    kind: ImageKind
    width: int
    height: int
    is_animated: bool = False
    orientation: int = 1
    num_scans: int = 1


_Part = TypeVar("_Part")
MAX_PARTS = 65_536
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_EXIF = b"Exif\0\0"
_ORIENTATION = 0x0112
_SHORT = 3
_MAX_EXIF_ENTRIES = 1024
_LAST_ORIENTATION = 8
_PNG_HEAD_BYTES = 13
_JPEG_FRAME_BYTES = 6
_JPEG_LENGTH_BYTES = 2  # a segment's length counts itself
_WEBP_HEAD_BYTES = 10
_LOSSLESS_HEAD_BYTES = 5
_LOSSLESS_SIGN = 0x2F
_LOSSY_SIGN = b"\x9d\x01\x2a"
# Frames that carry the size: every SOF but DHT (C4), JPG (C8) and DAC (CC).
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_ALONE = frozenset({0x01, 0xD8})
_SCAN, _END, _APP1 = 0xDA, 0xD9, 0xE1
# A marker that is no stuffed byte, no restart within a scan and no fill.
_MARKER = re.compile(rb"\xff(?=[^\x00\xd0-\xd7\xff])")


def kind_of(data: bytes) -> ImageKind | None:
    """Say of which kind the bytes are; None of none that is taken."""
    if data.startswith(_PNG):
        return ImageKind.PNG
    if data.startswith(_JPEG):
        return ImageKind.JPEG
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ImageKind.WEBP
    return None


def read_header(data: bytes) -> ImageHeader | None:
    """Read what a file says of itself; None where it is of no kind that is taken.

    Raises:
        Truncated: it ends before it should.
        WrongHeader: it contradicts its own kind.
    """
    match kind_of(data):
        case None:
            return None
        case ImageKind.PNG:
            return _read_png(data)
        case ImageKind.JPEG:
            return _read_jpeg(data)
        case ImageKind.WEBP:
            return _read_webp(data)


def _read_png(data: bytes) -> ImageHeader:
    width = height = 0
    orientation, is_animated, has_pixels = 1, False, False
    for name, begin, end in _bounded(_png_chunks(data)):
        if not width:
            if name != b"IHDR" or end - begin != _PNG_HEAD_BYTES:
                raise WrongHeader("is a PNG that does not begin with its size")
            width, height = struct.unpack_from(">II", data, begin)
            _check_not_empty(width, height)
        elif name == b"acTL":
            is_animated = True
        elif name == b"eXIf" and orientation == 1:
            orientation = _orientation(data[begin:end])
        has_pixels = has_pixels or name == b"IDAT"
    if not has_pixels:
        raise WrongHeader("is a PNG without pixels")
    return ImageHeader(
        kind=ImageKind.PNG,
        width=width,
        height=height,
        is_animated=is_animated,
        orientation=orientation,
    )


def _bounded(parts: Iterator[_Part]) -> Iterator[_Part]:
    """Give the parts of a file, as many as a real one has: each costs far more than its bytes."""
    for number, part in enumerate(parts):
        if number >= MAX_PARTS:
            raise WrongHeader(f"has more than {MAX_PARTS} parts")
        yield part


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Give name, begin and end of the contents of each chunk, up to the last."""
    position, name = len(_PNG), b""
    while name != b"IEND":
        if position + 12 > len(data):
            raise Truncated("is truncated: the PNG has no end")
        num_bytes, name = struct.unpack_from(">I4s", data, position)
        begin = position + 8
        position = begin + num_bytes + 4
        if position > len(data):
            raise Truncated(f"is truncated: {position - len(data)} bytes of a PNG chunk are absent")
        yield name, begin, begin + num_bytes


def _read_jpeg(data: bytes) -> ImageHeader:
    width = height = num_scans = 0
    orientation = 1
    for marker, begin, end in _bounded(_jpeg_segments(data)):
        if marker in _FRAMES and not num_scans:
            if end - begin < _JPEG_FRAME_BYTES:
                raise WrongHeader("is a JPEG whose size cannot be read")
            height, width = struct.unpack_from(">HH", data, begin + 1)
            _check_not_empty(width, height)
        elif marker == _SCAN:
            num_scans += 1
        elif marker == _APP1 and orientation == 1 and data.startswith(_EXIF, begin):
            orientation = _orientation(data[begin + len(_EXIF) : end])
    if not width or not num_scans:
        raise WrongHeader("is a JPEG without pixels")
    return ImageHeader(
        kind=ImageKind.JPEG,
        width=width,
        height=height,
        orientation=orientation,
        num_scans=num_scans,
    )


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Give marker, begin and end of each segment up to the end.

    What is no marker is skipped, as decoders do: the data of scans, and bytes between segments.
    """
    # Before the first scan the decoder, too, looks at these one by one.
    position, left = 2, MAX_PARTS
    while True:
        found = _MARKER.search(data, position)
        if found is None:
            raise Truncated("is truncated: the JPEG has no end")
        left -= found.start() - position
        if left < 0:
            raise WrongHeader(f"has more than {MAX_PARTS} bytes between its segments")
        position = found.start()
        marker = data[position + 1]
        if marker == _END:
            return
        is_alone = marker in _ALONE
        begin, end = (position + 2,) * 2 if is_alone else _jpeg_segment(data, position)
        yield marker, begin, end
        position = end
        if marker == _SCAN:
            left = len(data)


def _jpeg_segment(data: bytes, position: int) -> tuple[int, int]:
    if position + 4 > len(data):
        raise Truncated("is truncated: the JPEG has no end")
    (num_bytes,) = struct.unpack_from(">H", data, position + 2)
    end = position + 2 + num_bytes
    if num_bytes < _JPEG_LENGTH_BYTES:
        raise WrongHeader(f"is a JPEG with a segment of {num_bytes} bytes")
    if end > len(data):
        raise Truncated(f"is truncated: {end - len(data)} bytes of a JPEG segment are absent")
    return position + 4, end


def _read_webp(data: bytes) -> ImageHeader:
    (num_bytes,) = struct.unpack_from("<I", data, 4)
    if 8 + num_bytes > len(data):
        raise Truncated(f"is truncated: {8 + num_bytes - len(data)} bytes of the WebP are absent")
    size: tuple[int, int] | None = None
    orientation, is_animated, has_pixels = 1, False, False
    for name, begin, end in _bounded(_webp_chunks(data, 8 + num_bytes)):
        if size is None:
            size = _webp_size(name, data[begin : min(end, begin + _WEBP_HEAD_BYTES)])
            _check_not_empty(*size)
        is_animated = is_animated or name in (b"ANIM", b"ANMF")
        has_pixels = has_pixels or name in (b"VP8 ", b"VP8L", b"ANMF")
        if name == b"EXIF" and orientation == 1:
            orientation = _orientation(data[begin:end].removeprefix(_EXIF))
    if size is None or not has_pixels:
        raise WrongHeader("is a WebP without pixels")
    return ImageHeader(
        kind=ImageKind.WEBP,
        width=size[0],
        height=size[1],
        is_animated=is_animated,
        orientation=orientation,
    )


def _webp_chunks(data: bytes, stop: int) -> Iterator[tuple[bytes, int, int]]:
    position = 12
    while position + 8 <= stop:
        name, num_bytes = struct.unpack_from("<4sI", data, position)
        begin = position + 8
        if begin + num_bytes > stop:
            raise Truncated(
                f"is truncated: {begin + num_bytes - stop} bytes of a WebP chunk are absent"
            )
        yield name, begin, begin + num_bytes
        position = begin + num_bytes + num_bytes % 2


def _webp_size(name: bytes, head: bytes) -> tuple[int, int]:
    """Return width and height: the canvas of an extended file, else of the one picture."""
    if name == b"VP8X" and len(head) == _WEBP_HEAD_BYTES:
        return 1 + int.from_bytes(head[4:7], "little"), 1 + int.from_bytes(head[7:10], "little")
    if name == b"VP8L" and len(head) >= _LOSSLESS_HEAD_BYTES and head[0] == _LOSSLESS_SIGN:
        bits = int.from_bytes(head[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if name == b"VP8 " and len(head) == _WEBP_HEAD_BYTES and head[3:6] == _LOSSY_SIGN:
        width, height = struct.unpack_from("<HH", head, 6)
        return width & 0x3FFF, height & 0x3FFF
    raise WrongHeader("is a WebP that does not begin with its size")


def _check_not_empty(width: int, height: int) -> None:
    if not width or not height:
        raise WrongHeader(f"is empty: {width} x {height} pixels")


def _orientation(tiff: bytes) -> int:
    """Read how the picture is to be turned from an EXIF record; 1, not at all, if it says not."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return 1
    try:
        (offset,) = struct.unpack_from(f"{order}I", tiff, 4)
        (count,) = struct.unpack_from(f"{order}H", tiff, offset)
        for index in range(min(count, _MAX_EXIF_ENTRIES)):
            entry = struct.unpack_from(f"{order}HHIH", tiff, offset + 2 + 12 * index)
            if entry[:3] == (_ORIENTATION, _SHORT, 1):
                return entry[3] if 1 <= entry[3] <= _LAST_ORIENTATION else 1
    except struct.error:
        pass
    return 1
