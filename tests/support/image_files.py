"""Image files, good and hostile, made when a test asks: there are no binaries in the project."""

import struct
import zlib
from collections.abc import Callable
from io import BytesIO

import numpy as np
from PIL import Image

from lanehost.images.limits import ImageLimits

LIMITS = ImageLimits(max_image_bytes=1 << 20, max_image_pixels=1 << 20, max_images=8)


def picture(width: int = 24, height: int = 16, *, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """A picture without a symmetry: smooth, so that JPEG keeps it, with one corner marked."""
    rows, columns = np.mgrid[0:height, 0:width]
    channels = [
        (columns * 255 // max(1, width - 1) + seed * 40) % 256,
        rows * 255 // max(1, height - 1),
        (columns + rows + seed) * 3 % 256,
    ]
    values = np.stack(channels, axis=-1).astype(np.uint8)
    values[: height // 4 + 1, : width // 4 + 1] = (255, 0, 0)
    return Image.fromarray(values).convert(mode)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(width: int = 24, height: int = 16, *, mode: str = "RGB", seed: int = 0) -> bytes:
    return encoded(picture(width, height, mode=mode, seed=seed), "PNG")


def jpeg(width: int = 24, height: int = 16, *, mode: str = "RGB", **options: object) -> bytes:
    return encoded(picture(width, height, mode=mode), "JPEG", quality=95, **options)


def webp(width: int = 24, height: int = 16, *, mode: str = "RGB", **options: object) -> bytes:
    return encoded(picture(width, height, mode=mode), "WEBP", **{"lossless": True, **options})


def turned(kind: str, orientation: int, *, big_endian: bool = False) -> bytes:
    """A file whose EXIF record says how it is to be turned."""
    return encoded(picture(), kind, exif=exif(orientation, big_endian=big_endian))


def exif(orientation: int, *, big_endian: bool = False) -> bytes:
    order = ">" if big_endian else "<"
    head = (b"MM\0*" if big_endian else b"II*\0") + struct.pack(f"{order}I", 8)
    entry = struct.pack(f"{order}HHIHH", 0x0112, 3, 1, orientation, 0)
    return b"Exif\0\0" + head + struct.pack(f"{order}H", 1) + entry + bytes(4)


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def raw_png(
    width: int,
    height: int,
    *,
    depth: int = 8,
    color: int = 2,
    rows: bytes = b"",
    extra: bytes = b"",
) -> bytes:
    """A PNG that says what it is told to say."""
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + pixels + chunk(b"IEND", b"")


def grey_16(values: list[int], *, clear: int | None = None) -> bytes:
    """A PNG of one row of 16-bit grey."""
    extra = b"" if clear is None else chunk(b"tRNS", struct.pack(">H", clear))
    rows = b"\0" + struct.pack(f">{len(values)}H", *values)
    return raw_png(len(values), 1, depth=16, color=0, rows=rows, extra=extra)


def bomb() -> bytes:
    """A PNG of few bytes that would unpack to 30 GB."""
    return raw_png(100_000, 100_000, rows=bytes(1 << 20))


def webp_bomb() -> bytes:
    """A WebP that says it has 2**28 pixels."""
    side = (16_383).to_bytes(3, "little")
    head = b"VP8X" + struct.pack("<I", 10) + bytes(4) + side + side
    body = b"WEBP" + head + b"VP8L" + struct.pack("<I", 6) + bytes(6)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def jpeg_of_many_scans(num_scans: int) -> bytes:
    """A progressive JPEG whose last scan comes again and again."""
    data = encoded(picture(64, 64), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    scan = data[last:-2]
    return data[:last] + scan * num_scans + b"\xff\xd9"


def animated(kind: str) -> bytes:
    frames = [picture(seed=seed) for seed in range(3)]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=50)


def sized_jpeg(width: int, height: int) -> bytes:
    """A JPEG whose header says another size than its pixels have."""
    data = jpeg()
    where = next(data.index(mark) for mark in (b"\xff\xc0", b"\xff\xc2") if mark in data)
    return data[: where + 5] + struct.pack(">HH", height, width) + data[where + 9 :]


# What each hostile file is refused with, a piece of it.
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "has 0 bytes"),
    "text": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is no picture of a kind"),
    "gif": (lambda: encoded(picture(), "GIF"), "is no picture of a kind"),
    "bmp": (lambda: encoded(picture(), "BMP"), "is no picture of a kind"),
    "tiff": (lambda: encoded(picture(), "TIFF"), "is no picture of a kind"),
    "icon": (lambda: encoded(picture(), "ICO"), "is no picture of a kind"),
    "too many bytes": (lambda: png() + bytes(1 << 20), "bytes, limit 1048576"),
    "too many pixels": (lambda: raw_png(1025, 1024), "1025 x 1024 = 1049600 pixels, limit"),
    "too long": (lambda: raw_png(1, 65_536), "1 x 65536 pixels, limit of a side 65535"),
    "too wide": (lambda: raw_png(65_536, 1), "65536 x 1 pixels, limit of a side 65535"),
    "jpeg of fill": (
        lambda: jpeg()[:2] + b"\xff" * 70_000 + jpeg()[2:],
        "more than 65536 bytes between its segments",
    ),
    "png bomb": (bomb, "100000 x 100000 = 10000000000 pixels, limit 1048576"),
    "webp bomb": (webp_bomb, "16384 x 16384 = 268435456 pixels, limit 1048576"),
    "jpeg bomb": (lambda: sized_jpeg(65_535, 65_535), "65535 x 65535 = 4294836225 pixels, limit"),
    "jpeg of many scans": (lambda: jpeg_of_many_scans(200), "scans, limit 64"),
    "png without width": (lambda: raw_png(0, 5), "is empty: 0 x 5 pixels"),
    "jpeg without height": (lambda: sized_jpeg(5, 0), "is empty: 5 x 0 pixels"),
    "png cut short": (lambda: png()[:-20], "is truncated"),
    "png without its end": (lambda: png()[:-12], "is truncated: the PNG has no end"),
    "png of its sign alone": (lambda: png()[:8], "is truncated: the PNG has no end"),
    "png without pixels": (
        lambda: png()[: png().index(b"IDAT") - 4] + chunk(b"IEND", b""),
        "is a PNG without pixels",
    ),
    "png of rubbish": (
        lambda: raw_png(4, 4).replace(zlib.compress(b"", 9), b"rubbish!"),
        "that cannot be decoded",
    ),
    "png of two sizes": (
        lambda: raw_png(
            4,
            4,
            rows=bytes(4 * 13),
            extra=chunk(b"IHDR", struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0)),
        ),
        "its decoder finds 9000 x 9000 pixels, its header says 4 x 4",
    ),
    "png that begins wrong": (
        lambda: b"\x89PNG\r\n\x1a\n" + chunk(b"IDAT", b"") + chunk(b"IEND", b""),
        "does not begin with its size",
    ),
    "png with a text bomb": (
        lambda: raw_png(
            4,
            4,
            rows=bytes(4 * 13),
            extra=chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 24), 9)),
        ),
        "that cannot be decoded",
    ),
    "jpeg cut short": (lambda: jpeg()[:-30], "is truncated"),
    "jpeg of its sign alone": (lambda: jpeg()[:3], "is truncated"),
    "jpeg without pixels": (lambda: b"\xff\xd8\xff\xd9", "is a JPEG without pixels"),
    "jpeg without markers": (lambda: b"\xff\xd8\xff\xfe\0\2zz", "the JPEG has no end"),
    "jpeg with a bad segment": (lambda: b"\xff\xd8\xff\xfe\0\1zz", "a segment of 1 bytes"),
    "webp cut short": (lambda: webp()[:-10], "is truncated"),
    "webp of its sign alone": (lambda: webp()[:12], "is truncated"),
    "webp without pixels": (lambda: b"RIFF\4\0\0\0WEBP", "is a WebP without pixels"),
    "webp of another size": (
        lambda: webp()[:21] + bytes([webp()[21] ^ 1]) + webp()[22:],
        "that cannot be decoded",
    ),
    "animated png": (lambda: animated("PNG"), "is animated"),
    "animated webp": (lambda: animated("WEBP"), "is animated"),
}
