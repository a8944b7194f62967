"""What an image of a request may be at most; pure.

The pixels bound what a file unpacks to: a picture has four bytes of each in memory, whatever its
kind, and the decoder of WebP holds three more of them, and one is turned or made RGB into another.
"""

from dataclasses import dataclass

# A worker goes over the whole picture for each: real files have up to about a dozen.
MAX_JPEG_SCANS = 64
# No JPEG has more. To resize one that is longer takes more memory than its pixels do, for each
# pixel of what comes out depends on so many of it, and the work on that halts all other threads.
MAX_SIDE = 65_535
# What a picture takes at most while it is decoded.
BYTES_PER_PIXEL = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """The bounds of each image, and of all images of one request."""

    max_image_bytes: int = 8 << 20
    max_image_pixels: int = 25_000_000
    max_images: int = 16
