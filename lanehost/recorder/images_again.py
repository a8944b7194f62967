"""Encode the images of a trail again, where its plans need them.

Law: an image is encoded where its rows were there in the trail, and dropped where they went; so
ranks never keep more than they did then. A trail that has only digests of its images is refused
in words.
"""

import asyncio
from collections import Counter

from lanehost.engine.backend import Backend
from lanehost.job import PreparedImage
from lanehost.rank_group.image_interface import ImageOutcome
from lanehost.recorder.records import (
    EpochBegan,
    ImageDropped,
    ImageEncoded,
    JobArrived,
    JobEnded,
    Note,
    RecordedImage,
)
from lanehost.recorder.trail import CannotReplay, DamagedTrail

_ENCODE_TIMEOUT_S = 600.0


class ReplayedImages:
    """The images of jobs that are open, and those that the ranks of the epoch keep."""

    def __init__(self) -> None:
        """Begin with none."""
        self._open: dict[str, tuple[RecordedImage, ...]] = {}
        self._images: dict[bytes, PreparedImage] = {}
        self._num_users: Counter[bytes] = Counter()
        self._kept: set[int] = set()
        self._outcome: asyncio.Future[ImageOutcome] | None = None

    async def take(self, backend: Backend, note: Note) -> None:
        """Follow a note; `backend` are the ranks of the epoch that it is in.

        Raises:
            CannotReplay: The pixels of an image are not there, or the ranks cannot encode it.
            DamagedTrail: It makes no sense where it stands.
        """
        match note:
            case EpochBegan():
                self._kept.clear()
            case JobArrived():
                self._arrive(note)
            case JobEnded(job_id=job_id):
                self._leave(job_id)
            case ImageEncoded(image_id=image_id, digest=digest):
                if digest not in self._images:
                    raise DamagedTrail(f"image {image_id} is of no request that is open")
                await self.encode(backend, image_id, self._images[digest])
            case ImageDropped(image_id=image_id) if image_id in self._kept:
                self._kept.remove(image_id)
                assert backend.images is not None
                backend.images.drop(image_id)
            case _:
                pass

    async def encode(self, backend: Backend, image_id: int, image: PreparedImage) -> None:
        """Encode an image, and wait until its rows are there.

        Raises:
            CannotReplay: The ranks cannot encode it.
        """
        if backend.images is None:
            raise CannotReplay("the trail has images, and these ranks take none")
        loop = asyncio.get_running_loop()
        done = self._outcome = loop.create_future()
        backend.images.tell(self._hear)
        backend.images.encode(image_id, image)
        try:
            async with asyncio.timeout(_ENCODE_TIMEOUT_S):
                outcome = await done
        except TimeoutError:
            # Ranks that are lost meanwhile say nothing of it.
            raise CannotReplay(
                f"the ranks have not encoded image {image_id} within {_ENCODE_TIMEOUT_S} s"
            ) from None
        if outcome.reason is not None:
            raise CannotReplay(
                f"the ranks could not encode image {image_id} ({outcome.reason.value}): "
                f"{outcome.message}"
            )
        self._kept.add(image_id)

    def _hear(self, outcome: ImageOutcome) -> None:
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(outcome)

    def _arrive(self, note: JobArrived) -> None:
        self._open[note.job_id] = note.images
        for one in note.images:
            self._images.setdefault(one.digest, prepared_again(one))
            self._num_users[one.digest] += 1

    def _leave(self, job_id: str) -> None:
        for one in self._open.pop(job_id, ()):
            self._num_users[one.digest] -= 1
            if not self._num_users[one.digest]:
                del self._num_users[one.digest], self._images[one.digest]


def prepared_again(image: RecordedImage) -> PreparedImage:
    """Return an image as it was prepared.

    Raises:
        CannotReplay: The trail has its digest alone.
    """
    if not image.pixels:
        raise CannotReplay(
            "the trail holds digests in place of images, so no ranks can run it: record with "
            "--record-images bytes, or check its plans with --against fake"
        )
    return PreparedImage(
        digest=image.digest, width=image.width, height=image.height, pixels=image.pixels
    )
