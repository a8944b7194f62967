"""What the engine asks of the ranks for images, and what becomes of it; plain data (ADR 30)."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from lanehost.job import PreparedImage


class ImageReason(Enum):
    """Why an image has no rows, in the words of the ranks."""

    CANCELLED = "cancelled"
    OUT_OF_MEMORY = "out_of_memory"
    NOT_FINITE = "not_finite"
    SHAPE = "shape"
    BUSY = "busy"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOutcome:
    """What became of an image on all ranks; `reason` None: its rows are there.

    Else `rank` is the lowest that has none, and `message` what it said. `seconds` are those of
    the slowest rank.
    """

    image_id: int
    reason: ImageReason | None = None
    rank: int | None = None
    message: str = ""
    num_tokens: int = 0
    seconds: float = 0.0


class RankImages(Protocol):
    """The encoders of an epoch's ranks, and the rows that they keep."""

    def tell(self, on_outcome: Callable[[ImageOutcome], None]) -> None:
        """Have every outcome told, from the event loop."""
        ...

    def encode(self, image_id: int, image: PreparedImage) -> None:
        """Have every rank encode an image and keep its rows; has one outcome.

        Once the epoch has ended it does nothing.
        """
        ...

    def cancel(self, image_id: int) -> None:
        """Have an image not encoded that has not begun; its outcome comes all the same."""
        ...

    def drop(self, image_id: int) -> None:
        """Have every rank forget the rows of an image."""
        ...
