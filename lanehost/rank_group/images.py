"""The images of all ranks as one: each is encoded by every rank, and has one outcome (ADR 30).

Laws: the same bytes go to every rank, in the same order; an outcome is told once every rank has
answered; the rows are there only if they are on all of them, and then they are the same bit for
bit, or the group is out of step; where only some ranks have rows, those are dropped. With the
epoch all that is in flight is forgotten.
"""

from collections.abc import Callable, Sequence

import structlog

from lanehost.errors import RankGroupLost
from lanehost.job import PreparedImage
from lanehost.rank_group.image_interface import ImageOutcome, ImageReason
from lanehost.rank_group.link import RankLink
from ranks.wire.codec import encode_master_message
from ranks.wire.image_messages import (
    CancelImage,
    DropImage,
    EncodeImage,
    ImageDone,
    ImageOrder,
    ImageWork,
)

log = structlog.get_logger()


class GroupImages:
    """Of one epoch; implements `lanehost.rank_group.image_interface.RankImages`."""

    def __init__(
        self, *, epoch: int, links: Sequence[RankLink], on_differ: Callable[[str], None]
    ) -> None:
        """Send to these streams, in rank order; whoever reads them calls `take_done`.

        `on_differ` hears how the rows of an image differ between ranks.
        """
        self._epoch = epoch
        self._links = links
        self._on_differ = on_differ
        self._on_outcome: Callable[[ImageOutcome], None] | None = None
        self._answers: dict[int, dict[int, ImageDone]] = {}
        self._is_lost = False

    def __repr__(self) -> str:
        """Show the epoch and the images in flight, or that it is over."""
        state = "LOST" if self._is_lost else f"in flight {list(self._answers)}"
        return f"<GroupImages epoch {self._epoch} {state}>"

    def tell(self, on_outcome: Callable[[ImageOutcome], None]) -> None:
        """Have every outcome told, from the event loop."""
        self._on_outcome = on_outcome

    def encode(self, image_id: int, image: PreparedImage) -> None:
        """Have every rank encode an image and keep its rows."""
        if self._is_lost:
            return
        assert image_id not in self._answers, f"image {image_id} on top of {self!r}"
        self._answers[image_id] = {}
        self._send(
            EncodeImage(
                image_id=image_id,
                digest=image.digest.hex(),
                width=image.width,
                height=image.height,
                pixels=image.pixels,
            )
        )

    def cancel(self, image_id: int) -> None:
        """Have an image not encoded that has not begun; its outcome comes all the same."""
        self._send(CancelImage(image_id=image_id))

    def drop(self, image_id: int) -> None:
        """Have every rank forget the rows of an image."""
        self._send(DropImage(image_id=image_id))

    def take_done(self, rank: int, done: ImageDone) -> None:
        """Take what a rank said of an image."""
        answers = self._answers.get(done.image_id)
        if done.epoch != self._epoch or answers is None or rank in answers:
            log.debug("image_answer_dropped", rank=rank, image_id=done.image_id, epoch=done.epoch)
            return
        answers[rank] = done
        if len(answers) < len(self._links):
            return
        del self._answers[done.image_id]
        if (difference := _difference(answers)) is not None:
            self._on_differ(difference)
            return
        outcome = _outcome_of(answers)
        if outcome.reason is not None and any(one.fault is None for one in answers.values()):
            self.drop(done.image_id)
        if self._on_outcome is not None:
            self._on_outcome(outcome)

    def lose(self, error: RankGroupLost) -> None:
        """Forget all that is in flight; nothing more is begun."""
        del error
        self._is_lost = True
        self._answers.clear()

    def _send(self, work: ImageWork) -> None:
        payload = encode_master_message(ImageOrder(epoch=self._epoch, work=work))
        for link in self._links:
            link.send(payload)


def _difference(answers: dict[int, ImageDone]) -> str | None:
    """Say how the rows of an image differ between the ranks that have them."""
    encoded = [(rank, one) for rank, one in sorted(answers.items()) if one.fault is None]
    for rank, one in encoded[1:]:
        first_rank, first = encoded[0]
        mine, theirs = (first.num_tokens, first.rows_digest), (one.num_tokens, one.rows_digest)
        if mine != theirs:
            return (
                f"image {one.image_id} has {mine[0]} rows with digest {mine[1].hex()} on rank "
                f"{first_rank}, {theirs[0]} with {theirs[1].hex()} on rank {rank}"
            )
    return None


def _outcome_of(answers: dict[int, ImageDone]) -> ImageOutcome:
    in_order = sorted(answers.items())
    seconds = max(done.took_ns for done in answers.values()) / 1e9
    for rank, done in in_order:
        if done.fault is not None:
            return ImageOutcome(
                image_id=done.image_id,
                reason=ImageReason(done.fault.value),
                rank=rank,
                message=done.message,
                seconds=seconds,
            )
    _, first = in_order[0]
    return ImageOutcome(image_id=first.image_id, num_tokens=first.num_tokens, seconds=seconds)
