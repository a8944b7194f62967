"""Take note of the images that ranks encode, between the engine and the ranks.

Law: all is forwarded as it came; an image is noted once its rows are there, so whoever runs the
trail again knows where a plan may name it.
"""

from collections.abc import Callable
from typing import Protocol

from lanehost.job import PreparedImage
from lanehost.rank_group.image_interface import ImageOutcome, RankImages


class ImageNotes(Protocol):
    """What the recorder is told."""

    def image_encoded(self, epoch: int, image_id: int, digest: bytes) -> None:
        """Note that the rows of an image are there."""
        ...

    def image_dropped(self, epoch: int, image_id: int) -> None:
        """Note that the rows of an image go."""
        ...


class RecordingImages:
    """Implements `lanehost.rank_group.image_interface.RankImages` whole: forwards, and notes."""

    def __init__(self, inner: RankImages, notes: ImageNotes, *, epoch: int) -> None:
        """Stand before `inner`."""
        self._inner = inner
        self._notes = notes
        self._epoch = epoch
        self._digests: dict[int, bytes] = {}

    def tell(self, on_outcome: Callable[[ImageOutcome], None]) -> None:
        """Have every outcome told, from the event loop, and noted before."""

        def note_and_tell(outcome: ImageOutcome) -> None:
            digest = self._digests.pop(outcome.image_id)
            if outcome.reason is None:
                self._notes.image_encoded(self._epoch, outcome.image_id, digest)
            on_outcome(outcome)

        self._inner.tell(note_and_tell)

    def encode(self, image_id: int, image: PreparedImage) -> None:
        """Have every rank encode an image and keep its rows."""
        self._digests[image_id] = image.digest
        self._inner.encode(image_id, image)

    def cancel(self, image_id: int) -> None:
        """Have an image not encoded that has not begun."""
        self._inner.cancel(image_id)

    def drop(self, image_id: int) -> None:
        """Have every rank forget the rows of an image."""
        self._notes.image_dropped(self._epoch, image_id)
        self._inner.drop(image_id)
