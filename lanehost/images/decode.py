"""The bytes of an image file → an RGB picture, upright, or a refusal in words.

How pictures that are no plain RGB become RGB, in one way each:

    EXIF orientation      turned upright first, by the file's own EXIF record
    transparent           laid on white, also palettes and single transparent colours
    grey                  the same value thrice; of 16 bits the upper 8
    CMYK                  by Pillow's plain formula; colour profiles are not applied
    16 bits a channel     the upper 8

Laws: a file is judged by its header, which is read without a decoder, before anything of it is
unpacked; whatever the bytes are, the outcome is a picture or `ImageRefused` that names the
image by its number (1 is the first of the prompt), with the value and the limit; no decoder but
those of the three kinds is ever asked. The decoders are C code within this process (Pillow's, over
libjpeg, libwebp and zlib): they are trusted not to crash, and nothing else is expected of them.
"""

import struct
import zlib
from io import BytesIO

import numpy as np
from PIL import Image
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from lanehost.errors import ImageRefused
from lanehost.images.header import ImageHeader, ImageKind, WrongHeader, read_header
from lanehost.images.limits import MAX_JPEG_SCANS, MAX_SIDE, ImageLimits

_FILES: dict[ImageKind, type[ImageFile]] = {
    ImageKind.JPEG: JpegImageFile,
    ImageKind.PNG: PngImageFile,
    ImageKind.WEBP: WebPImageFile,
}
# EXIF orientation → what turns the picture upright.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# What the plugins raise on bytes that are no picture; a warning is one where it is made an error.
_DECODER_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    EOFError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    Warning,
    struct.error,
    zlib.error,
)
_KINDS = "JPEG, PNG and WebP"
_WHITE = (255, 255, 255, 255)
_STRIP_ROWS = 256


def field_of(number: int) -> str:
    """Name an image of a request in a refusal: 1 is the first of the prompt."""
    return f"images[{number}]"


def check_image(data: bytes, number: int, limits: ImageLimits) -> ImageHeader:
    """Judge a file by its length and by what it says of itself.

    Raises:
        ImageRefused: it is no picture of a kind that is taken, or beyond a limit.
    """
    field = field_of(number)
    if not data:
        raise ImageRefused(field, "has 0 bytes")
    if len(data) > limits.max_image_bytes:
        limit = f"limit {limits.max_image_bytes} (--max-image-bytes)"
        raise ImageRefused(field, f"has {len(data)} bytes, {limit}")
    try:
        header = read_header(data)
    except WrongHeader as error:
        raise ImageRefused(field, str(error)) from None
    if header is None:
        raise ImageRefused(field, f"is no picture of a kind that is taken; {_KINDS} are")
    _check_header(header, field, limits)
    return header


def _check_header(header: ImageHeader, field: str, limits: ImageLimits) -> None:
    num_pixels = header.width * header.height
    if num_pixels > limits.max_image_pixels:
        raise ImageRefused(
            field,
            f"has {header.width} x {header.height} = {num_pixels} pixels, "
            f"limit {limits.max_image_pixels} (--max-image-pixels)",
        )
    if max(header.width, header.height) > MAX_SIDE:
        message = f"has {header.width} x {header.height} pixels, limit of a side {MAX_SIDE}"
        raise ImageRefused(field, message)
    if header.is_animated:
        raise ImageRefused(field, "is animated; send one picture of it")
    if header.num_scans > MAX_JPEG_SCANS:
        message = f"is a JPEG of {header.num_scans} scans, limit {MAX_JPEG_SCANS}"
        raise ImageRefused(field, message)


def decode_image(data: bytes, number: int, limits: ImageLimits) -> Image.Image:
    """Return the picture of a file as it is to be seen, in RGB.

    Args:
        data: The bytes of the file.
        number: Which image of the request it is, from 1.
        limits: What it may be at most.

    Raises:
        ImageRefused: it is no such picture, or beyond a limit.
    """
    header = check_image(data, number, limits)
    try:
        picture = _decoded(data, header)
        turn = _TURNS.get(header.orientation)
        # The one before is let go: a picture may be large.
        picture = picture if turn is None else picture.transpose(turn)
        return _to_rgb(picture)
    except _DECODER_FAULTS as error:
        kind = header.kind.name
        raise ImageRefused(
            field_of(number), f"is a {kind} that cannot be decoded: {_why(error)}"
        ) from None


def _decoded(data: bytes, header: ImageHeader) -> Image.Image:
    # The plugin itself: Image.open would ask others, too.
    picture = _FILES[header.kind](BytesIO(data))
    if picture.size != (header.width, header.height):
        raise ValueError(
            f"its decoder finds {picture.width} x {picture.height} pixels, "
            f"its header says {header.width} x {header.height}"
        )
    picture.load()
    return picture


def _to_rgb(picture: Image.Image) -> Image.Image:
    clear = picture.info.get("transparency")
    if picture.mode.startswith("I"):
        picture, clear = _of_16_bits(picture, clear), None
    if "A" in picture.getbands() or clear is not None:
        return _on_white(picture)
    return picture.convert("RGB")


def _on_white(picture: Image.Image) -> Image.Image:
    """Lay a picture on white, in strips: whole, it would be held four times over."""
    width, height = picture.size
    laid = Image.new("RGB", picture.size)
    for top in range(0, height, _STRIP_ROWS):
        strip = picture.crop((0, top, width, min(height, top + _STRIP_ROWS))).convert("RGBA")
        white = Image.new("RGBA", strip.size, _WHITE)
        laid.paste(Image.alpha_composite(white, strip).convert("RGB"), (0, top))
    return laid


def _of_16_bits(picture: Image.Image, clear: object) -> Image.Image:
    """Return a picture of 16-bit grey in 8 bits; one grey of it may be transparent."""
    values = np.asarray(picture)
    grey = Image.fromarray((values >> 8).astype(np.uint8))
    if not isinstance(clear, int):
        return grey
    grey.putalpha(Image.fromarray(np.where(values == clear, 0, 255).astype(np.uint8)))
    return grey


def _why(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return (words or type(error).__name__)[:200]
