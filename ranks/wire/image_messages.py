"""Works on images, as master and ranks speak of them (ADR 26).

The master orders an image to be encoded by every rank, with the same bytes; each does it on a
thread of its own and says ImageDone, once for each EncodeImage. Digests are hex digits where
they name pixels, and bytes where they are compared.
"""

from dataclasses import dataclass, field
from enum import Enum

# Of the pixels of one image: a message has room for them.
MAX_PIXEL_BYTES = 16 * 1024 * 1024
BYTES_PER_PIXEL = 3


class ImageFault(Enum):
    """Why an image has no rows.

    CANCELLED: it was cancelled before it was begun, or its epoch is over. OUT_OF_MEMORY: there
    was none for it. NOT_FINITE: its rows were not numbers. SHAPE: the model takes none of its
    size, or none at all. BUSY: too many wait. FAILED: it could not be encoded.
    """

    CANCELLED = "cancelled"
    OUT_OF_MEMORY = "out_of_memory"
    NOT_FINITE = "not_finite"
    SHAPE = "shape"
    BUSY = "busy"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What the images of a model are, all the same.

    Each is `height` lines of `width` pixels and takes `num_tokens` rows; in the prompt
    `token_id` stands for each of them.
    """

    num_tokens: int
    token_id: int
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeImage:
    """Encode an image and keep its rows, until DropImage or the end of the epoch.

    `image_id` is what plans name it by: it rises within the epoch, and none is given twice.
    `digest` is of the pixels and of how they were made, 64 hex digits. `pixels` are red, green
    and blue in 8 bits each: `height` lines of `width`.
    """

    image_id: int
    digest: str
    width: int
    height: int
    pixels: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelImage:
    """Do not encode an image, if that has not begun; has no effect on one that has."""

    image_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropImage:
    """Forget the rows of an image, in turn with the plans; one that waits is cancelled.

    Of one that is being encoded no rows are kept.
    """

    image_id: int


ImageWork = EncodeImage | CancelImage | DropImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOrder:
    """A work of this epoch."""

    epoch: int
    work: ImageWork


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDone:
    """What became of an image; `fault` None when its rows are there.

    Then it has `num_tokens` rows, and `rows_digest` is of their bits: 16 bytes, the same on
    every rank, or the group is out of step.
    """

    epoch: int
    image_id: int
    fault: ImageFault | None = None
    message: str = ""
    num_tokens: int = 0
    rows_digest: bytes = b""
    took_ns: int = 0
